"""Every attack in a minute of its own, beside gangs that arrive all the time: what it did to them.

`python -m tests.nightly.cluster siege` lays it and prints a table; the tests repeat a few attacks
for some
seconds. What must hold: with every attack all gangs start, their 99th percentile stays within twice
that of the quiet minutes before and after, the memory of the extender within the limit of the
manifest, and nothing is restarted.

A machine that is not ours alone stands still now and then, in quiet minutes as in others. Of what
its host took from it the kernel keeps count, and only gangs are timed that came when it took
little (`calm`); with patience a minute goes on until those are enough. Where they never are, all
are timed, and the minute is judged by quiet ones in which much was taken too. One that was too
slow is repeated, after one more quiet minute: what an attack does to us it does every time. The
table has all of them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median_low

from extender.model.annotations import HOME_QUEUE
from tests import objects
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.cluster.steal_time import DISTURBED, RetryTime, StealMonitor, steal_time
from tests.cluster.waiting import wait_for

from .besiegers import SLOWER, Attack, Ground, Stage, on_ports
from .garrison import Garrison, memory_limit_mb
from .nobody import Nobody
from .overload import of_load
from .stream import PODS_PER_S, SIZE, Started, Stream
from .tenants import of_tenants

_POOL = "gang-extender.test/siege"
#: Where gangs arrive, where tenants wait, and a cluster around both.
_POOLS = {"gangs": 40, "tenants": 10, "others": 150}
#: The queue of tenants: who waits in that of the arriving gangs would be ahead of them, by right,
#: and they would be let in at the pace of plans.
_TENANTS = "tenants"
#: Attacks between two quiet minutes.
_BETWEEN_QUIET = 5
#: So often an attack is tried before it counts as one that makes gangs late.
TRIES = 4
#: So many of the gangs that come in a minute are timed, or it goes on.
_ENOUGH = 0.9
#: And at least for so much of a minute.
_AT_LEAST = 0.2
#: How long the cluster may take to be its old self before the next minute: kube-scheduler tries
#: each of ten thousand pods once.
_SETTLE_S = 600.0

#: In a minute of so long an attack strikes its bound: a call may take thirty seconds before it is
#: put out for being slow.
_STRIKES_S = 45.0
#: Within this a gang starts in a cluster that is its old self.
_AT_ONCE_S = 1.0

QUIET = Attack()
#: Attacks that have a name together: how much of everything is borne.
LOAD = "load"
_ALSO_LOAD = (
    "hooks: endless headers",
    "hooks: endless body",
    "hooks: a crowd",
    "operations: endless headers",
    "operations: a crowd",
    "operations: snapshots",
    "tenant: 10,000 gangs of one",
)


class QuietPods(Attack):
    """Nothing at all, beside ordinary pods."""

    name = "quiet, ordinary pods"
    beside_pods = True


QUIET_PODS = QuietPods()


def attacks() -> list[Attack]:
    """All there are, those first whose traces are gone at once."""
    return [*on_ports(), *of_tenants(), *of_load()]


def chosen(parts: Sequence[str]) -> list[Attack]:
    """Give the attacks whose names contain one of *parts*, or all of a group; all without any."""

    def is_meant(attack: Attack, part: str) -> bool:
        return part in attack.name or (part == LOAD and attack.name in _ALSO_LOAD)

    return [each for each in attacks() if not parts or any(is_meant(each, part) for part in parts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What one attack did."""

    attack: str
    gangs: Started
    #: Those of them that came in calm moments, if they were enough.
    timed: Started | None = None
    peak_mb: float
    #: How long kube-scheduler's one loop was busy by itself.
    scheduler_s: float = 0.0
    #: What the loop of the hooks took of a core, and all of the extender.
    cpu_s: tuple[float, float] = (0.0, 0.0)
    seconds: float = 60.0
    #: What part of all processors the host took meanwhile.
    stolen: float = 0.0
    restarts: Sequence[str] = field(default_factory=tuple)
    told: str = ""
    #: The bound that the attack should have struck and has not.
    lacks: str = ""
    #: What was asked of it.
    slower: float = SLOWER
    at_most_s: float | None = None

    @property
    def parts(self) -> tuple[float, ...]:
        """How much of a core each of these took."""
        return tuple(each / self.seconds for each in (self.scheduler_s, *self.cpu_s))

    def quantile(self, part: float) -> float:
        return (self.timed or self.gangs).quantile(part)

    @property
    def p99_s(self) -> float:
        return self.quantile(0.99)

    @property
    def is_quiet(self) -> bool:
        return self.attack in (QUIET.name, QUIET_PODS.name)

    @property
    def is_disturbed(self) -> bool:
        return self.timed is None and self.stolen > DISTURBED


def broken(minute: Minute, quiet_p99_s: float, limit_mb: float) -> list[str]:
    """The bounds that did not hold."""
    return [*_lost(minute, limit_mb), *late(minute, quiet_p99_s)]


def _lost(minute: Minute, limit_mb: float) -> list[str]:
    """The bounds that must hold in every minute."""
    said = list(minute.restarts)
    if minute.gangs.missing:
        said.append(f"{minute.gangs.missing} of {minute.gangs.arrived} gangs did not start")
    if minute.peak_mb > limit_mb:
        said.append(f"{minute.peak_mb:.0f} MB are over the limit of {limit_mb:.0f} MB")
    if minute.lacks and minute.seconds >= _STRIKES_S:
        said.append(minute.lacks)
    return said


def late(minute: Minute, quiet_p99_s: float) -> list[str]:
    """Say by how much gangs started too late, if they did."""
    p99_s = minute.p99_s
    if minute.at_most_s is not None:
        at_most_s = minute.at_most_s
        return [f"p99 {p99_s:.2f} s is over {at_most_s:g} s"] if p99_s > at_most_s else []
    if p99_s <= minute.slower * quiet_p99_s:
        return []
    return [f"p99 {p99_s:.2f} s is {p99_s / quiet_p99_s:.1f} times the quiet {quiet_p99_s:.2f} s"]


def quiet_p99_s(minutes: Sequence[Minute], like: Minute) -> float:
    """The 99th percentile in the middle one of the quiet minutes with which *like* is compared.

    They have gangs of the same size, and were disturbed if it was. Without any such: the best one.
    """
    quiet = [each for each in minutes if each.is_quiet and each.gangs.size == like.gangs.size]
    alike = [each.p99_s for each in quiet if each.is_disturbed == like.is_disturbed]
    return median_low(alike) if alike else min((each.p99_s for each in quiet), default=math.inf)


def is_worth_another(minutes: Sequence[Minute]) -> bool:
    """Ask whether the last one was too slow, and may have been so by chance."""
    last = minutes[-1]
    return not last.is_quiet and bool(late(last, quiet_p99_s(minutes, last)))


def complaints(minutes: Sequence[Minute]) -> list[str]:
    """What did not hold in all of them: of an attack that was repeated, what never did."""
    limit = memory_limit_mb()
    said = [f"{each.attack}: {why}" for each in minutes for why in _lost(each, limit)]
    for attack in dict.fromkeys(each.attack for each in minutes if not each.is_quiet):
        tries = [each for each in minutes if each.attack == attack]
        found = [late(each, quiet_p99_s(minutes, each)) for each in tries]
        if all(found):
            said += [f"{attack}: {why}" for why in found[-1]]
    return said


def table(minutes: Sequence[Minute]) -> str:
    """The figures as Markdown."""
    limit = memory_limit_mb()
    rows = [
        "| attack | pods started | gang p50 / p99 | to quiet"
        " | taken by the host"
        " | of a core: kube-scheduler's loop / that of our hooks / all of the extender"
        f" | peak of {limit:,.0f} MB | restarts | what its author was told |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in minutes:
        times = f"{each.quantile(0.5):.2f} / {each.p99_s:.2f} s"
        to_quiet = each.p99_s / quiet_p99_s(minutes, each)
        rows.append(
            f"| {each.attack} | {each.gangs.pods:,} of {each.gangs.arrived_pods:,} | {times}"
            f" | {to_quiet:.2f} | {each.stolen:.0%}"
            f" | {' / '.join(f'{part:.0%}' for part in each.parts)}"
            f" | {each.peak_mb:.0f} MB | {len(each.restarts)}"
            f" | {'; '.join(filter(None, (each.told, each.lacks)))} |"
        )
    return "\n".join(rows)


class Siege:
    """A cluster with the pair of the overlay, and minutes on it."""

    def __init__(
        self, plane: ControlPlane, garrison: Garrison | Nobody, patience: RetryTime | None = None
    ) -> None:
        self.plane = plane
        self.garrison = garrison
        self._patience = patience or RetryTime(0.0)
        self._numbers = count()

    def tried(self, attack: Attack, seconds: float, minutes: list[Minute]) -> Iterator[Minute]:
        """Add minutes of *attack*, and more, after quiet ones, as long as they may be bad luck."""
        left, wanted = TRIES, [attack]
        while left:
            for each in wanted:
                minutes.append(self.minute(each, seconds))
                yield minutes[-1]
            if not is_worth_another(minutes):
                return
            wanted = [quiet_like(attack), attack]
            if not (minutes[-1].is_disturbed and self._patience.spend(minutes[-1].seconds)):
                left -= 1

    def minute(self, attack: Attack, seconds: float) -> Minute:
        """Let gangs arrive for so long under *attack*."""
        with ExitStack() as made:
            theirs = made.enter_context(self._namespace("tenant", attack, {HOME_QUEUE: _TENANTS}))
            stage = Stage(self.plane, self.garrison, self._ground(theirs))
            made.callback(stage.clear)
            attack.prepare(stage)
            self.settle(attack.at_most_s or _AT_ONCE_S)
            before = len(self.garrison.restarts)
            self.garrison.forget_peak()
            own, loop, whole = self.garrison.scheduler_s(), *self.garrison.cpu_s()
            began, (stolen, passed) = time.monotonic(), steal_time()
            with attack.going_on(stage):
                gangs, timed = self._arriving(attack, seconds)
            took, (loop_after, whole_after) = time.monotonic() - began, self.garrison.cpu_s()
            stolen_after, passed_after = steal_time()
            return Minute(
                attack=attack.name,
                gangs=gangs,
                timed=timed,
                peak_mb=self.garrison.peak_mb,
                scheduler_s=self.garrison.scheduler_s() - own,
                cpu_s=(loop_after - loop, whole_after - whole),
                seconds=took,
                stolen=(stolen_after - stolen) / (passed_after - passed),
                restarts=tuple(self.garrison.restarts[before:]),
                told=attack.told(stage),
                lacks=attack.lacks(stage),
                slower=attack.slower,
                at_most_s=attack.at_most_s,
            )

    def _arriving(self, attack: Attack, seconds: float) -> tuple[Started, Started | None]:
        """Let gangs arrive until enough of them came in calm moments; give all, and those."""
        size = 1 if attack.beside_pods else SIZE
        enough = _ENOUGH * seconds * PODS_PER_S / size

        def more_s(so_far: Started) -> float:
            timed = so_far.those(calm.was_calm).arrived
            if timed >= enough:
                return 0.0
            wanted_s = seconds * max(_AT_LEAST, 1 - _ENOUGH * timed / enough)
            return wanted_s if self._patience.spend(wanted_s) else 0.0

        with StealMonitor() as calm, self._namespace("gangs", attack) as ours:
            gangs = Stream(self.plane, ours, _of("gangs"), size=size).run(seconds, more_s)
        timed = gangs.those(calm.was_calm)
        return gangs, timed if timed.arrived >= enough else None

    def _ground(self, namespace: str) -> Ground:
        return Ground(
            str(self.plane.kubeconfig()),
            namespace,
            _of("tenants"),
            _of("gangs"),
            str(self.garrison.policy),
            self.garrison.ops_url,
        )

    def settle(self, at_once_s: float = _AT_ONCE_S) -> None:
        """Wait until a gang starts at once again: what was prepared has been looked at."""

        def starts_at_once() -> bool:
            with self._namespace("settle") as where:
                tried = Stream(self.plane, where, _of("gangs")).run(1.0)
                return not tried.missing and tried.quantile(1.0) < at_once_s

        with suppress(AssertionError):
            wait_for(starts_at_once, _SETTLE_S, "the cluster has settled", every_s=1.0)

    @contextmanager
    def _namespace(
        self, kind: str, attack: Attack = QUIET, annotations: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        words = re.sub("[^a-z0-9]+", "-", f"{kind}-{attack.name}")
        name = f"{words[:50]}-{next(self._numbers)}"
        self.plane.api.create(objects.namespace(name, annotations))
        try:
            yield name
        finally:
            _empty(self.plane.api, name)


def _of(pool: str) -> dict[str, str]:
    return {_POOL: pool}


def _empty(api: Api, namespace: str) -> None:
    """Let everything in a namespace go; of very much the API server takes its time."""

    def is_empty() -> bool:
        resources = ("pods", objects.POD_GROUPS, "poddisruptionbudgets.policy/v1", "events")
        for resource in resources:
            if api.list(resource, namespace):
                with suppress(ApiError):
                    api.delete_all(resource, namespace, grace_seconds=0)
        return not any(api.list(resource, namespace) for resource in resources[:-1])

    wait_for(is_empty, _SETTLE_S, f"{namespace} is empty", every_s=0.5)
    api.delete("namespaces", namespace)
    released = {**objects.namespace(namespace), "spec": {"finalizers": []}}
    with suppress(ApiError):
        api.request("PUT", f"/api/v1/namespaces/{namespace}/finalize", released)


@contextmanager
def besieged(
    folder: Path,
    pools: Mapping[str, int] = _POOLS,
    *,
    without_us: bool = False,
    admission: bool = True,
    patience_s: float = 0.0,
) -> Iterator[Siege]:
    """A control plane of its own, with so many nodes of each pool, and the pair.

    Or, *without_us*, a kube-scheduler alone, to which gangs are so many pods: what an attack does
    to it there it does to the cluster, not to us. The policies of manifests/admission are there if
    we are, unless said otherwise.
    """
    with ControlPlane(folder, audit=False) as plane:
        plane.install()
        names = []
        for pool, nodes in pools.items():
            names += [f"{pool}-{index}" for index in range(nodes)]
            plane.api.create(
                *(
                    objects.node(name, cpu="16", memory="64Gi", labels=_of(pool))
                    for name in names[len(names) - nodes :]
                )
            )
        plane.wait_until_nodes_are_ready(names, 120)
        plane.api.create(objects.queue(_TENANTS))
        if admission and not without_us:
            admit(plane)
        with Nobody(plane) if without_us else Garrison(plane) as garrison:
            yield Siege(plane, garrison, RetryTime(patience_s))


def admit(plane: ControlPlane) -> None:
    """Apply the policies of manifests/admission, and wait until pods are judged by them."""
    plane.kubectl("apply", "-k", MANIFESTS / "admission")
    large = objects.pod("large", "default", labels={f"l{number}": "" for number in range(300)})

    def is_refused() -> bool:
        try:
            plane.api.create(large)
        except ApiError:
            return True
        plane.api.delete("pods", "large", "default", grace_seconds=0)
        return False

    wait_for(is_refused, 30, "large pods are refused", every_s=0.2)


def quiet_like(attack: Attack) -> Attack:
    """Give the quiet minute that *attack* is compared with."""
    return QUIET_PODS if attack.beside_pods else QUIET


def in_order(wanted: Sequence[Attack]) -> Iterator[Attack]:
    """A quiet minute first, last, and after every few: a machine has moods of its own.

    Beside whom ordinary pods arrive has a quiet minute of such pods before it, and all together one
    at the end.
    """
    for number, attack in enumerate(wanted):
        if number % _BETWEEN_QUIET == 0:
            yield QUIET
        if attack.beside_pods:
            yield QUIET_PODS
        yield attack
    if any(attack.beside_pods for attack in wanted):
        yield QUIET_PODS
    yield QUIET
