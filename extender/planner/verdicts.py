"""The verdict on every gang: a phase, one reason, and a sentence with the figures."""

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
from extender.planner.obstacles import (
    ProtectedPods,
    amounts,
    counted,
    in_words,
    obstacles,
    rejected_nodes,
)
from extender.planner.plan import GangStatus, Verdict
from extender.planner.plugins.gangs import missing_members
from extender.planner.policy import Rules
from extender.planner.quota import TOP, too_much
from extender.planner.session import Session
from extender.planner.state import GangState


def admitted_message(session: Session, gang: GangState) -> str:
    """Return why *gang* was placed in reserved capacity; empty when it was not."""
    if session.first_start is None or gang.key not in session.in_held_capacity:
        return ""
    key, at = session.first_start
    return f"; it ends before {key} can start, about {clock(at, session.snapshot.now)}"


def reserved_capacity_message(session: Session, gang: GangState) -> str:
    """Return why *gang* may not use reserved capacity; empty when another reason decides."""
    longest_s, most = session.policy.starvation.backfill_s, most_s(gang.gang.waiting)
    if not longest_s:
        return ""
    if most > longest_s:
        this = f", this one in {format_duration(most)}" if isfinite(most) else ""
        rule = f"gangs that activeDeadlineSeconds ends within {format_duration(longest_s)}"
        return f"; only {rule} may use it until then{this}"
    if session.first_start is None:
        return ""
    (key, at), now = session.first_start, session.snapshot.now
    waits = session.accounting.contenders.get(key)
    if at <= now and waits and any(pod.shape.host_ports for pod in waits.gang.waiting):
        return f"; {key} could start at any moment: free host ports are not forecast"
    if at <= now:
        return f"; {key} could start at any moment: not all gangs it waits for state a duration"
    if gang.key in session.too_long:
        return f"; {key} can start about {clock(at, now)}, before this one is sure to have ended"
    return ""


#: Reasons, of gangs outside a cycle, that depend on more than the gang itself.
_NOT_CACHED = frozenset({Reason.BACKING_OFF, Reason.QUEUE_NOT_FOUND})
#: Reasons of which an action reports only that they hold; the verdict adds the figures.
_QUEUE_LIMITS = frozenset(
    {Reason.QUEUE_OVER_DESERVED, Reason.QUEUE_AT_CAPABILITY, Reason.NAMESPACE_OVER_LIMIT}
)
#: So many shapes of members are named in a sentence; the members of others are counted.
_SIZES = 3
#: The limit of a sentence, which goes into statuses, events and logs and contains names that
#: tenants chose.
_MAX_LENGTH = 1_000
_Size = TypeVar("_Size")


class Verdicts:
    """Writes the verdicts of one cycle, after all actions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        table, free = session.snapshot.nodes, session.capacity.free
        #: Slots for a shape before this cycle decided anything, and the slots left now.
        self._free_before = cache(partial(_free, session, table.allocatable - table.used))
        self._free_now = cache(partial(_free, session, free))
        self._obstacles = cache(lambda shape: in_words(obstacles(session, free, shape)))
        self._protected = ProtectedPods(session)
        self._cache_key = ("verdict", session.policy)
        #: Gangs that may start in this cycle, in the order of their keys, without backfilled ones.
        self._starts = dict.fromkeys(
            gang.key
            for gang in session.accounting.contenders.values()
            if gang.committed and gang.key not in session.in_held_capacity
        )

    def all(self) -> dict[GangKey, Verdict]:
        """Return the verdict of every gang, in the order of their keys."""
        contenders = self._session.accounting.contenders
        return {
            key: self._verdict(gang, state, self._reason(state))
            if (state := contenders.get(key)) is not None
            else self._outside_cycle(gang)
            for key, gang in self._session.snapshot.gangs.items()
        }

    def _outside_cycle(self, gang: Gang) -> Verdict:
        """Return the verdict of a gang outside the cycle; cached until the gang changes."""
        if gang.key in self._session.accounting.without_scheduler:
            return self._verdict(gang, None, self._why_not_considered(gang))
        total = self._session.total
        if gang.key in self._session.accounting.over_limit:
            return gang.memo.recall(
                ("verdict in rotation", self._session.policy),
                lambda: self._verdict(gang, None, self._why_behind(gang)),
                about=total,
            )
        key = self._cache_key
        known = gang.memo.get(key)
        if known is not None and known[0] is total:  # its share is computed from that total
            cached: Verdict = known[1]
            return cached
        problem = self._why_not_considered(gang)
        verdict = self._verdict(gang, None, problem)
        return verdict if problem.reason in _NOT_CACHED else gang.memo.keep(key, verdict, total)

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
        silent = self._session.accounting.without_scheduler.get(gang.key)
        if silent is not None:
            message = silent.problem(self._session.snapshot.now)
            return Problem(Reason.SCHEDULER_SILENT, message)
        wait = gang.backing_off_until - self._session.snapshot.now
        if wait > 0:
            message = f"did not assemble in time; retried in {wait:.0f} s"
            return Problem(Reason.BACKING_OFF, message)
        return _incomplete(gang)

    def _why_behind(self, gang: Gang) -> Problem:
        """Return why a gang is not considered now: its own reason, else rotation."""
        problem = self._why_not_considered(gang)
        if gang.placeholders or problem.reason in (Reason.RUNNING, Reason.ADMITTED):
            return problem
        state = self._session.accounting.state(gang.key)
        incomplete = self._session.plugins.invalid_reason(state) if state is not None else None
        return incomplete or _in_rotation(gang)

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
        if gang.pipelined and self._waits_for_release(gang):
            return Problem(Reason.WAITING_FOR_VICTIMS, self._victims(gang))
        incomplete = self._session.plugins.invalid_reason(gang)
        if incomplete is not None:
            refusal = gang.blocked
            if refusal is not None and refusal.reason is Reason.NOT_ENQUEUED:
                return refusal  # missing members may only be created after admission
            return incomplete
        if gang.key in self._session.accounting.rotating:
            return _in_rotation(gang.gang)  # the same as in cycles that do not consider it
        return (
            self._never(gang)
            or self._reserved(gang)
            or self._limit(gang)
            or self._no_capacity(gang)
        )

    def _admitted(self, gang: GangState) -> str:
        reason = admitted_message(self._session, gang)
        if gang.ready == 1:
            return f"its member has a node{reason}"
        new = f"{gang.committed} of them now" if gang.committed < gang.ready else "all of them now"
        given = new if gang.committed else "placed before"
        return f"{gang.ready} members have nodes, {given}{reason}"

    def _waits_for_release(self, gang: GangState) -> bool:
        """Return whether it waits for release of capacity; Volcano also reserves what is free."""
        return any(row in self._released_rows for _, row in gang.pipelined)

    @cached_property
    def _released_rows(self) -> set[int]:
        """Rows with a pod that is terminating or to be evicted."""
        releasing = self._session.snapshot.nodes.releasing.any(axis=1)
        rows = {eviction.row for eviction in self._session.capacity.evictions}
        return rows.union(np.flatnonzero(releasing).tolist())

    def _victims(self, gang: GangState) -> str:
        """Return what it waits for: the victims of this cycle, or capacity being released."""
        evictions = [d for d in self._session.capacity.evictions if d.beneficiary is gang]
        nodes = {self._session.snapshot.nodes.nodes[row].name for _, row in gang.pipelined}
        where = _some(sorted(nodes), "nodes")
        count = len(gang.pipelined)
        wait = "1 member waits" if count == 1 else f"{count} members wait"
        if not evictions:
            return f"{wait} for capacity being released on {where}"
        victims = _some([eviction.pod.key for eviction in evictions], "pods")
        has = "has" if len(evictions) == 1 else "have"
        return f"{wait} on {where} until {victims} {has} terminated"

    def _never(self, gang: GangState) -> Problem | None:
        """Return a problem if the open nodes could not hold the minimum even if empty."""
        for shape, wanted in self._wanted(gang).items():
            most = self._session.nodes.count_if_empty(shape)
            if most < wanted:
                has = f"the empty cluster has {counted(most, 'such slot')}"
                has += in_words(rejected_nodes(self._session, shape))
                reason = self._why_never(shape, wanted - most)
                return Problem(reason, f"{_needs({shape: wanted})}; {has}")
        return None

    def _why_never(self, shape: Shape, missing: int) -> Reason:
        """Return whether closed nodes, or unmanaged ones, would have the missing slots."""
        opened = self._session.nodes.count_if_opened(shape)
        if opened >= missing:
            return Reason.INSUFFICIENT_CAPACITY
        others = self._session.nodes.count_if_managed(shape)
        is_elsewhere = others > 0 and opened + others >= missing
        return Reason.NODE_NOT_MANAGED if is_elsewhere else Reason.EXCEEDS_CLUSTER

    def _limit(self, gang: GangState) -> Problem | None:
        """Add the figures to what an action reported about the gang's queue."""
        problem = gang.blocked
        if problem is None or problem.reason not in _QUEUE_LIMITS:
            return problem
        queue, wanted, used_by_others = gang.queue, self._wanted(gang), gang.queue.allocated
        if gang.pipelined:
            wanted = Counter(pod.shape for pod, _ in gang.pipelined) + wanted
            used_by_others -= total(pod.requests for pod, _ in gang.pipelined)
        needs = total(shape.requests * number for shape, number in wanted.items())
        # What was reported while members were being placed counted those as used.
        reached = gang.quota.how_many(needs)[1] if gang.quota is not None else None
        if reached is None and not self._session.rules.reservations_hold_together:
            most = dict.fromkeys(needs, inf) | dict(queue.queue.ceiling)
            reached = too_much(queue.name, used_by_others, most, needs)
        is_full = reached is not None and self._is_full(gang, needs)
        if reached is not None and not is_full:
            return reached  # a larger deserved amount would not help
        if problem.reason is not Reason.QUEUE_OVER_DESERVED and not is_full:
            return problem
        deserved_amounts = self._session.plugins.deserved(queue) or {}
        for name, amount in needs.items():
            used, deserved = used_by_others.amount(name), deserved_amounts.get(name, inf)
            if used + amount > deserved and deserved < self._session.total.amount(name):
                message = (
                    f"queue {queue.name} deserves {write_amount(name, int(deserved))} {name}"
                    f" and uses {write_amount(name, used)}; the gang needs {_of(name, wanted)}"
                )
                return Problem(Reason.QUEUE_OVER_DESERVED, message)
        return None  # the queue deserves all of it: nodes lack capacity, not the queue

    def _is_full(self, gang: GangState, needs: Resources) -> bool:
        """Return whether *gang* waits only because everything is in use, guarantees included."""
        if gang.quota is None or self._has_unused_guarantee:
            return False
        blocker = gang.quota.blocker(needs)
        return blocker is not None and blocker.name == TOP

    @cached_property
    def _has_unused_guarantee(self) -> bool:
        """Return whether any guarantee is not fully used."""
        queues = self._session.queues.values()
        return any(
            quota.unused_guarantee
            for queue in queues
            for quota in (queue.quota, *queue.shares.values())
            if quota is not None
        )

    def _no_capacity(self, gang: GangState) -> Problem:
        wanted = self._wanted(gang)
        scarce = [shape for shape, n in wanted.items() if self._free_now(shape) < n]
        if not scarce:
            message = f"{_needs(wanted)}; each finds slots, but not all of them at once"
            return Problem(Reason.INSUFFICIENT_CAPACITY, message)
        shape = scarce[0]
        needs = _needs({shape: wanted[shape]})
        free = self._free_now(shape)
        if all(self._free_before(each) >= n for each, n in wanted.items()):
            were = counted(self._free_before(shape), "slot")
            message = f"{needs}; {were} free before, {free} left"
            return Problem(Reason.BEHIND_IN_ORDER, f"{message}{self._blockers(gang)}")
        message = f"{needs}; {counted(free, 'slot')} free{self._obstacles(shape)}"
        if gang.key in self._session.search_cut_short:
            message += "; the search for victims ended early: too many pods could be evicted"
        return Problem(Reason.INSUFFICIENT_CAPACITY, message + self._protected.note(gang))

    def _reserved(self, gang: GangState) -> Problem | None:
        """Return a problem if capacity is reserved for it, and where."""
        holds = self._session.holds.get(gang.key)
        if holds is None:
            return None
        nodes = [self._session.snapshot.nodes.nodes[each.row].name for each in holds]
        where = f"it has waited long, so capacity is reserved for it on {_some(nodes, 'nodes')}"
        return Problem(Reason.INSUFFICIENT_CAPACITY, f"{_needs(self._wanted(gang))}; {where}")

    def _blockers(self, gang: GangState) -> str:
        first = self._starts
        number = len(first) - (gang.key in first)
        if number:
            names = [*islice((key for key in first if key != gang.key), 2)]
            return f": {_some(names, 'gangs', number)} went first"
        reserved = sorted(self._session.holds)
        if not reserved:
            return ""
        why = reserved_capacity_message(self._session, gang)
        return f": capacity is reserved for {_some(reserved, 'gangs')}{why}"

    def _wanted(self, gang: GangState) -> Counter[Shape]:
        needed = self._session.needed_pods(gang) or gang.gang.waiting[:1]
        return Counter(pod.shape for pod in needed)

    def _verdict(self, gang: Gang, state: GangState | None, problem: Problem) -> Verdict:
        message = _cut(problem.message)
        allocated = state.allocated if state else gang.allocated
        phase = state.phase if state else gang.group.phase
        ready = state.ready if state else gang.ready
        short = is_unschedulable(gang, ready + (len(state.best_effort) if state else 0))
        after = phase_after(gang, phase, self._session.rules, unschedulable=short)
        if after is Phase.UNKNOWN and phase in UNSPECIFIED and self._is_partial(gang.key):
            after = phase  # so that the next leader knows that it is a partial gang
        return Verdict(
            gang=gang.key,
            queue=gang.queue,
            status=_status_of(gang, problem.reason),
            reason=problem.reason,
            message=f"{message}; {gang.remark}" if gang.remark else message,
            phase=after,
            share=self._session.arithmetic.dominant_share(allocated, self._session.total),
            min_member=gang.group.min_member,
            members=len(gang.pods) - gang.placeholders,
        )

    def _is_partial(self, key: GangKey) -> bool:
        session = self._session
        return session.rules.partial_gangs_are_first and key in session.snapshot.partial_gangs


def phase_after(gang: Gang, phase: Phase, rules: Rules, *, unschedulable: bool) -> Phase:
    """Return the phase of *gang*, which was *phase* after enqueueing.

    Only the state in the API server counts: a gang placed a moment ago is still Inqueue.
    *unschedulable* states that this cycle found it short of ready members.
    """
    by_status = gang.by_status
    if len(by_status) == 1 and Status.PENDING in by_status and gang.group.min_member:
        return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING
    finished = sum(len(by_status.get(status, ())) for status in FINISHED_SET)
    terminating = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if by_status.get(Status.RUNNING) and unschedulable:
        return Phase.UNKNOWN
    scheduled = gang.scheduled + terminating + finished
    if scheduled >= gang.group.min_member and (scheduled or not rules.running_takes_a_node):
        return Phase.COMPLETED if scheduled == finished else Phase.RUNNING
    return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING


def is_unschedulable(gang: Gang, ready: int) -> bool:
    """Return whether a gang with *ready* members lacks some that are not only terminating."""
    if not gang.pods or ready >= gang.group.min_member:
        return False
    by_status = gang.by_status
    terminating = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if not terminating or by_status.get(Status.PENDING):
        return True
    scheduled = terminating + sum(
        len(by_status.get(status, ())) for status in SCHEDULED_SET | FINISHED_SET
    )
    return scheduled < gang.group.min_member


def _free(session: Session, capacity: Amounts, shape: Shape) -> int:
    return int(session.nodes.count(capacity, shape).sum())


def _status_of(gang: Gang, reason: Reason) -> GangStatus:
    if gang.problem is not None:
        return GangStatus.INVALID
    if reason is Reason.RUNNING:
        return GangStatus.RUNNING
    if reason is Reason.COMPLETED:
        return GangStatus.FINISHED
    may_start = reason in (Reason.ADMITTED, Reason.EXEMPT)
    return GangStatus.ADMITTED if may_start else GangStatus.WAITING


def has_ended(gang: Gang) -> bool:
    """Return whether there were enough members, and all of them have ended."""
    by_status = gang.by_status
    ended = sum(len(by_status.get(status, ())) for status in FINISHED_SET)
    return 0 < ended == len(gang.pods) and ended >= gang.group.min_member


def _ended(gang: Gang) -> str:
    failed, number = len(gang.by_status.get(Status.FAILED, ())), len(gang.pods)
    subject = "its member has" if number == 1 else f"all {number} members have"
    return f"{subject} ended, {failed} of them failed" if failed else f"{subject} succeeded"


def _runs(gang: Gang) -> bool:
    """Return whether enough members run or have run; a finishing gang does not start again."""
    return gang.bound_or_done >= gang.group.min_member and gang.bound_or_done > 0


def _running(gang: Gang) -> str:
    waiting, done = len(gang.waiting), gang.bound_or_done - gang.scheduled
    rest = f"; {waiting} beyond the minimum wait" if waiting else ""
    also = f", {done} are done" if done else ""
    return f"{gang.scheduled} of at least {gang.group.min_member} members run{also}{rest}"


def _exempt(gang: Gang) -> Problem:
    why, number = gang.waiting[0].why_exempt, len(gang.waiting)
    pods = "its pod is" if number == 1 else f"its {number} pods are"
    return Problem(Reason.EXEMPT, f"{why}: {pods} left to kube-scheduler alone")


def _in_rotation(gang: Gang) -> Problem:
    """Return that a namespace has more gangs than one cycle considers; the same in every cycle."""
    message = (
        f"namespace {gang.group.namespace} has more than {accounting.MOST} gangs waiting in queue"
        f" {gang.queue}: every cycle considers {accounting.FIRST} of them, and the others in turns"
    )
    return Problem(Reason.BEHIND_IN_ORDER, message)


def _incomplete(gang: Gang) -> Problem:
    """Return what a gang without waiting members lacks."""
    gated = sum(pod.gated for pod in gang.pods)
    reserved = "; capacity is reserved for the rest" if gang.placeholders else ""
    return missing_members(gang.ready - gang.placeholders, gang.group.min_member, gated, reserved)


def _needs(wanted: Mapping[Shape, int]) -> str:
    return f"needs {_listed(wanted, lambda shape: amounts(shape.requests))}"


def _of(name: str, wanted: Mapping[Shape, int]) -> str:
    """Return what is needed of one resource: `4 x 1`, or `3 x 1 and 1 x 8`."""
    requested = Counter[int]()
    for shape, number in wanted.items():
        requested[shape.requests.amount(name)] += number
    requested.pop(0, None)
    return _listed(requested, partial(write_amount, name))


def _listed(wanted: Mapping[_Size, int], words: Callable[[_Size], str]) -> str:
    """List the number of members per shape; those beyond the first shapes as one number."""
    parts = [f"{number} x {words(each)}" for each, number in islice(wanted.items(), _SIZES)]
    if others := sum(islice(wanted.values(), _SIZES, None)):
        parts.append(counted(others, "other member"))
    return " and ".join(parts)


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= _MAX_LENGTH else f"{sentence[: _MAX_LENGTH - 2]} …"


def _some(names: Sequence[str], noun: str, number: int | None = None) -> str:
    """Name the first two and count the rest of *number*, or of *names*."""
    number = len(names) if number is None else number
    if number <= 2:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {number - 2} more {noun}"
