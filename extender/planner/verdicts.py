"""Where every gang stands: a phase, one reason, and a sentence that carries the arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import islice
from math import inf, isfinite
from typing import TypeVar

import numpy as np

from extender.durations import clock, format_duration
from extender.model.gang import UNSPECIFIED, Gang, GangKey, Phase
from extender.model.node import Amounts
from extender.model.pod import FINISHED_SET, SCHEDULED_SET, Shape, Status
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources, total, write_amount
from extender.planner import accounting
from extender.planner.capacity_forecast import most_s
from extender.planner.obstacles import ProtectedPods, amounts, in_words, obstacles, rejected_nodes
from extender.planner.plan import GangStatus, Verdict
from extender.planner.plugins.gangs import missing_members
from extender.planner.policy import Rules
from extender.planner.quota import TOP, stated, too_much
from extender.planner.session import Session, needed_pods
from extender.planner.state import GangState


def admitted_message(session: Session, gang: GangState) -> str:
    """Say why *gang* was given room that is kept for another; empty when it was not."""
    if session.first_start is None or gang.key not in session.let_in_meanwhile:
        return ""
    key, at = session.first_start
    return f"; it ends before {key} can start, about {clock(at, session.snapshot.now)}"


def exceeds_share_message(session: Session, gang: GangState) -> str:
    """Say why *gang* may not use it meanwhile; empty where that is not the point."""
    longest_s, most = session.policy.starvation.backfill_s, most_s(gang.gang.waiting)
    if not longest_s:
        return ""
    if most > longest_s:
        this = f", this one in {format_duration(most)}" if isfinite(most) else ""
        rule = f"gangs that activeDeadlineSeconds ends within {format_duration(longest_s)}"
        return f"; only {rule} may use it meanwhile{this}"
    if session.first_start is None:
        return ""
    (key, at), now = session.first_start, session.snapshot.now
    waits = session.accounting.contenders.get(key)
    if at <= now and waits and any(pod.shape.host_ports for pod in waits.gang.waiting):
        return f"; {key} could start at any moment: when host ports become free is not foreseen"
    if at <= now:
        return f"; {key} could start at any moment, for not all it waits for say how long they run"
    if gang.key in session.too_long:
        return f"; {key} can start about {clock(at, now)}, before this one is sure to have ended"
    return ""


#: Reasons of gangs nobody decides for that depend on more than the gang itself.
_FLEETING = frozenset({Reason.BACKING_OFF, Reason.QUEUE_NOT_FOUND})
#: Reasons of which an action notices only that they hold; the figures are added afterwards.
_LIMITS = frozenset(
    {Reason.QUEUE_OVER_DESERVED, Reason.QUEUE_AT_CAPABILITY, Reason.NAMESPACE_OVER_LIMIT}
)
#: So many sizes of members are named in a sentence; the members of others are counted.
_SIZES = 3
#: A sentence goes into statuses, events and logs, and names what tenants wrote.
_LONGEST = 1_000
_Size = TypeVar("_Size")


class Verdicts:
    """Writes the verdicts of one cycle, after all actions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        table, idle = session.snapshot.nodes, session.capacity.idle
        #: Slots for a shape before this cycle decided anything, and what is left.
        self._free_before = cache(partial(_free, session, table.allocatable - table.used))
        self._free_now = cache(partial(_free, session, idle))
        self._obstacles = cache(lambda shape: in_words(obstacles(session, idle, shape)))
        self._protected = ProtectedPods(session)
        self._remembered = ("verdict", session.policy)
        #: Who may start in this cycle, in the order of their keys, in room that anybody could have.
        self._went_first = dict.fromkeys(
            gang.key
            for gang in session.accounting.contenders.values()
            if gang.committed and gang.key not in session.let_in_meanwhile
        )

    def all(self) -> dict[GangKey, Verdict]:
        """Write the verdict of every gang, in the order of their keys."""
        contenders = self._session.accounting.contenders
        return {
            key: self._verdict(gang, state, self._reason(state))
            if (state := contenders.get(key)) is not None
            else self._of_bystander(gang)
            for key, gang in self._session.snapshot.gangs.items()
        }

    def _of_bystander(self, gang: Gang) -> Verdict:
        """Judge a gang this cycle had nothing to decide for; remembered until it changes."""
        if gang.key in self._session.accounting.hushed:
            return self._verdict(gang, None, self._why_not_considered(gang))
        total = self._session.total
        if gang.key in self._session.accounting.behind:
            return gang.memo.recall(
                ("verdict in a crowd", self._session.policy),
                lambda: self._verdict(gang, None, self._why_behind(gang)),
                about=total,
            )
        key = self._remembered
        known = gang.memo.get(key)
        if known is not None and known[0] is total:  # its share was computed from that total
            remembered: Verdict = known[1]
            return remembered
        problem = self._why_not_considered(gang)
        verdict = self._verdict(gang, None, problem)
        return verdict if problem.reason in _FLEETING else gang.memo.keep(key, verdict, total)

    def _why_not_considered(self, gang: Gang) -> Problem:
        if gang.problem is not None:
            return gang.problem
        if has_ended(gang):
            return Problem(Reason.COMPLETED, _ended(gang))
        if gang.queue not in self._session.queues:
            message = f"queue {gang.queue} does not exist; create it or name another"
            return Problem(Reason.QUEUE_NOT_FOUND, message)
        if _runs(gang):
            return Problem(Reason.RUNNING, _running(gang))
        if gang.placeholders:
            return _incomplete(gang)
        if gang.ready >= gang.group.min_member and gang.ready:
            return Problem(Reason.ADMITTED, f"{gang.ready} members have nodes and may start")
        if gang.is_exempt:
            return _exempt(gang)
        silent = self._session.accounting.hushed.get(gang.key)
        if silent is not None:
            message = silent.complaint(self._session.snapshot.now)
            return Problem(Reason.SCHEDULER_SILENT, message)
        wait = gang.backing_off_until - self._session.snapshot.now
        if wait > 0:
            message = f"did not assemble in time; tried again in {wait:.0f} s"
            return Problem(Reason.BACKING_OFF, message)
        return _incomplete(gang)

    def _why_behind(self, gang: Gang) -> Problem:
        """Say why a gang has no turn: what keeps it anyway, else that its namespace has so many."""
        problem = self._why_not_considered(gang)
        if gang.placeholders or problem.reason in (Reason.RUNNING, Reason.ADMITTED):
            return problem
        state = self._session.accounting.state(gang.key)
        incomplete = self._session.opinions.invalid_reason(state) if state is not None else None
        return incomplete or _in_a_crowd(gang)

    def _reason(self, gang: GangState) -> Problem:
        if has_ended(gang.gang):
            return Problem(Reason.COMPLETED, _ended(gang.gang))
        if _runs(gang.gang):
            return Problem(Reason.RUNNING, _running(gang.gang))
        if gang.gang.placeholders:
            return _incomplete(gang.gang)
        if gang.committed or (gang.ready >= gang.min_member and gang.ready and not gang.placed):
            return Problem(Reason.ADMITTED, self._admitted(gang))
        if not gang.gang.waiting:
            return gang.blocked or _incomplete(gang.gang)
        if gang.pipelined and self._somebody_leaves(gang):
            return Problem(Reason.WAITING_FOR_VICTIMS, self._victims(gang))
        incomplete = self._session.opinions.invalid_reason(gang)
        if incomplete is not None:
            kept_out = gang.blocked
            if kept_out is not None and kept_out.reason is Reason.NOT_ENQUEUED:
                return kept_out  # what it lacks may not even come before it is let in
            return incomplete
        if gang.key in self._session.accounting.visitors:
            return _in_a_crowd(gang.gang)  # the same as before and after its turn
        return self._never(gang) or self._kept(gang) or self._limit(gang) or self._no_room(gang)

    def _admitted(self, gang: GangState) -> str:
        meanwhile = admitted_message(self._session, gang)
        if gang.ready == 1:
            return f"its member has a node{meanwhile}"
        new = f"{gang.committed} of them now" if gang.committed < gang.ready else "all of them now"
        given = new if gang.committed else "given before"
        return f"{gang.ready} members have nodes, {given}{meanwhile}"

    def _somebody_leaves(self, gang: GangState) -> bool:
        """Ask whether room is released where it waits; Volcano promises idle room in parts too."""
        return any(row in self._vacated for _, row in gang.pipelined)

    @cached_property
    def _vacated(self) -> set[int]:
        """Rows that somebody leaves, or is asked to."""
        releasing = self._session.snapshot.nodes.releasing.any(axis=1)
        rows = {departure.row for departure in self._session.capacity.departures}
        return rows.union(np.flatnonzero(releasing).tolist())

    def _victims(self, gang: GangState) -> str:
        """Say for whom it waits: those this cycle asks to leave, or those on their way."""
        leaving = [d for d in self._session.capacity.departures if d.beneficiary is gang]
        nodes = {self._session.snapshot.nodes.nodes[row].name for _, row in gang.pipelined}
        where = _some(sorted(nodes), "nodes")
        count = len(gang.pipelined)
        wait = "1 member waits" if count == 1 else f"{count} members wait"
        if not leaving:
            return f"{wait} for room being released on {where}"
        who = _some([departure.pod.key for departure in leaving], "pods")
        return f"{wait} on {where} until {who} {'has' if len(leaving) == 1 else 'have'} left"

    def _never(self, gang: GangState) -> Problem | None:
        """Say that no empty cluster could hold the minimum, or only nodes that are shut now."""
        for shape, wanted in self._wanted(gang).items():
            most = self._session.places.count_if_empty(shape)
            if most < wanted:
                has = f"the empty cluster has {_count(most, 'such slot')}"
                has += in_words(rejected_nodes(self._session, shape))
                reason = self._why_never(shape, wanted - most)
                return Problem(reason, f"{_needs({shape: wanted})}; {has}")
        return None

    def _why_never(self, shape: Shape, lacking: int) -> Reason:
        """Ask whether nodes that are shut, or those of others, would have the slots lacking."""
        opened = self._session.places.count_if_opened(shape)
        if opened >= lacking:
            return Reason.INSUFFICIENT_CAPACITY
        others = self._session.places.count_if_managed(shape)
        is_elsewhere = others > 0 and opened + others >= lacking
        return Reason.NODE_NOT_MANAGED if is_elsewhere else Reason.EXCEEDS_CLUSTER

    def _limit(self, gang: GangState) -> Problem | None:
        """Complete what an action noticed about the gang's queue with the figures."""
        problem = gang.blocked
        if problem is None or problem.reason not in _LIMITS:
            return problem
        queue, wanted, used_by_others = gang.queue, self._wanted(gang), gang.queue.allocated
        if gang.pipelined:
            wanted = Counter(pod.shape for pod, _ in gang.pipelined) + wanted
            used_by_others -= total(pod.requests for pod, _ in gang.pipelined)
        needs = total(shape.requests * number for shape, number in wanted.items())
        # What was noticed while members were being placed counted those as used.
        reached = gang.quota.how_many(needs)[1] if gang.quota is not None else None
        if reached is None and not self._session.rules.reservations_hold_together:
            most = dict.fromkeys(needs, inf) | dict(stated(queue.queue.capability))
            reached = too_much(queue.name, used_by_others, most, needs)
        is_full = reached is not None and self._is_merely_full(gang, needs)
        if reached is not None and not is_full:
            return reached  # more of its due would not help
        if problem.reason is not Reason.QUEUE_OVER_DESERVED and not is_full:
            return problem
        due = self._session.opinions.deserved(queue) or {}
        for name, amount in needs.items():
            used, deserved = used_by_others.amount(name), due.get(name, inf)
            if used + amount > deserved and deserved < self._session.total.amount(name):
                message = (
                    f"queue {queue.name} deserves {write_amount(name, int(deserved))} {name}"
                    f" and uses {write_amount(name, used)}; the gang needs {_of(name, wanted)}"
                )
                return Problem(Reason.QUEUE_OVER_DESERVED, message)
        return None  # all of it is the queue's: nodes lack room, not the queue

    def _is_merely_full(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether what keeps *gang* out is no guarantee: all of that is in use too."""
        if gang.quota is None or self._keeps_idle:
            return False
        blocker = gang.quota.blocker(needs)
        return blocker is not None and blocker.name == TOP

    @cached_property
    def _keeps_idle(self) -> bool:
        """Ask whether anything is guaranteed to somebody who does not use it."""
        queues = self._session.queues.values()
        return any(
            quota.kept
            for queue in queues
            for quota in (queue.quota, *queue.shares.values())
            if quota is not None
        )

    def _no_room(self, gang: GangState) -> Problem:
        wanted = self._wanted(gang)
        scarce = [shape for shape, n in wanted.items() if self._free_now(shape) < n]
        if not scarce:
            message = f"{_needs(wanted)}; each finds slots, but not all of them at once"
            return Problem(Reason.INSUFFICIENT_CAPACITY, message)
        shape = scarce[0]
        needs = _needs({shape: wanted[shape]})
        free = self._free_now(shape)
        if all(self._free_before(each) >= n for each, n in wanted.items()):
            were = _count(self._free_before(shape), "slot")
            message = f"{needs}; {were} free before, {free} left"
            return Problem(Reason.BEHIND_IN_ORDER, f"{message}{self._blockers(gang)}")
        message = f"{needs}; {_count(free, 'slot')} free{self._obstacles(shape)}"
        if gang.key in self._session.unsearched:
            message += "; so many pods might leave for it that not all of them were weighed"
        return Problem(Reason.INSUFFICIENT_CAPACITY, message + self._protected.note(gang))

    def _kept(self, gang: GangState) -> Problem | None:
        """Say that room is being kept for it, and where."""
        fences = self._session.fenced.get(gang.key)
        if fences is None:
            return None
        nodes = [self._session.snapshot.nodes.nodes[fence.row].name for fence in fences]
        kept = f"it has waited long, so room is kept for it on {_some(nodes, 'nodes')}"
        return Problem(Reason.INSUFFICIENT_CAPACITY, f"{_needs(self._wanted(gang))}; {kept}")

    def _blockers(self, gang: GangState) -> str:
        first = self._went_first
        number = len(first) - (gang.key in first)
        if number:
            names = [*islice((key for key in first if key != gang.key), 2)]
            return f": {_some(names, 'gangs', number)} went first"
        kept = sorted(self._session.fenced)
        if not kept:
            return ""
        return (
            f": room is kept for {_some(kept, 'gangs')}{exceeds_share_message(self._session, gang)}"
        )

    def _wanted(self, gang: GangState) -> Counter[Shape]:
        needed = needed_pods(self._session, gang) or gang.gang.waiting[:1]
        return Counter(pod.shape for pod in needed)

    def _verdict(self, gang: Gang, state: GangState | None, problem: Problem) -> Verdict:
        allocated = state.allocated if state else gang.allocated
        phase = state.phase if state else gang.group.phase
        ready = state.ready if state else gang.ready
        short = is_unschedulable(gang, ready + (len(state.empty) if state else 0))
        after = phase_after(gang, phase, self._session.rules, unschedulable=short)
        if after is Phase.UNKNOWN and phase in UNSPECIFIED and self._was_cut_short(gang.key):
            after = phase  # by that whoever leads next knows that it is not to blame
        return Verdict(
            gang=gang.key,
            queue=gang.queue,
            standing=_standing(gang, problem.reason),
            reason=problem.reason,
            message=_cut(problem.message),
            phase=after,
            share=self._session.arithmetic.share(allocated, self._session.total),
            min_member=gang.group.min_member,
            members=len(gang.pods) - gang.placeholders,
        )

    def _was_cut_short(self, key: GangKey) -> bool:
        session = self._session
        return session.rules.partial_gangs_are_first and key in session.snapshot.partial_gangs


def phase_after(gang: Gang, phase: Phase, rules: Rules, *, unschedulable: bool) -> Phase:
    """Give the phase of *gang*, which was *phase* after enqueueing.

    Only what the API server shows counts: a gang that was given its nodes a moment ago is still
    in queue. *unschedulable* says that this cycle found it short of ready members.
    """
    by_status = gang.by_status
    if len(by_status) == 1 and Status.PENDING in by_status and gang.group.min_member:
        return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING
    finished = sum(len(by_status.get(status, ())) for status in FINISHED_SET)
    leaving = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if by_status.get(Status.RUNNING) and unschedulable:
        return Phase.UNKNOWN
    scheduled = gang.scheduled + leaving + finished
    if scheduled >= gang.group.min_member and (scheduled or not rules.running_takes_a_node):
        return Phase.COMPLETED if scheduled == finished else Phase.RUNNING
    return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING


def is_unschedulable(gang: Gang, ready: int) -> bool:
    """Ask whether a gang with *ready* members misses some that are not just leaving."""
    if not gang.pods or ready >= gang.group.min_member:
        return False
    by_status = gang.by_status
    leaving = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if not leaving or by_status.get(Status.PENDING) or by_status.get(Status.PIPELINED):
        return True
    scheduled = leaving + sum(
        len(by_status.get(status, ())) for status in SCHEDULED_SET | FINISHED_SET
    )
    return scheduled < gang.group.min_member


def _free(session: Session, room: Amounts, shape: Shape) -> int:
    return int(session.places.count(room, shape).sum())


def _standing(gang: Gang, reason: Reason) -> GangStatus:
    if gang.problem is not None:
        return GangStatus.INVALID
    if reason is Reason.RUNNING:
        return GangStatus.RUNNING
    if reason is Reason.COMPLETED:
        return GangStatus.FINISHED
    may_start = reason in (Reason.ADMITTED, Reason.EXEMPT)
    return GangStatus.ADMITTED if may_start else GangStatus.WAITING


def has_ended(gang: Gang) -> bool:
    """Ask whether there were enough members, and none of them will do anything any more."""
    by_status = gang.by_status
    ended = sum(len(by_status.get(status, ())) for status in FINISHED_SET)
    return 0 < ended == len(gang.pods) and ended >= gang.group.min_member


def _ended(gang: Gang) -> str:
    failed, number = len(gang.by_status.get(Status.FAILED, ())), len(gang.pods)
    who = "its member has" if number == 1 else f"all {number} members have"
    return f"{who} ended, {failed} of them failed" if failed else f"{who} succeeded"


def _runs(gang: Gang) -> bool:
    """Ask whether enough members run or have run; one that finishes is not starting again."""
    return gang.bound_or_done >= gang.group.min_member and gang.bound_or_done > 0


def _running(gang: Gang) -> str:
    waiting, done = len(gang.waiting), gang.bound_or_done - gang.scheduled
    rest = f"; {waiting} beyond the minimum wait" if waiting else ""
    also = f", {done} are done" if done else ""
    return f"{gang.scheduled} of at least {gang.group.min_member} members run{also}{rest}"


def _exempt(gang: Gang) -> Problem:
    why, number = gang.waiting[0].why_exempt, len(gang.waiting)
    who = "its pod waits" if number == 1 else f"its {number} pods wait"
    return Problem(Reason.EXEMPT, f"{why}: {who} for kube-scheduler alone, not for us")


def _in_a_crowd(gang: Gang) -> Problem:
    """Say that a namespace has more gangs than turns in one cycle; the same in every cycle."""
    message = (
        f"namespace {gang.group.namespace} has more than {accounting.MOST} gangs waiting in queue"
        f" {gang.queue}: {accounting.FIRST} of them have a turn in every cycle, the others now and"
        " then"
    )
    return Problem(Reason.BEHIND_IN_ORDER, message)


def _incomplete(gang: Gang) -> Problem:
    """Say what is missing of a gang that has nobody waiting."""
    gated = sum(pod.gated for pod in gang.pods)
    kept = "; room is kept for the rest" if gang.placeholders else ""
    return missing_members(gang.ready - gang.placeholders, gang.group.min_member, gated, kept)


def _needs(wanted: Mapping[Shape, int]) -> str:
    return f"needs {_listed(wanted, lambda shape: amounts(shape.requests))}"


def _of(name: str, wanted: Mapping[Shape, int]) -> str:
    """Write what is needed of one resource: `4 x 1`, or `3 x 1 and 1 x 8`."""
    asked = Counter[int]()
    for shape, number in wanted.items():
        asked[shape.requests.amount(name)] += number
    asked.pop(0, None)
    return _listed(asked, partial(write_amount, name))


def _listed(wanted: Mapping[_Size, int], said: Callable[[_Size], str]) -> str:
    """List so many of each; of a gang in which no two members are alike the first ones."""
    parts = [f"{number} x {said(each)}" for each, number in islice(wanted.items(), _SIZES)]
    if others := sum(islice(wanted.values(), _SIZES, None)):
        parts.append(_count(others, "other member"))
    return " and ".join(parts)


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST - 2]} …"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _some(names: Sequence[str], noun: str, number: int | None = None) -> str:
    """Name the first two and count the rest of *number*, or of the *names*."""
    number = len(names) if number is None else number
    if number <= 2:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {number - 2} more {noun}"
