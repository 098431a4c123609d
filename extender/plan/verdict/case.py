"""A gang that waits, and something that could help it: what ideas are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

from extender.model.gang import Gang, GangKey
from extender.model.pod import PodUid, Shape
from extender.model.queue import Queue
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.plan.census import Census
from extender.plan.decision import Plan, Verdict
from extender.plan.demand import needed_pods
from extender.plan.policy.options import Policy
from extender.plan.session import Session

#: The kind of ideas that are tried only where nothing else helps.
LAST = "last"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that somebody could change."""

    words: str
    apply: Callable[[Snapshot], Snapshot]
    #: Of those alike, which differ in how much, only the first that helps is said.
    kind: str = ""


@dataclass(frozen=True)
class Case:
    """A gang that waits, and what was planned."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy
    key: GangKey

    @property
    def gang(self) -> Gang:
        """The gang."""
        return self.snapshot.gangs[self.key]

    @property
    def verdict(self) -> Verdict:
        """What the plan says of it."""
        return self.plan.verdicts[self.key]

    @property
    def queue(self) -> Queue:
        """Its queue, as if written where nobody wrote it."""
        return self.snapshot.queues.get(self.gang.queue) or Queue(name=self.gang.queue)

    @cached_property
    def wanted(self) -> Counter[Shape]:
        """The members it lacks, by shape."""
        with closing(Session(Census(self.snapshot), self.policy)) as session:
            state = session.census.state(self.key)
            needed = needed_pods(session, state) if state is not None else []
        return Counter(pod.shape for pod in needed or self.gang.waiting[:1])

    @property
    def needs(self) -> Resources:
        """What those members ask for."""
        return total(s.requests * count for s, count in self.wanted.items()).without(PODS)

    @property
    def uses(self) -> Resources:
        """What its queue uses, what may start by the plan included."""
        figures = self.plan.queues.get(self.gang.queue)
        return figures.own.without(PODS) if figures is not None else NOTHING


def others_waiting(case: Case) -> set[PodUid]:
    """Give the pods of all other gangs that wait."""
    gangs = case.snapshot.gangs.values()
    return {pod.uid for gang in gangs if gang.key != case.key for pod in gang.waiting}


def some(names: Sequence[str]) -> str:
    """Name the first two and count the rest."""
    rest = [f"{len(names) - 2} more"] if len(names) > 2 else []
    return ", ".join([*names[:2], *rest]) if rest else " and ".join(names)


def more_of(number: int, noun: str) -> str:
    """Say so many more."""
    return f"{number} more {noun}" + ("" if number == 1 else "s")


def count_pods(number: int) -> str:
    """Say so many pods."""
    return f"{number} pod" + ("" if number == 1 else "s")
