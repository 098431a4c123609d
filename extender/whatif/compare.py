"""Two plans of one moment: without and with what is supposed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.cache.queue_policy import QueuePolicy
from extender.model.gang import GangKey
from extender.model.resources import CPU, MEMORY, Resources, write_amount
from extender.model.snapshot import Snapshot
from extender.planner.explain.explain import explain
from extender.planner.plan import Eviction, GangStatus, Plan, Verdict
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.replay.compare import Difference
from extender.settings import Settings, label_pairs
from extender.whatif.hypothesis import Hypothesis, identity
from extender.whatif.manifests import Manifest, Objects, decode
from extender.whatif.workloads import MARK

_NAMED = 5
_STARTS = {
    GangStatus.ADMITTED: "would start now",
    GangStatus.RUNNING: "would start now",
    GangStatus.WAITING: "would wait",
    GangStatus.INVALID: "could not start",
    GangStatus.FINISHED: "would be over",
}


@dataclass(frozen=True, slots=True)
class PlannedSnapshot:
    """A cluster and what is planned for it."""

    snapshot: Snapshot
    plan: Plan


class GangOutcome(NamedTuple):
    """What would become of a gang that somebody asks about."""

    gang: GangKey
    verdict: Verdict
    #: Whether it would start, in words.
    starts: str
    #: Who is ahead of it, who would leave for it, what would let it start: titles and lines.
    lists: list[tuple[str, list[str]]]


def submitted_gangs(after: Snapshot) -> list[GangKey]:
    """Name the gangs that are there only because somebody asks about them."""
    return [
        key
        for key, gang in after.gangs.items()
        if gang.group.uid.startswith(MARK) or any(pod.uid.startswith(MARK) for pod in gang.pods)
    ]


def plan_changes(before: PlannedSnapshot, after: PlannedSnapshot) -> Iterator[Difference]:
    """Say what changes for everybody but those who are asked about, the worst first."""
    yield from _evictions(before.plan, after.plan)
    asked = {*submitted_gangs(after.snapshot)}
    then, now = before.plan.verdicts, after.plan.verdicts
    for key in sorted({*then, *now} - asked):
        was, comes = then.get(key), now.get(key)
        if was is None or comes is None or _decision(was) != _decision(comes):
            yield Difference(f"gang {key}", _verdict_text(was), _verdict_text(comes))
    for name in sorted({*before.plan.queues, *after.plan.queues}):
        had, has = before.plan.queues.get(name), after.plan.queues.get(name)
        old = f"deserves {_amounts(had.deserved)}" if had else "not there"
        new = f"deserves {_amounts(has.deserved)}" if has else "not there"
        if old != new:
            yield Difference(f"queue {name}", old, new)


def _evictions(before: Plan, after: Plan) -> Iterator[Difference]:
    was = {each.uid: each for each in before.evictions}
    comes = {each.uid: each for each in after.evictions}
    for uid in sorted({*was, *comes}, key=lambda each: (each not in comes, each)):
        either = comes.get(uid) or was[uid]
        old, new = _fate(was.get(uid)), _fate(comes.get(uid))
        if old != new:
            yield Difference(f"pod {either.namespace}/{either.name}", old, new)


def _fate(order: Eviction | None) -> str:
    return f"evicted for {order.beneficiary} ({order.action})" if order else "stays"


def _decision(verdict: Verdict) -> tuple[object, ...]:
    return verdict.standing, verdict.reason, verdict.queue


def _verdict_text(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not there"
    return f"{verdict.standing.value}: {verdict.reason.value}"


def _amounts(amounts: Resources) -> str:
    first = [name for name in (CPU, MEMORY) if amounts.amount(name)]
    others = sorted(name for name, each in amounts.items() if each and name not in (CPU, MEMORY))
    said = [f"{write_amount(name, amounts[name])} {name}" for name in (*first, *others)]
    return ", ".join(said) or "nothing"


def gang_outcome(after: PlannedSnapshot, key: GangKey, policy: Policy) -> GangOutcome | None:
    """Say what would become of a gang; None when the plan knows no such gang."""
    told = explain(after.snapshot, after.plan, policy, key)
    if told is None:
        return None
    lists = (
        ("ahead of it", [f"{each.gang} ({each.queue}): {each.why}" for each in told.ahead]),
        (
            "asked to leave for it",
            [f"{each.namespace}/{each.name} on {each.node}" for each in told.victims],
        ),
        ("would start with", [*told.remedies]),
    )
    named = [(title, _cut(lines)) for title, lines in lists if lines]
    return GangOutcome(key, told.verdict, _STARTS[told.verdict.standing], named)


def _cut(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
    return [*lines[:_NAMED], *more]


def by_node(names: Iterable[str]) -> str:
    """Count by node: `n1 x4, n2`; a long list is cut."""
    counts = sorted(Counter(names).items())
    said = [f"{name} x{number}" if number > 1 else name for name, number in counts]
    return ", ".join(said[:6]) + (f" and {len(said) - 6} more nodes" if len(said) > 6 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How objects are read as a cluster: whose pods are planned, which nodes are ours."""

    schedulers: frozenset[str]
    node_labels: frozenset[tuple[str, str]] = frozenset()
    exempt: frozenset[str] = frozenset()
    queues: QueuePolicy = field(default_factory=QueuePolicy)
    budgets_are_gangs: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Reading:
        """Read as an extender does that was started so."""
        return cls(
            schedulers=frozenset(settings.scheduler_name),
            node_labels=label_pairs(settings.node_selector),
            exempt=frozenset(settings.exempt_namespace),
            queues=QueuePolicy.of(settings),
            budgets_are_gangs=settings.budgets_are_gangs,
        )

    def read(self, things: Sequence[Manifest]) -> Objects:
        """Read objects as the cluster would be told of them."""
        return decode(things, self.schedulers, self.node_labels, self.exempt)

    def snapshot(self, found: Objects, now: float | None) -> Snapshot:
        """Give the cluster that they are, by default when the newest was made."""
        return found.snapshot(now, self.queues, budgets_are_gangs=self.budgets_are_gangs)


@dataclass(frozen=True, slots=True)
class ComparedPlans:
    """The cluster as it is and as supposed; the same where nothing is supposed."""

    found: Objects
    before: PlannedSnapshot
    after: PlannedSnapshot
    #: None where nothing is supposed.
    differences: list[Difference] | None = None


def compare_plans(
    there: Sequence[Manifest],
    new: Sequence[Manifest],
    supposed: Hypothesis,
    reading: Reading,
    policy: Policy,
    now: float | None = None,
) -> ComparedPlans:
    """Plan what is *there* once, and again with what is *new* or *supposed*, if anything is."""
    found = reading.read(there)
    snapshot = reading.snapshot(found, now)
    before = PlannedSnapshot(snapshot, make_plan(snapshot, policy))
    if not (new or any(supposed)):
        return ComparedPlans(found, before, before)
    replaced = {identity(each.content) for each in new}
    kept = [each for each in there if identity(each.content) not in replaced]
    changed = supposed.applied([*kept, *new], snapshot, reading.schedulers)
    found = reading.read(changed)
    seen = reading.snapshot(found, snapshot.now)
    after = PlannedSnapshot(seen, make_plan(seen, policy))
    return ComparedPlans(found, before, after, [*plan_changes(before, after)])
