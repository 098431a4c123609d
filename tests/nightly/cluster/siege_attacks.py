"""The attacks of a siege: on the ports, by objects of tenants, by the policy file.

Each attack prepares its objects, repeats itself while gangs arrive, and reports afterwards what its
author could see. Input of the command line alone (`plan`, kubeconfigs) is tested elsewhere.
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
from tests.nightly.attacks.test_serve import ONE, REASONS, SEVERAL

from .bare_scheduler import BareScheduler
from .installed_pair import InstalledPair

#: Parallel attackers; for snapshots as many as once starved the probes.
_TIMES = {"snapshots": 20, "a byte now and then": ONE}
#: Attacks that are refused for the missing secret of the pair, before any other reason.
_WITHOUT_SECRET = {("hooks", "a filter behind a bind"): {"secret"}}
#: The limit of the 99th percentile as a multiple of the quiet minute, for gangs and ordinary pods.
SLOWER = 2.0
SLOWER_PODS = 1.5


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What an attack that writes objects needs to know; passed to its process as JSON."""

    kubeconfig: str
    #: The namespace of the tenant alone.
    namespace: str
    #: The selectors of the nodes for tenants, and of those for the arriving gangs.
    tenants: dict[str, str]
    gangs: dict[str, str]
    policy: str
    ops_url: str


@dataclass
class AttackedCluster:
    """The cluster under attack."""

    plane: ControlPlane
    pair: InstalledPair | BareScheduler
    context: WriterContext
    #: Cluster-scoped objects to delete afterwards.
    created: list[Object] = field(default_factory=list)
    #: Other actions to run afterwards.
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.plane.api

    def create(self, *things: Object) -> None:
        """Create cluster-scoped objects, to be deleted afterwards."""
        for thing in things:
            self.created.append(thing)
            self.api.create(thing)

    def clear(self) -> None:
        """Delete cluster-scoped objects, and run the other actions."""
        while self.afterwards:
            self.afterwards.pop()()
        for thing in reversed(self.created):
            with suppress(ApiError):
                self.api.delete(resource_of(thing), thing["metadata"]["name"])
        self.created.clear()


class Attack:
    """An attack; this base class does nothing: a quiet minute."""

    name = "quiet"
    #: Whether ordinary pods arrive meanwhile, instead of gangs.
    beside_pods = False
    #: The limit of the 99th percentile: a multiple of the quiet minute, or seconds.
    slower = SLOWER
    at_most_s: float | None = None
    #: Whether the attack slows kube-scheduler alone as much. No extender can shorten its loop, so
    #: the times are in the table, but not judged; `--without-us` measures kube-scheduler alone.
    slows_scheduler = False

    def prepare(self, stage: AttackedCluster) -> None:
        """Create what the attack needs."""

    @contextmanager
    def running(self, stage: AttackedCluster) -> Iterator[None]:
        """Repeat the attack during the block."""
        yield

    def observed(self, stage: AttackedCluster) -> str:
        """Return what its author could see."""
        return ""

    def missing_refusal(self, stage: AttackedCluster) -> str:
        """Return which refusal is missing: without it the attack did not work."""
        return ""


class OnPort(Attack):
    """An attack on a port, by a process of low priority."""

    def __init__(self, port: str, what: str, attack: attackers.Attack) -> None:
        self.name = f"{port}: {what}"
        self._port = port
        self._function = attack.__name__
        self.times = _TIMES.get(what, SEVERAL)
        self._bounds = _WITHOUT_SECRET.get((port, what), REASONS[port, what])
        self._before: dict[str, float] = {}

    @contextmanager
    def running(self, stage: AttackedCluster) -> Iterator[None]:
        self._before = stage.pair.refused()
        port = stage.pair.ports[self._port]
        command = [sys.executable, "-m", "tests.nightly.attacks", str(port), str(self.times)]
        attacker = subprocess.Popen(
            [*command, self._function], cwd=REPOSITORY, stdin=subprocess.PIPE
        )
        try:
            yield
            assert attacker.poll() is None, f"the attacker ended with {attacker.returncode}"
        finally:
            attacker.communicate(timeout=60)

    def observed(self, stage: AttackedCluster) -> str:
        grown = self._refused(stage)
        told = ", ".join(f"{reason} {count:,}" for reason, count in sorted(grown.items()))
        return told or "responses"

    def missing_refusal(self, stage: AttackedCluster) -> str:
        if not self._bounds or self._bounds & self._refused(stage).keys():
            return ""
        return f"no call was refused as {' or '.join(sorted(self._bounds))}"

    def _refused(self, stage: AttackedCluster) -> dict[str, int]:
        after = stage.pair.refused()
        return {
            reason.partition(": ")[2]: int(count - self._before.get(reason, 0))
            for reason, count in after.items()
            if reason.startswith(f"{self._port}:") and count > self._before.get(reason, 0)
        }


class WrittenObjects(Attack):
    """An attack by objects that a tenant or an administrator writes repeatedly.

    *step* is the name of the function of *module* that writes them once.
    """

    def __init__(
        self,
        name: str,
        step: str,
        *,
        every_s: float,
        prepare: Callable[[AttackedCluster], None] | None = None,
        module: str = "tests.nightly.cluster.tenants",
        beside_pods: bool = False,
        slows_scheduler: bool = False,
    ) -> None:
        self.name = name
        self.slows_scheduler = slows_scheduler
        self.beside_pods = beside_pods
        self.slower = SLOWER_PODS if beside_pods else SLOWER
        self._module = module
        self._step = step
        self._every_s = every_s
        self._prepare = prepare
        #: The refusals of the API server with their counts.
        self._refusals: dict[str, int] = {}

    def prepare(self, stage: AttackedCluster) -> None:
        if self._prepare:
            self._prepare(stage)

    @contextmanager
    def running(self, stage: AttackedCluster) -> Iterator[None]:
        command = [sys.executable, "-m", self._module, self._step, f"{self._every_s}"]
        writer = subprocess.Popen(
            [*command, json.dumps(asdict(stage.context))],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield
        finally:
            output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0, f"{self.name} ended with {writer.returncode}"
        self._refusals = json.loads(output)

    def observed(self, stage: AttackedCluster) -> str:
        words = [
            f"the API server: {message} ({count})" for message, count in self._refusals.items()
        ]
        events = Counter(
            event["reason"]
            for event in stage.api.list("events", stage.context.namespace)
            if event["source"].get("component") == "gang-extender"
        )
        words += [f"event {reason} ({count})" for reason, count in events.most_common(3)]
        found = Counter(f"{each['kind']} {each['reason']}" for each in stage.pair.findings())
        words += [f"finding {what} ({count})" for what, count in found.most_common(3)]
        return ", ".join(words) or "nothing"


def on_ports() -> list[Attack]:
    """Return every attack on a port."""
    return [
        *(OnPort("hooks", what, attack) for what, attack in attackers.ON_HOOKS.items()),
        *(OnPort("operations", what, attack) for what, attack in attackers.ON_OPERATIONS.items()),
    ]
