"""The planner run on future snapshots: remove the gang that should end next, and plan again.

One lookahead answers for all gangs of a snapshot. It continues only as far as a requested gang
needs. It is pure, and its cost limit is a parameter. It runs when a user asks for an estimate,
never for a hook, in the event loop or in a planning cycle.

A gang that ends is removed with all its pods. A gang that starts is expected to run as long as
others of its kind. Evicted members wait again at once. The use of quotas does not change, and no
gang arrives.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from extender.forecast.durations import DurationHistory, Expected, Name, expected, name_of, spread
from extender.forecast.estimate import NAMED, Ending, Estimate
from extender.model.gang import Gang, GangKey, Phase
from extender.model.memo import Memo
from extender.model.node import Amounts, HostPorts
from extender.model.pod import OCCUPYING_SET, Pod, PodUid, Shape, Status
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner.plan import GangStatus, Plan, Verdict
from extender.planner.planner import make_plan
from extender.planner.policy import Policy


class FutureCluster:
    """The cluster at a future time; `snapshot` returns it for the planner."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._first = snapshot
        table = snapshot.nodes
        self.gangs = dict(snapshot.gangs)
        self._used, self._releasing = table.used.copy(), table.releasing.copy()
        self._ports = dict(table.ports)
        self._rows: dict[Shape, Amounts] = {}

    def snapshot(self, now: float) -> Snapshot:
        """Return the cluster at the time *now*."""
        # Copies, because the planner keeps the snapshot and later steps must not change it.
        table = replace(
            self._first.nodes,
            used=self._used.copy(),
            releasing=self._releasing.copy(),
            ports=dict(self._ports),
        )
        return replace(self._first, now=now, nodes=table, gangs=dict(self.gangs))

    def end(self, key: GangKey) -> Gang | None:
        """Remove a gang with all its pods."""
        gang = self.gangs.pop(key, None)
        for pod in gang.pods if gang is not None else ():
            self._vacate(pod)
        return gang

    def remove_pods(self, key: GangKey, is_removed: Callable[[Pod], bool]) -> None:
        """Remove terminating pods of a gang; they do not come back."""
        self._change(key, lambda pod: None if is_removed(pod) else pod)

    def place(self, key: GangKey, placements: Mapping[PodUid, str], now: float) -> None:
        """Start members on their nodes."""

        def placed(pod: Pod) -> Pod:
            if pod.uid not in placements:
                return pod
            return replace(pod, status=Status.RUNNING, node=placements[pod.uid], began=now)

        self._change(key, placed)

    def evict(self, key: GangKey, evicted: Iterable[PodUid]) -> None:
        """Evict members, which wait again as their controllers would recreate them."""
        uids = frozenset(evicted)

        def recreated(pod: Pod) -> Pod:
            return replace(pod, status=Status.PENDING, node="") if pod.uid in uids else pod

        self._change(key, recreated)

    def set_phase(self, key: GangKey, phase: Phase) -> None:
        """Set the phase of a gang."""
        gang = self.gangs[key]
        group = replace(gang.group, phase=phase)
        self.gangs[key] = replace(gang, group=group, memo=Memo())

    def _change(self, key: GangKey, to: Callable[[Pod], Pod | None]) -> None:
        gang, pods = self.gangs[key], list[Pod]()
        for pod in gang.pods:
            new = to(pod)
            if new is not pod:
                self._vacate(pod)
                if new is not None:
                    self._occupy(new)
            if new is not None:
                pods.append(new)
        if pods or gang.group.dialect:
            self.gangs[key] = replace(gang, pods=tuple(pods), memo=Memo())
        else:
            del self.gangs[key]

    def _occupy(self, pod: Pod) -> None:
        row = self._first.nodes.facts.index.get(pod.node)
        if row is not None and pod.status in OCCUPYING_SET:
            self._used[row] += self._row(pod.shape)
            if pod.shape.host_ports:
                taken = self._ports.get(pod.node, HostPorts())
                self._ports[pod.node] = taken.plus(pod.shape.host_ports)

    def _vacate(self, pod: Pod) -> None:
        row = self._first.nodes.facts.index.get(pod.node)
        if row is None or pod.status not in OCCUPYING_SET:
            return
        amounts = self._row(pod.shape)
        self._used[row] -= amounts
        if pod.status is Status.RELEASING:
            self._releasing[row] -= np.minimum(self._releasing[row], amounts)
        if pod.shape.host_ports and pod.node in self._ports:
            self._ports[pod.node] = self._ports[pod.node].minus(pod.shape.host_ports)

    def _row(self, shape: Shape) -> Amounts:
        row = self._rows.get(shape)
        if row is None:
            names = self._first.nodes.dimensions
            amounts = [shape.requests.amount(name) for name in names]
            row = self._rows[shape] = np.array(amounts, dtype=np.int64)
        return row


#: The largest number of plans for one snapshot.
MOST_STEPS = 200
#: While more events than this are pending, those that are close relative to their distance from
#: now are one step: a day ahead, minutes do not matter.
_MANY_EVENTS = 20
_NEAR = 0.05
#: Evictions free capacity for the next plan, which may evict again; so often at one time.
_MAX_REPLANS = 3
#: Reasons of waiting gangs that do not depend on the end of others.
_INDEPENDENT = frozenset(
    {
        Reason.NOT_ENOUGH_MEMBERS,
        Reason.NOT_ENOUGH_ROLES,
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.EXCEEDS_CLUSTER,
        Reason.SCHEDULER_SILENT,
        Reason.POD_GROUP_MISSING,
        Reason.EXEMPT,
        Reason.GATED,
    }
)
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """The limits of a lookahead: a number of plans, and seconds as measured by *spent*."""

    steps: int = MOST_STEPS
    seconds: float = _FOREVER
    spent: Callable[[], float] = lambda: 0.0


class _Event(NamedTuple):
    """An expected event; without a gang it is only a point in time."""

    at: float
    gang: GangKey | None = None
    #: Whether the whole gang ends; else only its terminating pods are deleted.
    is_end: bool = False

    @property
    def order(self) -> tuple[float, str, bool]:
        """The sort key: the time, and the rest to make the order deterministic."""
        return self.at, self.gang or "", self.is_end


class Lookahead:
    """The expected events after one snapshot and its plan; used by one thread."""

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        policy: Policy,
        past_durations: DurationHistory,
        effort: WorkLimit | None = None,
    ) -> None:
        self._snapshot, self._policy, self._history = snapshot, policy, past_durations
        self._verdicts = plan.verdicts
        self._limit = effort or WorkLimit()
        #: The cost so far, in the unit of the limit.
        self.cost_s = 0.0
        self._steps = self._replans = 0
        self._cluster = FutureCluster(snapshot)
        self._now = snapshot.now
        self._plan = plan
        self._events: list[tuple[tuple[float, str, bool], _Event]] = []
        self._expected: dict[GangKey, Expected] = {}
        self._unknown: dict[GangKey, str] = {}
        #: The number of gangs of each name with an expected end.
        self._alike: Counter[Name] = Counter()
        #: The text about gangs with an unknown end; None when it is outdated.
        self._unknown_ends: str | None = None
        #: Ends by node since the last start there, the nodes used since, and the last ends.
        self._ended_on: dict[str, list[Ending]] = {}
        self._reused_nodes: set[str] = set()
        self._last: list[Ending] = []
        #: By gang: its start, the ends before it, and the number of unknown ends.
        self._starts: dict[GangKey, tuple[float, tuple[Ending, ...], int]] = {}
        self._is_limited = False
        self._expect_ends(gang for gang in snapshot.gangs.values() if gang.on_nodes)
        self._expect_deletions(snapshot)
        self._apply_plan(plan)

    @property
    def steps(self) -> int:
        """The number of plans so far."""
        return self._steps

    def estimate(self, key: GangKey) -> Estimate | None:
        """Return when a waiting gang starts; None when it does not wait."""
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.status is not GangStatus.WAITING:
            return None
        estimate = partial(Estimate, gang=key, now=self._snapshot.now)
        if verdict.reason in _INDEPENDENT:
            return estimate(because=_independent(verdict))
        while key not in self._starts and self._advance():
            pass
        if key in self._starts:
            at, after, unknown = self._starts[key]
            return estimate(at=at, after=after, unknown=unknown)
        if self._is_limited:
            return estimate(not_before=self._now)
        return estimate(because=self._why(key))

    def _advance(self) -> bool:
        """Do one step; return False when no event is left, or the limit is reached."""
        if not self._replans and not self._events:
            return False
        if self._steps >= self._limit.steps or self.cost_s >= self._limit.seconds:
            self._is_limited = True
            return False
        before = self._limit.spent()
        if not self._replans:
            self._next_event()
        self._steps += 1
        self._unknown_ends = None
        self._plan = make_plan(self._cluster.snapshot(self._now), self._policy)
        self._apply_plan(self._plan)
        self.cost_s += self._limit.spent() - before
        return True

    def _next_event(self) -> None:
        """Apply the next event, and close ones while many are pending."""
        first = self._events[0][1].at
        near_s = (first - self._snapshot.now) * _NEAR if len(self._events) > _MANY_EVENTS else 0.0
        for node in self._reused_nodes:
            self._ended_on.pop(node, None)
        self._reused_nodes, self._last = set(), []
        while self._events and self._events[0][1].at <= first + near_s:
            event = heapq.heappop(self._events)[1]
            self._now = max(self._now, event.at)
            if event.gang in self._cluster.gangs and event.is_end:
                self._end(event.gang)
            elif event.gang in self._cluster.gangs:
                self._cluster.remove_pods(
                    event.gang, lambda pod: _is_terminating(self._snapshot, pod)
                )

    def _end(self, key: GangKey) -> None:
        expectation = self._expected.get(key)
        if expectation is None or expectation.duration is None or expectation.ends_at is None:
            return
        if expectation.ends_at > self._now:
            return  # it has started again since
        del self._expected[key]
        gang = self._cluster.end(key)
        ending = Ending(key, self._now, expectation.duration)
        self._last.append(ending)
        for node in {pod.node for pod in gang.pods if pod.node} if gang is not None else ():
            self._ended_on.setdefault(node, []).append(ending)

    def _apply_plan(self, plan: Plan) -> None:
        """Apply the decisions of *plan*."""
        has_evictions = self._evict(plan)
        started: list[GangKey] = []
        for key, placement in plan.placements.items():
            if not placement.placements or key not in self._cluster.gangs:
                continue
            self._cluster.place(key, placement.placements, self._now)
            gang = self._cluster.gangs[key]
            if key not in self._starts and gang.ready >= gang.group.min_member:
                causes = self._causes(placement.placements.values())
                self._starts[key] = (self._now, causes, len(self._unknown))
            self._reused_nodes.update(placement.placements.values())
            started.append(key)
        for key, verdict in plan.verdicts.items():
            gang_ = self._cluster.gangs.get(key)
            if gang_ is None or gang_.group.phase is verdict.phase:
                continue
            if gang_.group.phase is Phase.PENDING and gang_.group.dialect:
                self._cluster.set_phase(key, verdict.phase)
        self._expect_ends(self._cluster.gangs[key] for key in started)
        self._replans = self._replans + 1 if has_evictions and self._replans < _MAX_REPLANS else 0

    def _evict(self, plan: Plan) -> bool:
        """Evict the victims of *plan*; they wait again, as if they had just arrived."""
        if not plan.evictions:
            return False
        uids = {each.uid for each in plan.evictions}
        for key, gang in list(self._cluster.gangs.items()):
            if gang.on_nodes and not uids.isdisjoint(pod.uid for pod in gang.pods):
                self._cluster.evict(key, uids)
                self._expected.pop(key, None)
                self._unknown.pop(key, None)
                if self._cluster.gangs[key].on_nodes:
                    self._expect_ends([self._cluster.gangs[key]])
        return True

    def _causes(self, nodes: Iterable[str]) -> tuple[Ending, ...]:
        """Return the ends on the nodes where a gang starts, or else the last ends before it."""
        found = {each.gang: each for node in nodes for each in self._ended_on.get(node, ())}
        found |= {each.gang: each for each in self._last} if not found else {}
        return tuple(sorted(found.values(), key=lambda each: (each.at, each.gang)))

    def _expect_ends(self, gangs: Iterable[Gang]) -> None:
        for gang in gangs:
            name = name_of(gang.key, gang.queue)
            self._alike[name] += 1
            part = spread(self._alike[name])
            expectation = expected(gang, self._now, self._history, part)
            if expectation.ends_at is None:
                self._unknown[gang.key] = expectation.why_unknown
                continue
            self._unknown.pop(gang.key, None)
            self._expected[gang.key] = expectation
            self._add_event(_Event(expectation.ends_at, gang.key, is_end=True))

    def _add_event(self, event: _Event) -> None:
        heapq.heappush(self._events, (event.order, event))

    def _expect_deletions(self, snapshot: Snapshot) -> None:
        """Add the deletion of terminating pods and the ends of backoffs."""
        for key, gang in snapshot.gangs.items():
            terminating = [pod for pod in gang.pods if _is_terminating(snapshot, pod)]
            if terminating:
                self._add_event(
                    _Event(max(snapshot.now, *(pod.leaves_by for pod in terminating)), key)
                )
            if gang.backing_off_until > snapshot.now:
                self._add_event(_Event(gang.backing_off_until))

    def _why(self, key: GangKey) -> str:
        """Return why the start is unknown, after all expected events."""
        verdict = self._plan.verdicts.get(key)
        if verdict is not None and verdict.reason in _INDEPENDENT:
            return _independent(verdict)
        # The same for all waiting gangs, of which thousands may be requested in a row.
        if self._unknown_ends is None:
            self._unknown_ends = self._gangs_with_unknown_end()
        return self._unknown_ends

    def _gangs_with_unknown_end(self) -> str:
        gangs = [each for each in self._unknown if each in self._cluster.gangs]
        if not gangs:
            return "it would not start even if all gangs of this extender had ended"
        gangs.sort(key=lambda each: (-self._cluster.gangs[each].on_nodes, each))
        named = [f"{each} {self._unknown[each]}" for each in gangs[:NAMED]]
        more = len(gangs) - len(named)
        if more:
            named.append(f"{more} more gang{'' if more == 1 else 's'} likewise")
        return named[0] if len(named) == 1 else f"{', '.join(named[:-1])}, and {named[-1]}"


def _independent(verdict: Verdict) -> str:
    """Return the text for a reason that the end of others does not change."""
    return f"it does not wait for other gangs to end: {verdict.reason.meaning}"


def _is_terminating(snapshot: Snapshot, pod: Pod) -> bool:
    return pod.status is Status.RELEASING and pod.uid not in snapshot.stuck
