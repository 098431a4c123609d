"""The planner run ahead of time: whoever is expected to end next is taken away, and planned again.

One run answers for every gang of a snapshot, as far as it has gone; it goes on when somebody asks
for a gang that has not started in it yet. It is pure: what it may cost is given to it. Made when a
person asks; never for a hook, nor in the event loop, nor in a cycle.

A gang that ends is gone with all its pods. A gang that starts is expected to run as others of its
kind. Who is made to leave waits again at once. Quotas stay as they are used now, and nobody comes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
    """The cluster as it will be; `snapshot` may be planned."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._first = snapshot
        table = snapshot.nodes
        self.gangs = dict(snapshot.gangs)
        self._used, self._releasing = table.used.copy(), table.releasing.copy()
        self._ports = dict(table.ports)
        self._rows: dict[Shape, Amounts] = {}

    def snapshot(self, now: float) -> Snapshot:
        """Give the cluster as it is now, at *now*."""
        # Whoever looks at the snapshot keeps it: later steps must not change it.
        table = replace(
            self._first.nodes,
            used=self._used.copy(),
            releasing=self._releasing.copy(),
            ports=dict(self._ports),
        )
        return replace(self._first, now=now, nodes=table, gangs=dict(self.gangs))

    def end(self, key: GangKey) -> Gang | None:
        """Let a gang be over, wholly."""
        gang = self.gangs.pop(key, None)
        for pod in gang.pods if gang is not None else ():
            self._vacate(pod)
        return gang

    def remove_pods(self, key: GangKey, gone: Callable[[Pod], bool]) -> None:
        """Let pods be gone that were leaving; they do not come back."""
        self._change(key, lambda pod: None if gone(pod) else pod)

    def place(self, key: GangKey, places: Mapping[PodUid, str], now: float) -> None:
        """Let members run on the nodes they were given."""

        def seated(pod: Pod) -> Pod:
            if pod.uid not in places:
                return pod
            return replace(pod, status=Status.RUNNING, node=places[pod.uid], began=now)

        self._change(key, seated)

    def evict(self, key: GangKey, evicted: Iterable[PodUid]) -> None:
        """Let members leave their nodes and wait again, as their controllers would make them."""
        away = frozenset(evicted)

        def sent_back(pod: Pod) -> Pod:
            return replace(pod, status=Status.PENDING, node="") if pod.uid in away else pod

        self._change(key, sent_back)

    def set_phase(self, key: GangKey, phase: Phase) -> None:
        """Let a gang be in another phase."""
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


#: Plans for one snapshot.
MOST_STEPS = 200
#: While so many ends are still to come, those that are near each other, as seen from now, are one
#: step: a day ahead nobody needs the minute.
_MANY_EVENTS = 20
_NEAR = 0.05
#: Who is asked to leave makes room for others in the next plan, and so on; so often in a row.
_MAX_REPLANS = 3
#: Whoever waits for one of these starts no sooner when others end.
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
    """What a run may cost: so many plans, and so many seconds by *spent*."""

    steps: int = MOST_STEPS
    seconds: float = _FOREVER
    spent: Callable[[], float] = lambda: 0.0


class _Event(NamedTuple):
    """Something that will happen; without a gang only time has passed."""

    at: float
    gang: GangKey | None = None
    #: Its whole gang ends; else only those of its pods leave that are on their way.
    is_end: bool = False

    @property
    def order(self) -> tuple[float, str, bool]:
        """Sort by time; the rest only makes it the same each time."""
        return self.at, self.gang or "", self.is_end


class Lookahead:
    """What is expected to happen from one snapshot and its plan on; belongs to one thread."""

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        policy: Policy,
        experience: DurationHistory,
        effort: WorkLimit | None = None,
    ) -> None:
        self._snapshot, self._policy, self._history = snapshot, policy, experience
        self._verdicts = plan.verdicts
        self._limit = effort or WorkLimit()
        #: By the measure of the effort.
        self.cost_s = 0.0
        self._steps = self._replans = 0
        self._cluster = FutureCluster(snapshot)
        self._now = snapshot.now
        self._plan = plan
        self._events: list[tuple[tuple[float, str, bool], _Event]] = []
        self._expected: dict[GangKey, Expected] = {}
        self._unknown: dict[GangKey, str] = {}
        #: How many of each name were foreseen so far.
        self._alike: Counter[Name] = Counter()
        #: Who of them stays, in words; None when it was not looked for since the last step.
        self._unknown_ends: str | None = None
        #: Who ended on which node since somebody last started there, and who ended last.
        self._ended_on: dict[str, list[Ending]] = {}
        self._reused_nodes: set[str] = set()
        self._last: list[Ending] = []
        #: When, after whom, and beside how many of whom nobody knows when they end.
        self._starts: dict[GangKey, tuple[float, tuple[Ending, ...], int]] = {}
        self._is_limited = False
        self._expect_ends(gang for gang in snapshot.gangs.values() if gang.on_nodes)
        self._expect_deletions(snapshot)
        self._apply_plan(plan)

    @property
    def steps(self) -> int:
        """Count the plans that were made."""
        return self._steps

    def estimate(self, key: GangKey) -> Estimate | None:
        """Say when a waiting gang starts; None for one that does not wait."""
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.standing is not GangStatus.WAITING:
            return None
        if verdict.reason in _INDEPENDENT:
            return self._estimate(key, because=_independent(verdict))
        while key not in self._starts and self._advance():
            pass
        if key in self._starts:
            at, after, unknown = self._starts[key]
            return self._estimate(key, at=at, after=after, unknown=unknown)
        if self._is_limited:
            return self._estimate(key, not_before=self._now)
        return self._estimate(key, because=self._why(key))

    def _estimate(
        self,
        key: GangKey,
        *,
        at: float | None = None,
        not_before: float | None = None,
        after: tuple[Ending, ...] = (),
        because: str = "",
        unknown: int = 0,
    ) -> Estimate:
        return Estimate(
            gang=key,
            now=self._snapshot.now,
            at=at,
            not_before=not_before,
            after=after,
            because=because,
            unknown=unknown,
        )

    def _advance(self) -> bool:
        """Go one step on; False when nothing more is known to happen, or enough was tried."""
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
        """Let the next thing happen, and with many to come what is near it."""
        first = self._events[0][1].at
        near_s = (first - self._snapshot.now) * _NEAR if len(self._events) > _MANY_EVENTS else 0.0
        for node in self._reused_nodes:
            self._ended_on.pop(node, None)
        self._reused_nodes, self._last = set(), []
        while self._events and self._events[0][1].at <= first + near_s:
            moment = heapq.heappop(self._events)[1]
            self._now = max(self._now, moment.at)
            if moment.gang in self._cluster.gangs and moment.is_end:
                self._end(moment.gang)
            elif moment.gang in self._cluster.gangs:
                self._cluster.remove_pods(
                    moment.gang, lambda pod: _is_terminating(self._snapshot, pod)
                )

    def _end(self, key: GangKey) -> None:
        expectation = self._expected.get(key)
        if expectation is None or expectation.duration is None or expectation.ends_at is None:
            return
        if expectation.ends_at > self._now:
            return  # it began anew since
        del self._expected[key]
        gang = self._cluster.end(key)
        ending = Ending(key, self._now, expectation.duration)
        self._last.append(ending)
        for node in {pod.node for pod in gang.pods if pod.node} if gang is not None else ():
            self._ended_on.setdefault(node, []).append(ending)

    def _apply_plan(self, plan: Plan) -> None:
        """Let happen what *plan* decided."""
        is_moved = self._evict(plan)
        started: list[GangKey] = []
        for key, ticket in plan.placements.items():
            if not ticket.placements or key not in self._cluster.gangs:
                continue
            self._cluster.place(key, ticket.placements, self._now)
            gang = self._cluster.gangs[key]
            if key not in self._starts and gang.ready >= gang.group.min_member:
                causes = self._causes(ticket.placements.values())
                self._starts[key] = (self._now, causes, len(self._unknown))
            self._reused_nodes.update(ticket.placements.values())
            started.append(key)
        for key, verdict in plan.verdicts.items():
            gang_ = self._cluster.gangs.get(key)
            if gang_ is None or gang_.group.phase is verdict.phase:
                continue
            if gang_.group.phase is Phase.PENDING and gang_.group.dialect:
                self._cluster.set_phase(key, verdict.phase)
        self._expect_ends(self._cluster.gangs[key] for key in started)
        self._replans = self._replans + 1 if is_moved and self._replans < _MAX_REPLANS else 0

    def _evict(self, plan: Plan) -> bool:
        """Let those leave who were asked to; they wait again, as if they had just come."""
        if not plan.evictions:
            return False
        away = {each.uid for each in plan.evictions}
        for key, gang in list(self._cluster.gangs.items()):
            if gang.on_nodes and not away.isdisjoint(pod.uid for pod in gang.pods):
                self._cluster.evict(key, away)
                self._expected.pop(key, None)
                self._unknown.pop(key, None)
                if self._cluster.gangs[key].on_nodes:
                    self._expect_ends([self._cluster.gangs[key]])
        return True

    def _causes(self, nodes: Iterable[str]) -> tuple[Ending, ...]:
        """Name those who ended where it starts, and whose end was the last before it did."""
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

    def _add_event(self, moment: _Event) -> None:
        heapq.heappush(self._events, (moment.order, moment))

    def _expect_deletions(self, snapshot: Snapshot) -> None:
        """Note who is on the way out, and whose pause ends."""
        for key, gang in snapshot.gangs.items():
            going = [pod for pod in gang.pods if _is_terminating(snapshot, pod)]
            if going:
                self._add_event(_Event(max(snapshot.now, *(pod.leaves_by for pod in going)), key))
            if gang.backing_off_until > snapshot.now:
                self._add_event(_Event(gang.backing_off_until))

    def _why(self, key: GangKey) -> str:
        """Say why nobody can tell, after everything that is expected has happened."""
        verdict = self._plan.verdicts.get(key)
        if verdict is not None and verdict.reason in _INDEPENDENT:
            return _independent(verdict)
        # The same for all who wait, and thousands may be asked about one after the other.
        if self._unknown_ends is None:
            self._unknown_ends = self._gangs_with_unknown_end()
        return self._unknown_ends

    def _gangs_with_unknown_end(self) -> str:
        stays = [each for each in self._unknown if each in self._cluster.gangs]
        if not stays:
            return "it would not start even if everything of ours that runs had ended"
        stays.sort(key=lambda each: (-self._cluster.gangs[each].on_nodes, each))
        named = [f"{each} {self._unknown[each]}" for each in stays[:NAMED]]
        more = len(stays) - len(named)
        if more:
            named.append(f"{more} more gang{'' if more == 1 else 's'} likewise")
        return named[0] if len(named) == 1 else f"{', '.join(named[:-1])}, and {named[-1]}"


def _independent(verdict: Verdict) -> str:
    """Say that nobody's end would help."""
    return f"it does not wait for others to end: {verdict.reason.meaning}"


def _is_terminating(snapshot: Snapshot, pod: Pod) -> bool:
    return pod.status is Status.RELEASING and pod.uid not in snapshot.stuck
