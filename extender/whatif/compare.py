"""Two plans of one snapshot: without and with hypothetical changes."""

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
    """A snapshot and its plan."""

    snapshot: Snapshot
    plan: Plan


class GangOutcome(NamedTuple):
    """The outcome of a gang that was submitted hypothetically."""

    gang: GangKey
    verdict: Verdict
    #: Whether it would start, as a phrase.
    starts: str
    #: The gangs ahead of it, its victims, and what would let it start: titles and lines.
    lists: list[tuple[str, list[str]]]


def submitted_gangs(after: Snapshot) -> list[GangKey]:
    """Return the gangs that exist only in the hypothesis."""
    return [
        key
        for key, gang in after.gangs.items()
        if gang.group.uid.startswith(MARK) or any(pod.uid.startswith(MARK) for pod in gang.pods)
    ]


def plan_changes(before: PlannedSnapshot, after: PlannedSnapshot) -> Iterator[Difference]:
    """Yield the changes for all existing gangs, evictions first."""
    yield from _evictions(before.plan, after.plan)
    submitted = {*submitted_gangs(after.snapshot)}
    old_verdicts, new_verdicts = before.plan.verdicts, after.plan.verdicts
    for key in sorted({*old_verdicts, *new_verdicts} - submitted):
        was, now = old_verdicts.get(key), new_verdicts.get(key)
        if was is None or now is None or _decision(was) != _decision(now):
            yield Difference(f"gang {key}", _verdict_text(was), _verdict_text(now))
    for name in sorted({*before.plan.queues, *after.plan.queues}):
        was_queue, now_queue = before.plan.queues.get(name), after.plan.queues.get(name)
        old = f"deserves {_amounts(was_queue.deserved)}" if was_queue else "not there"
        new = f"deserves {_amounts(now_queue.deserved)}" if now_queue else "not there"
        if old != new:
            yield Difference(f"queue {name}", old, new)


def _evictions(before: Plan, after: Plan) -> Iterator[Difference]:
    was = {each.uid: each for each in before.evictions}
    now = {each.uid: each for each in after.evictions}
    for uid in sorted({*was, *now}, key=lambda each: (each not in now, each)):
        either = now.get(uid) or was[uid]
        old, new = _eviction(was.get(uid)), _eviction(now.get(uid))
        if old != new:
            yield Difference(f"pod {either.namespace}/{either.name}", old, new)


def _eviction(order: Eviction | None) -> str:
    return f"evicted for {order.beneficiary} ({order.action})" if order else "stays"


def _decision(verdict: Verdict) -> tuple[object, ...]:
    return verdict.status, verdict.reason, verdict.queue


def _verdict_text(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not there"
    return f"{verdict.status.value}: {verdict.reason.value}"


def _amounts(amounts: Resources) -> str:
    first = [name for name in (CPU, MEMORY) if amounts.amount(name)]
    others = sorted(name for name, each in amounts.items() if each and name not in (CPU, MEMORY))
    texts = [f"{write_amount(name, amounts[name])} {name}" for name in (*first, *others)]
    return ", ".join(texts) or "nothing"


def gang_outcome(after: PlannedSnapshot, key: GangKey, policy: Policy) -> GangOutcome | None:
    """Return the outcome of a gang; None when the plan has no such gang."""
    explained = explain(after.snapshot, after.plan, policy, key)
    if explained is None:
        return None
    lists = (
        ("ahead of it", [f"{each.gang} ({each.queue}): {each.why}" for each in explained.ahead]),
        (
            "would be evicted for it",
            [f"{each.namespace}/{each.name} on {each.node}" for each in explained.victims],
        ),
        ("would start with", [*explained.remedies]),
    )
    named = [(title, _cut(lines)) for title, lines in lists if lines]
    return GangOutcome(key, explained.verdict, _STARTS[explained.verdict.status], named)


def _cut(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
    return [*lines[:_NAMED], *more]


def by_node(names: Iterable[str]) -> str:
    """Return the counts by node: `n1 x4, n2`; a long list is cut."""
    counts = sorted(Counter(names).items())
    texts = [f"{name} x{number}" if number > 1 else name for name, number in counts]
    return ", ".join(texts[:6]) + (f" and {len(texts) - 6} more nodes" if len(texts) > 6 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How manifests become a snapshot: the settings that select pods and nodes."""

    schedulers: frozenset[str]
    node_labels: frozenset[tuple[str, str]] = frozenset()
    exempt: frozenset[str] = frozenset()
    queues: QueuePolicy = field(default_factory=QueuePolicy)
    budgets_are_gangs: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Reading:
        """Read as an extender with *settings* does."""
        return cls(
            schedulers=frozenset(settings.scheduler_name),
            node_labels=label_pairs(settings.node_selector),
            exempt=frozenset(settings.exempt_namespace),
            queues=QueuePolicy.of(settings),
            budgets_are_gangs=settings.budgets_are_gangs,
        )

    def read(self, manifests: Sequence[Manifest]) -> Objects:
        """Decode manifests as watches do."""
        return decode(manifests, self.schedulers, self.node_labels, self.exempt)

    def snapshot(self, found: Objects, now: float | None) -> Snapshot:
        """Return the snapshot of the objects, by default at the creation of the newest."""
        return found.snapshot(now, self.queues, budgets_are_gangs=self.budgets_are_gangs)


@dataclass(frozen=True, slots=True)
class ComparedPlans:
    """The plan as it is and with the changes; the same without changes."""

    found: Objects
    before: PlannedSnapshot
    after: PlannedSnapshot
    #: None without changes.
    differences: list[Difference] | None = None


def compare_plans(
    present: Sequence[Manifest],
    new: Sequence[Manifest],
    hypothesis: Hypothesis,
    reading: Reading,
    policy: Policy,
    now: float | None = None,
) -> ComparedPlans:
    """Plan the *present* objects, and again with *new* ones and *hypothesis*, if there are any."""
    found = reading.read(present)
    snapshot = reading.snapshot(found, now)
    before = PlannedSnapshot(snapshot, make_plan(snapshot, policy))
    if not (new or any(hypothesis)):
        return ComparedPlans(found, before, before)
    replaced = {identity(each.content) for each in new}
    kept = [each for each in present if identity(each.content) not in replaced]
    changed = hypothesis.applied([*kept, *new], snapshot, reading.schedulers)
    found = reading.read(changed)
    changed_snapshot = reading.snapshot(found, snapshot.now)
    after = PlannedSnapshot(changed_snapshot, make_plan(changed_snapshot, policy))
    return ComparedPlans(found, before, after, [*plan_changes(before, after)])
