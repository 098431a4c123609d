"""Runs each attack for a minute while gangs arrive, and measures how long they take to start.

`python -m tests.nightly.cluster siege` runs all and prints a table; the tests run a few attacks for
some seconds. Under every attack all gangs must start, their 99th percentile must be within twice
that of quiet minutes, the memory of the extender within the limit of the manifest, and no container
may be restarted. Some attacks slow kube-scheduler itself, also without the extender: of these only
memory and restarts are judged.

The host of a shared machine takes processors now and then. Only gangs that arrived while it took
little are timed (`steal_time`); with --patience a minute is extended until they are enough.
Otherwise all are timed, and the minute is compared with quiet ones that were disturbed too. An
attack that was too slow is repeated after another quiet minute, since its effect must be
reproducible. The table has all of them.
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

from .bare_scheduler import BareScheduler
from .installed_pair import InstalledPair, memory_limit_mb
from .overload import of_load
from .siege_attacks import SLOWER, Attack, AttackedCluster, WriterContext, on_ports
from .stream import PODS_PER_S, SIZE, Started, Stream
from .tenants import of_tenants

_POOL = "gang-extender.test/siege"
#: The nodes of arriving gangs, of tenants, and others.
_POOLS = {"gangs": 40, "tenants": 10, "others": 150}
#: The queue of tenants. In the queue of the arriving gangs their pods would be ahead of the gangs,
#: which would then start only by plans.
_TENANTS = "tenants"
#: Attacks between two quiet minutes.
_BETWEEN_QUIET = 5
#: Tries before an attack counts as too slow.
TRIES = 4
#: The share of a minute's gangs that must be timed.
_ENOUGH = 0.9
#: The minimum extension, as a share of the minute.
_EXTENSION = 0.2
#: Timeout until the cluster is idle again before the next minute: kube-scheduler tries each of ten
#: thousand pods once.
_SETTLE_S = 600.0

#: A minute of this length includes the refusal of an attack: a slow call times out after thirty
#: seconds.
_REFUSED_S = 45.0
#: A gang in an idle cluster starts within this time.
_AT_ONCE_S = 1.0

QUIET = Attack()
#: The name of a group of attacks.
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
    """A quiet minute with ordinary pods."""

    name = "quiet, ordinary pods"
    beside_pods = True


QUIET_PODS = QuietPods()


def attacks() -> list[Attack]:
    """Return all attacks; those without lasting effects first."""
    return [*on_ports(), *of_tenants(), *of_load()]


def chosen(parts: Sequence[str]) -> list[Attack]:
    """Return the attacks whose names contain one of *parts*, or that are in the group."""

    def is_meant(attack: Attack, part: str) -> bool:
        return part in attack.name or (part == LOAD and attack.name in _ALSO_LOAD)

    return [each for each in attacks() if not parts or any(is_meant(each, part) for part in parts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """The measurements of one attack."""

    attack: str
    gangs: Started
    #: The gangs that arrived while the host took little, if they were enough.
    timed: Started | None = None
    peak_mb: float
    #: How long kube-scheduler's loop was busy, without the extender.
    scheduler_s: float = 0.0
    #: CPU seconds of the hook loop, and of the whole extender.
    cpu_s: tuple[float, float] = (0.0, 0.0)
    seconds: float = 60.0
    #: The share of all processors that the host took.
    stolen: float = 0.0
    restarts: Sequence[str] = field(default_factory=tuple)
    observed: str = ""
    #: The missing refusal of the attack.
    missing_refusal: str = ""
    #: The limits.
    slower: float = SLOWER
    at_most_s: float | None = None
    slows_scheduler: bool = False

    @property
    def parts(self) -> tuple[float, ...]:
        """Return these as shares of a core."""
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
    """Return the limits that were exceeded."""
    return [*_failures(minute, limit_mb), *late(minute, quiet_p99_s)]


def _failures(minute: Minute, limit_mb: float) -> list[str]:
    """Return the failures that count in every minute."""
    found = list(minute.restarts)
    if minute.gangs.missing and not minute.slows_scheduler:
        found.append(f"{minute.gangs.missing} of {minute.gangs.created} gangs did not start")
    if minute.peak_mb > limit_mb:
        found.append(f"{minute.peak_mb:.0f} MB are over the limit of {limit_mb:.0f} MB")
    if minute.missing_refusal and minute.seconds >= _REFUSED_S:
        found.append(minute.missing_refusal)
    return found


def late(minute: Minute, quiet_p99_s: float) -> list[str]:
    """Return by how much gangs started too late, if they did."""
    p99_s = minute.p99_s
    if minute.slows_scheduler:
        return []
    if minute.at_most_s is not None:
        at_most_s = minute.at_most_s
        return [f"p99 {p99_s:.2f} s is over {at_most_s:g} s"] if p99_s > at_most_s else []
    if p99_s <= minute.slower * quiet_p99_s:
        return []
    return [f"p99 {p99_s:.2f} s is {p99_s / quiet_p99_s:.1f} times the quiet {quiet_p99_s:.2f} s"]


def quiet_p99_s(minutes: Sequence[Minute], like: Minute) -> float:
    """Return the median of the 99th percentiles of the quiet minutes to compare *like* with.

    They have gangs of the same size, and were disturbed if it was. Without any such, the best.
    """
    quiet = [each for each in minutes if each.is_quiet and each.gangs.size == like.gangs.size]
    alike = [each.p99_s for each in quiet if each.is_disturbed == like.is_disturbed]
    return median_low(alike) if alike else min((each.p99_s for each in quiet), default=math.inf)


def is_worth_another(minutes: Sequence[Minute]) -> bool:
    """Return whether the last minute was too slow, which may be chance."""
    last = minutes[-1]
    return not last.is_quiet and bool(late(last, quiet_p99_s(minutes, last)))


def complaints(minutes: Sequence[Minute]) -> list[str]:
    """Return all failures; an attack is too slow if it was in each of its minutes."""
    limit = memory_limit_mb()
    result = [f"{each.attack}: {why}" for each in minutes for why in _failures(each, limit)]
    for attack in dict.fromkeys(each.attack for each in minutes if not each.is_quiet):
        tries = [each for each in minutes if each.attack == attack]
        found = [late(each, quiet_p99_s(minutes, each)) for each in tries]
        if all(found):
            result += [f"{attack}: {why}" for why in found[-1]]
    return result


def table(minutes: Sequence[Minute]) -> str:
    """Return the figures as a Markdown table."""
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
        to_quiet = f"{each.p99_s / quiet_p99_s(minutes, each):.2f}"
        if each.slows_scheduler:
            to_quiet += ", not judged"
        rows.append(
            f"| {each.attack} | {each.gangs.pods:,} of {each.gangs.created_pods:,} | {times}"
            f" | {to_quiet} | {each.stolen:.0%}"
            f" | {' / '.join(f'{part:.0%}' for part in each.parts)}"
            f" | {each.peak_mb:.0f} MB | {len(each.restarts)}"
            f" | {'; '.join(filter(None, (each.observed, each.missing_refusal)))} |"
        )
    return "\n".join(rows)


class Siege:
    """A cluster with the pair of the overlay, on which attacks run."""

    def __init__(
        self,
        plane: ControlPlane,
        pair: InstalledPair | BareScheduler,
        retry_time: RetryTime | None = None,
    ) -> None:
        self.plane = plane
        self.pair = pair
        self._retry_time = retry_time or RetryTime(0.0)
        self._numbers = count()

    def tried(self, attack: Attack, seconds: float, minutes: list[Minute]) -> Iterator[Minute]:
        """Run *attack*, and repeat it after a quiet minute while it is too slow, up to `TRIES`."""
        left, wanted = TRIES, [attack]
        while left:
            for each in wanted:
                minutes.append(self.minute(each, seconds))
                yield minutes[-1]
            if not is_worth_another(minutes):
                return
            wanted = [quiet_like(attack), attack]
            if not (minutes[-1].is_disturbed and self._retry_time.spend(minutes[-1].seconds)):
                left -= 1

    def minute(self, attack: Attack, seconds: float) -> Minute:
        """Run *attack* while gangs arrive, and return the measurements."""
        with ExitStack() as made:
            namespace = made.enter_context(
                self._namespace("tenant", attack, {HOME_QUEUE: _TENANTS})
            )
            stage = AttackedCluster(self.plane, self.pair, self._ground(namespace))
            made.callback(stage.clear)
            attack.prepare(stage)
            self.settle(attack.at_most_s or _AT_ONCE_S)
            before = len(self.pair.restarts)
            self.pair.reset_peak()
            own, loop, whole = self.pair.scheduler_s(), *self.pair.cpu_s()
            began, (stolen, passed) = time.monotonic(), steal_time()
            with attack.running(stage):
                gangs, timed = self._arriving(attack, seconds)
            took, (loop_after, whole_after) = time.monotonic() - began, self.pair.cpu_s()
            stolen_after, passed_after = steal_time()
            return Minute(
                attack=attack.name,
                gangs=gangs,
                timed=timed,
                peak_mb=self.pair.peak_mb,
                scheduler_s=self.pair.scheduler_s() - own,
                cpu_s=(loop_after - loop, whole_after - whole),
                seconds=took,
                stolen=(stolen_after - stolen) / (passed_after - passed),
                restarts=tuple(self.pair.restarts[before:]),
                observed=attack.observed(stage),
                missing_refusal=attack.missing_refusal(stage),
                slower=attack.slower,
                at_most_s=attack.at_most_s,
                slows_scheduler=attack.slows_scheduler,
            )

    def _arriving(self, attack: Attack, seconds: float) -> tuple[Started, Started | None]:
        """Let gangs arrive until enough were undisturbed; return all, and the undisturbed ones."""
        size = 1 if attack.beside_pods else SIZE
        enough = _ENOUGH * seconds * PODS_PER_S / size

        def more_s(so_far: Started) -> float:
            timed = so_far.only(calm.was_calm).created
            if timed >= enough:
                return 0.0
            wanted_s = seconds * max(_EXTENSION, 1 - _ENOUGH * timed / enough)
            return wanted_s if self._retry_time.spend(wanted_s) else 0.0

        with StealMonitor() as calm, self._namespace("gangs", attack) as ours:
            gangs = Stream(self.plane, ours, _of("gangs"), size=size).run(seconds, more_s)
        timed = gangs.only(calm.was_calm)
        return gangs, timed if timed.created >= enough else None

    def _ground(self, namespace: str) -> WriterContext:
        return WriterContext(
            str(self.plane.kubeconfig()),
            namespace,
            _of("tenants"),
            _of("gangs"),
            str(self.pair.policy),
            self.pair.ops_url,
        )

    def settle(self, at_once_s: float = _AT_ONCE_S) -> None:
        """Wait until a gang starts at once: the prepared objects have been processed."""

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
    """Delete everything in a namespace; many objects take several requests."""

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
def siege_on(
    folder: Path,
    pools: Mapping[str, int] = _POOLS,
    *,
    without_us: bool = False,
    admission: bool = True,
    patience_s: float = 0.0,
) -> Iterator[Siege]:
    """Run a control plane with the nodes of *pools* and the pair.

    *without_us* runs kube-scheduler without the extender, which schedules gangs as single pods:
    the effects of an attack are then those of the cluster. The policies of manifests/admission are
    applied with the pair, if *admission*.
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
            apply_admission(plane)
        with BareScheduler(plane) if without_us else InstalledPair(plane) as pair:
            yield Siege(plane, pair, RetryTime(patience_s))


def apply_admission(plane: ControlPlane) -> None:
    """Apply the policies of manifests/admission, and wait until they apply to pods."""
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
    """Return the quiet minute that *attack* is compared with."""
    return QUIET_PODS if attack.beside_pods else QUIET


def in_order(wanted: Sequence[Attack]) -> Iterator[Attack]:
    """Yield quiet minutes first, last and between the attacks, since the machine varies.

    An attack with ordinary pods has a quiet minute of such pods before it, and one at the end.
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
