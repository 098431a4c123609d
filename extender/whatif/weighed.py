"""Two plans of one moment: without and with what is supposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.cache.assignment import QueuePolicy
from extender.model.snapshot import Snapshot
from extender.plan.planner import make_plan
from extender.plan.policy.options import Policy
from extender.recording.differences import Differing
from extender.settings import Settings, label_pairs
from extender.whatif.compared import PlannedMoment, compared
from extender.whatif.objects import Objects, Thing, decoded
from extender.whatif.supposed import Supposed, identity


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

    def read(self, things: Sequence[Thing]) -> Objects:
        """Read objects as the cluster would be told of them."""
        return decoded(things, self.schedulers, self.node_labels, self.exempt)

    def seen(self, found: Objects, now: float | None) -> Snapshot:
        """Give the cluster that they are, by default when the newest was made."""
        return found.snapshot(now, self.queues, budgets_are_gangs=self.budgets_are_gangs)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The cluster as it is and as supposed; the same where nothing is supposed."""

    found: Objects
    before: PlannedMoment
    after: PlannedMoment
    #: None where nothing is supposed.
    differing: list[Differing] | None = None


def weighed(
    there: Sequence[Thing],
    new: Sequence[Thing],
    supposed: Supposed,
    reading: Reading,
    policy: Policy,
    now: float | None = None,
) -> Weighed:
    """Plan what is *there* once, and again with what is *new* or *supposed*, if anything is."""
    found = reading.read(there)
    snapshot = reading.seen(found, now)
    before = PlannedMoment(snapshot, make_plan(snapshot, policy))
    if not (new or any(supposed)):
        return Weighed(found, before, before)
    replaced = {identity(each.written) for each in new}
    kept = [each for each in there if identity(each.written) not in replaced]
    changed = supposed.applied([*kept, *new], snapshot, reading.schedulers)
    found = reading.read(changed)
    seen = reading.seen(found, snapshot.now)
    after = PlannedMoment(seen, make_plan(seen, policy))
    return Weighed(found, before, after, [*compared(before, after)])
