"""What is tried beside the gangs: on the ports, by what tenants write, by the policy file.

Each attack prepares what has to be there first, repeats itself while gangs arrive, and says
afterwards what its author was told. What only a command line reads (`plan`, kubeconfigs) has no
place here; tests of those are elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from tests.cluster.api import Api, ApiError, Object, resource_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.nightly.attacks import attackers
from tests.nightly.attacks.test_serve import BOUNDS, DRIPPING, SEVERAL

from .garrison import Garrison
from .nobody import Nobody

#: Of each attack on a port so many at once; of snapshots as many as once starved the probes.
_TIMES = {"snapshots": 20, "a byte now and then": DRIPPING}
#: As what those are refused who lack the secret of the pair, before it comes to their bound.
_STRANGERS = {("hooks", "a filter behind a bind"): {"secret"}}
#: How much longer than in a quiet minute the 99th percentile may be, of gangs and of ordinary pods.
SLOWER = 2.0
SLOWER_PODS = 1.5


@dataclass(frozen=True, slots=True)
class Ground:
    """What somebody who writes objects knows; may be told to another process."""

    kubeconfig: str
    #: The tenant's, and nobody else's.
    namespace: str
    #: Of nodes that are meant for tenants, and of those that the arriving gangs have.
    tenants: dict[str, str]
    gangs: dict[str, str]
    policy: str
    ops_url: str


@dataclass
class Stage:
    """Where an attack takes place."""

    plane: ControlPlane
    garrison: Garrison | Nobody
    ground: Ground
    #: Whatever is not in the namespace and has to be taken away afterwards.
    left: list[Object] = field(default_factory=list)
    #: Whatever else has to be undone.
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.plane.api

    def create(self, *things: Object) -> None:
        """Create what has no namespace, to be taken away afterwards."""
        for thing in things:
            self.left.append(thing)
            self.api.create(thing)

    def clear(self) -> None:
        """Take away all that is not in the namespace, and undo the rest."""
        while self.afterwards:
            self.afterwards.pop()()
        for thing in reversed(self.left):
            with suppress(ApiError):
                self.api.delete(resource_of(thing), thing["metadata"]["name"])
        self.left.clear()


class Attack:
    """Nothing at all: a quiet minute."""

    name = "quiet"
    #: Whether ordinary pods arrive beside it, in place of gangs.
    beside_pods = False
    #: How much longer than in a quiet minute the 99th percentile may be, or in seconds how long.
    slower = SLOWER
    at_most_s: float | None = None

    def prepare(self, stage: Stage) -> None:
        """Have what must be there first."""

    @contextmanager
    def going_on(self, stage: Stage) -> Iterator[None]:
        """Repeat it while the block runs."""
        yield

    def told(self, stage: Stage) -> str:
        """Say what its author could read."""
        return ""

    def lacks(self, stage: Stage) -> str:
        """Say which bound it should have struck and has not: then it was no attack."""
        return ""


class OnPort(Attack):
    """Something sent to one of the two ports, by a process that gives way to others."""

    def __init__(self, port: str, what: str, attack: attackers.Attack) -> None:
        self.name = f"{port}: {what}"
        self._port = port
        self._function = attack.__name__
        self.times = _TIMES.get(what, SEVERAL)
        self._bounds = _STRANGERS.get((port, what), BOUNDS[port, what])
        self._before: dict[str, float] = {}

    @contextmanager
    def going_on(self, stage: Stage) -> Iterator[None]:
        self._before = stage.garrison.refused()
        port = stage.garrison.ports[self._port]
        command = [sys.executable, "-m", "tests.nightly.attacks", str(port), str(self.times)]
        attacker = subprocess.Popen(
            [*command, self._function], cwd=REPOSITORY, stdin=subprocess.PIPE
        )
        try:
            yield
            assert attacker.poll() is None, f"the attacker ended with {attacker.returncode}"
        finally:
            attacker.communicate(timeout=60)

    def told(self, stage: Stage) -> str:
        grown = self._refused(stage)
        told = ", ".join(f"{reason} {count:,}" for reason, count in sorted(grown.items()))
        return told or "answers, and no more"

    def lacks(self, stage: Stage) -> str:
        if not self._bounds or self._bounds & self._refused(stage).keys():
            return ""
        return f"nobody was refused as {' or '.join(sorted(self._bounds))}"

    def _refused(self, stage: Stage) -> dict[str, int]:
        after = stage.garrison.refused()
        return {
            reason.partition(": ")[2]: int(count - self._before.get(reason, 0))
            for reason, count in after.items()
            if reason.startswith(f"{self._port}:") and count > self._before.get(reason, 0)
        }


class Written(Attack):
    """Something a tenant or an administrator writes again and again, from another process.

    *step* names the function of *module* that does it once.
    """

    def __init__(
        self,
        name: str,
        step: str,
        *,
        every_s: float,
        prepare: Callable[[Stage], None] | None = None,
        module: str = "tests.nightly.cluster.tenants",
        beside_pods: bool = False,
    ) -> None:
        self.name = name
        self.beside_pods = beside_pods
        self.slower = SLOWER_PODS if beside_pods else SLOWER
        self._module = module
        self._step = step
        self._every_s = every_s
        self._prepare = prepare
        #: What the API server said to it, by how often.
        self._refusals: dict[str, int] = {}

    def prepare(self, stage: Stage) -> None:
        if self._prepare:
            self._prepare(stage)

    @contextmanager
    def going_on(self, stage: Stage) -> Iterator[None]:
        command = [sys.executable, "-m", self._module, self._step, f"{self._every_s}"]
        writer = subprocess.Popen(
            [*command, json.dumps(asdict(stage.ground))],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield
        finally:
            said, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0, f"{self.name} ended with {writer.returncode}"
        self._refusals = json.loads(said)

    def told(self, stage: Stage) -> str:
        words = [f"the API server: {said} ({count})" for said, count in self._refusals.items()]
        events = Counter(
            event["reason"]
            for event in stage.api.list("events", stage.ground.namespace)
            if event["source"].get("component") == "gang-extender"
        )
        words += [f"event {reason} ({count})" for reason, count in events.most_common(3)]
        found = Counter(f"{each['kind']} {each['reason']}" for each in stage.garrison.findings())
        words += [f"finding {what} ({count})" for what, count in found.most_common(3)]
        return ", ".join(words) or "nothing: it may"


def on_ports() -> list[Attack]:
    """Every attack on a port."""
    return [
        *(OnPort("hooks", what, attack) for what, attack in attackers.ON_HOOKS.items()),
        *(OnPort("operations", what, attack) for what, attack in attackers.ON_OPERATIONS.items()),
    ]
