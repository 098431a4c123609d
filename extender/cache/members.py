"""The pods of one gang, with the counts that hooks read without a lock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from extender.model.gang import NATIVE, UNWRITTEN, Membership, PodGroup
from extender.model.pod import FINISHED_SET, SCHEDULED_SET, VALID_SET, Pod, PodUid, Shape, Status

_SCHEDULED = SCHEDULED_SET | {Status.SUCCEEDED}
#: A size, the name of a queue, or a pair of a number and a name.
Value = TypeVar("Value", int, str, tuple[int, str])


class GangMembers:
    """The members of one gang.

    One thread writes at a time. *scheduled*, *valid*, *implicit* and *started_in* are single
    references that any thread may read.
    """

    __slots__ = (
        "_by_role",
        "_memberships",
        "_named",
        "_native",
        "_order",
        "_queues",
        "_sizes",
        "_started",
        "_started_order",
        "finished",
        "implicit",
        "own_shapes",
        "pods",
        "scheduled",
        "shown",
        "started_in",
        "valid",
    )

    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        #: Members that have a node or have succeeded: they need no reservation any more.
        self.scheduled = 0
        #: Members that could count towards minMember.
        self.valid = 0
        #: Members that have succeeded or failed.
        self.finished = 0
        #: The implicit PodGroup of its pods; None when they name a PodGroup instead.
        self.implicit: PodGroup | None = None
        #: The queue in which most scheduled members were started; empty when none states it.
        self.started_in = ""
        #: Reserved members, each with its pod in the last snapshot, to reuse it in the next one.
        self.shown: dict[PodUid, tuple[Pod, Pod]] = {}
        #: A copy of each shape that only this gang uses, while some node is rejected.
        self.own_shapes: dict[Shape, Shape] = {}
        self._by_role: dict[str, int] = {}
        self._started: dict[str, int] = {}
        #: The same, sorted: most pods first; on equal counts the first by name.
        self._started_order: list[tuple[int, str]] = []
        self._memberships: dict[Membership, int] = {}
        #: What the different memberships state, sorted.
        self._sizes: list[int] = []
        self._queues: list[str] = []
        self._named = self._native = 0
        self._order: tuple[PodUid, ...] | None = None

    def put(self, pod: Pod, membership: Membership) -> None:
        """Add a new member."""
        self.pods[pod.uid] = pod
        self._order = None
        count = self._memberships.get(membership, 0)
        self._memberships[membership] = count + 1
        if count == 0:
            self._update_implicit(membership, 1)
        self._count(pod, 1)

    def update(self, old: Pod, new: Pod) -> None:
        """Replace a member by its current state."""
        self.pods[new.uid] = new
        is_counted_alike = (
            old.status is new.status and old.role == new.role and old.started_in == new.started_in
        )
        if not is_counted_alike:
            self._count(old, -1)
            self._count(new, 1)

    def drop(self, pod: Pod, membership: Membership) -> None:
        """Remove a member."""
        del self.pods[pod.uid]
        self._order = None
        self._memberships[membership] -= 1
        if not self._memberships[membership]:
            del self._memberships[membership]
            self._update_implicit(membership, -1)
        self._count(pod, -1)

    def scheduled_in_role(self, role: str) -> int:
        """Return the number of scheduled members of one role."""
        return self._by_role.get(role, 0)

    @property
    def roles(self) -> Collection[str]:
        """Return the roles of scheduled members."""
        return self._by_role.keys()

    @property
    def started_queues(self) -> Collection[str]:
        """Return the queues in which members were started."""
        return self._started.keys()

    def in_order(self) -> tuple[PodUid, ...]:
        """Return the uids of the members, sorted."""
        if self._order is None:
            self._order = tuple(sorted(self.pods))
        return self._order

    @property
    def problem(self) -> str:
        """Return what is wrong with its pods; empty when nothing is."""
        return min((each.problem for each in self._memberships if each.problem), default="")

    @property
    def remark(self) -> str:
        """Return a note on its pods for people; mostly empty."""
        return min((each.remark for each in self._memberships if each.remark), default="")

    @property
    def is_named(self) -> bool:
        """Return whether its pods request to start together."""
        return self._named > 0

    @property
    def is_native(self) -> bool:
        """Return whether kube-scheduler itself assembles it."""
        return self._native > 0

    def _count(self, pod: Pod, step: int) -> None:
        if pod.status in _SCHEDULED:
            _add(self._by_role, pod.role, step)
            self.scheduled += step
        if pod.status in VALID_SET:
            self.valid += step
        if pod.status in FINISHED_SET:
            self.finished += step
        elif pod.started_in:
            self._count_started(pod.started_in, step)

    def _count_started(self, queue: str, step: int) -> None:
        started, order = self._started, self._started_order
        if queue in started:
            _sort(order, (-started[queue], queue), -1)
        _add(started, queue, step)
        if queue in started:
            _sort(order, (-started[queue], queue), 1)
        # On equal counts the first by name: a restart must not change the result.
        self.started_in = order[0][1] if order else ""

    def _update_implicit(self, changed: Membership, step: int) -> None:
        """Derive the implicit group from the pods; where they differ, the most demanding counts."""
        _sort(self._sizes, changed.min_member or 0, step)
        _sort(self._queues, changed.queue, step)
        self._named += step * changed.named
        self._native += step * changed.native
        size = self._sizes[-1] if self._sizes else 0
        names_a_group = self.is_named and not size and not self.is_native
        if not self._memberships or names_a_group:
            self.implicit = None
            return
        namespace, _, name = changed.key.partition("/")
        self.implicit = PodGroup(
            namespace=namespace,
            name=name,
            min_member=size or 1,
            queue=self._queues[-1],
            dialect=NATIVE if self.is_native else UNWRITTEN,
        )

    def implicit_group(self) -> PodGroup | None:
        """Return the implicit PodGroup, as old as its oldest pod."""
        if self.implicit is None:
            return None
        return replace(self.implicit, created=min(pod.created for pod in self.pods.values()))


def _add(counts: dict[str, int], name: str, step: int) -> None:
    """Add *step*, and drop a count of zero: roles have any names, and gangs last long."""
    counts[name] = counts.get(name, 0) + step
    if not counts[name]:
        del counts[name]


def _sort(values: list[Value], value: Value, step: int) -> None:
    """Insert or remove *value* by binary search.

    Each of thousands of pods may state something else. A linear scan for each change would block
    the threads that wait for the lock.
    """
    place = bisect_left(values, value)
    if step > 0:
        values.insert(place, value)
    else:
        del values[place]
