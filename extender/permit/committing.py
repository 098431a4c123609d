"""What happens to a gang after its bindings were sent: it has started, or it is bound in part.

There is no way back from here. A missing member is bound as it comes, as long as any member runs. A
member that is not needed follows once the others have their outcomes. Once no member runs, nothing
has happened, and the next members assemble anew. Only a gang that stays below its minimum for long
is evicted, if that is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.model.gang import GangKey, PodGroup
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Status
from extender.permit import checks
from extender.permit.checks import UNSCHEDULED_SET, cause_to_refuse, cause_to_refuse_group
from extender.permit.messages import (
    BackOff,
    Cause,
    EvictionRefused,
    EvictionStarted,
    EvictPartial,
    Facts,
    FoundPartial,
    Instruction,
    Release,
    ReportPartial,
)
from extender.permit.states import (
    BEFORE_COMMIT,
    AttemptState,
    BindState,
    GangAttempt,
    Table,
    WaitingBind,
)
from extender.permit.timeouts import LearnedTimeout
from extender.ports import BindResult, EvictOrder

#: Has a node, or is about to be shown on one.
_BOUND_OR_COMING = UNSCHEDULED_SET | SCHEDULED_SET | {Status.SUCCEEDED}
#: Longer than it takes to request the eviction of each member, however often. If the outcome is
#: never reported, later members are then treated as if the gang had stayed.
_UNDECIDED_S = 60.0


class Committing:
    """The life of an attempt from the moment its bindings are sent."""

    def __init__(self, table: Table, facts: Facts, learned: LearnedTimeout) -> None:
        self._table = table
        self._facts = facts
        self._learned = learned

    def settled(
        self, attempt: GangAttempt, bind: WaitingBind, result: BindResult, now: float
    ) -> Iterator[Instruction]:
        """Count an outcome; the last one decides whether the gang has started."""
        if result is BindResult.BOUND:
            attempt.bound[bind.uid] = bind.role
        elif result is BindResult.UNKNOWN:
            attempt.unknown.add(bind.uid)
        elif result is BindResult.FAILED:
            attempt.failed.add(bind.uid)
        if attempt.under_way:
            return
        if attempt.state is AttemptState.PARTIAL:
            self.check_again(attempt, bind if result is BindResult.BOUND else None)
        elif checks.is_complete(attempt, filter(self._is_there, attempt.bound)):
            self._start(attempt)
            yield from self._follow(attempt, now)
        else:
            yield from self._end_below_minimum(attempt, now)
            yield from self._follow(attempt, now)
        self._leave_to_next_leader(attempt)

    def _follow(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Send the binds that waited for the outcome of the others, if some of those are bound."""
        answer_s = self._learned.current.answer_s
        gone = cause_to_refuse_group(self._facts.group(attempt.key), attempt.group.uid)
        if gone is None and not any(map(self._is_there, attempt.bound)):
            # The outcome of the others is unknown, or the bound members are gone since.
            gone = Cause.BIND_FAILED
        if gone is None and self._facts.may_lose_all(attempt.key):
            gone = Cause.GANG_PREEMPTED
        ready: list[WaitingBind] = []
        until = float("inf")
        for bind in _waiting_binds(attempt):
            by = min(call.arrived for call in bind.calls) + answer_s
            cause = gone or cause_to_refuse(bind, self._facts)
            if cause is None and not self._facts.may_bind(bind.uid, bind.node):
                cause = Cause.CAPACITY_RESERVED
            if cause is None and by <= now:
                cause = Cause.TOO_LATE
            if cause is not None:
                yield from self._table.end_bind(bind, cause, now)
            else:
                ready.append(bind)
                until = min(until, by)
        if ready:
            yield from self._table.commit(tuple(ready), until)

    def _is_there(self, uid: PodUid) -> bool:
        pod = self._facts.pod_or_filtered(uid)  # our watch may be behind our bindings
        return pod is not None and pod.status in _BOUND_OR_COMING

    def close(self, attempt: GangAttempt, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse the waiting binds; what was sent finishes."""
        for bind in _waiting_binds(attempt):
            yield from self._table.end_bind(bind, cause, now)
        self._leave_to_next_leader(attempt)

    def _leave_to_next_leader(self, attempt: GangAttempt) -> None:
        """Leave a partial gang to the next leader, which sets a deadline of its own."""
        is_partial = attempt.state is AttemptState.PARTIAL and not attempt.binds
        if self._table.closed and is_partial:
            self._table.move_attempt(attempt, AttemptState.EMPTY, self._table.closed)

    def _start(self, attempt: GangAttempt) -> None:
        self._table.partial_until.pop(attempt.key, None)
        self._table.move_attempt(attempt, AttemptState.DONE)
        self._table.backoff.reset(attempt.key)

    def _end_below_minimum(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Keep the gang partial if a member may have started; otherwise nothing has happened."""
        if not attempt.bound and not attempt.unknown:
            for uid in sorted(attempt.failed):
                yield Release(uid)
            yield from self._table.end(attempt, Cause.BIND_FAILED, now)
            return
        self._table.partial_until.pop(attempt.key, None)
        self._table.move_attempt(attempt, AttemptState.PARTIAL)
        timeouts = self._learned.current
        attempt.deadline = now + (timeouts.evict_partial_s or timeouts.partial_s)
        self._schedule_check(attempt, now)
        for pod in self._facts.pods_of(attempt.key):
            self._table.add(attempt, pod.uid, pod.refusal)
        yield ReportPartial(attempt.key)

    def found_partial(self, event: FoundPartial, now: float) -> Iterable[Instruction]:
        """Evict a gang in time that an earlier leader bound in part, if that is configured."""
        after_s = self._learned.current.evict_partial_s
        group = self._facts.group(event.gang)
        if self._table.closed or not after_s or group is None or not self._is_partial(group):
            return ()
        attempt = self._table.attempts.get(group.key)
        if attempt is None:
            self._resume(group, now + after_s, now)
        elif attempt.state is not AttemptState.PARTIAL:
            self._table.partial_until[group.key] = now + after_s
        return ()

    def attempt_ended(self, gang: GangKey, now: float) -> None:
        """Resume a gang that was found partial while it assembled, and did not start."""
        deadline, group = self._table.partial_until.pop(gang, None), self._facts.group(gang)
        if deadline is not None and group is not None and self._is_partial(group):
            self._resume(group, deadline, now)

    def _is_partial(self, group: PodGroup) -> bool:
        scheduled = checks.scheduled_counts(group, self._facts)
        return scheduled.total > 0 and not checks.is_satisfied(group, scheduled)

    def _resume(self, group: PodGroup, deadline: float, now: float) -> None:
        """Complete, until *deadline*, a gang that another leader began to bind."""
        attempt = self._table.attempts[group.key] = GangAttempt(
            group=group,
            epoch=0,  # no verification of it is valid any more
            deadline=deadline,
            verify_by=deadline,
            give_up=deadline,
            state=AttemptState.PARTIAL,
        )
        self._schedule_check(attempt, now)
        for pod in self._facts.pods_of(group.key):
            self._table.add(attempt, pod.uid, pod.refusal)

    def eviction_started(self, event: EvictionStarted, now: float) -> Iterator[Instruction]:
        """Release the reservations of a gang that is evicted, now that this is certain."""
        self._table.undecided.pop(event.gang, None)
        self._table.partial_until.pop(event.gang, None)
        attempt = self._table.attempts.get(event.gang)
        if attempt is not None and attempt.state in BEFORE_COMMIT:
            yield from self._table.end(attempt, Cause.EVICTED_PARTIAL, now)
        else:
            yield BackOff(event.gang, self._table.backoff.aborted(event.gang, now))

    def eviction_refused(self, event: EvictionRefused, now: float) -> Iterator[Instruction]:
        """Let the rest of a gang that cannot be evicted come at once: nothing else helps it."""
        self._table.undecided.pop(event.gang, None)
        if self._table.backoff.is_active(event.gang, now):
            self._table.backoff.reset(event.gang)
            yield BackOff(event.gang, 0.0)

    def _schedule_check(self, attempt: GangAttempt, now: float) -> None:
        """Check again by a timer, too: the end of a member's reservation is not reported."""
        check_at = now + self._learned.current.check_s
        attempt.check_at = min(check_at, attempt.deadline)
        self._table.alarms.set(attempt.check_at, attempt.key)

    def check_again(self, attempt: GangAttempt, just_bound: WaitingBind | None = None) -> None:
        """Check whether a partial gang runs by now, or has no member left to complete.

        Members that were bound before may be gone by now. The one *just_bound* is not scheduled
        yet, unless the watch was faster. Scheduled members are counted first, so that none is
        counted twice.
        """
        if attempt.state is not AttemptState.PARTIAL or attempt.binds:
            return
        group = self._facts.group(attempt.key) or attempt.group
        scheduled = checks.scheduled_counts(group, self._facts)
        coming = [just_bound] if just_bound and self._is_unscheduled(just_bound.uid) else []
        if checks.is_reached(group, coming, scheduled):
            self._start(attempt)
        elif not (scheduled.total or coming or any(map(self._may_be_bound, attempt.unknown))):
            self._table.move_attempt(attempt, AttemptState.EMPTY)

    def _is_unscheduled(self, uid: PodUid) -> bool:
        pod = self._facts.pod_or_filtered(uid)
        return pod is not None and pod.status in UNSCHEDULED_SET

    def _may_be_bound(self, uid: PodUid) -> bool:
        """Return whether the outcome is unknown: not shown, and the reservation still there."""
        pod = self._facts.pod(uid)
        if pod is None or pod.status not in UNSCHEDULED_SET:
            return False
        return self._facts.reserved_node(uid) is not None

    def time_passed(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """End the completion of a partial gang, or evict the gang, when its time is over."""
        if attempt.state is not AttemptState.PARTIAL or now < attempt.check_at:
            return
        if now < attempt.deadline:
            self.check_again(attempt)
            if self._table.attempts.get(attempt.key) is attempt:
                self._schedule_check(attempt, now)
            return
        timeouts = self._learned.current
        group = self._facts.group(attempt.key) or attempt.group
        if attempt.binds:
            self._table.alarms.set(now + timeouts.commit_s, attempt.key)
        elif timeouts.evict_partial_s and self._is_partial(group):
            yield from self._evict(attempt, now)
        else:
            self._table.move_attempt(attempt, AttemptState.EMPTY)

    def _evict(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Stop waiting for the rest, and evict the members that use nodes for nothing.

        None of its members is bound meanwhile. But until it is certain that all of them may be
        evicted, the reservations of the others stay, and their binds wait. If one may not be
        evicted, the gang can only be completed, and kube-scheduler retries refused pods late.
        """
        self._table.move_attempt(attempt, AttemptState.ABORTED, Cause.EVICTED_PARTIAL)
        self._table.undecided[attempt.key] = now + _UNDECIDED_S
        why = Cause.EVICTED_PARTIAL.text(attempt.key)
        yield EvictPartial(
            attempt.key,
            tuple(
                EvictOrder(uid=pod.uid, namespace=pod.namespace, name=pod.name, why=why)
                for pod in self._occupying(attempt)
            ),
        )

    def _occupying(self, attempt: GangAttempt) -> Iterator[Pod]:
        """Return the pods that have a node or may have one: the watch shows our bindings later."""
        sent = attempt.bound.keys() | set(filter(self._may_be_bound, attempt.unknown))
        pods = {pod.uid: pod for pod in self._facts.pods_of(attempt.key)}
        for uid in sent - pods.keys():
            if (pod := self._facts.pod_or_filtered(uid)) is not None:
                pods[uid] = pod
        for uid, pod in sorted(pods.items()):
            if pod.status in SCHEDULED_SET or (uid in sent and pod.status in UNSCHEDULED_SET):
                yield pod


def _waiting_binds(attempt: GangAttempt) -> list[WaitingBind]:
    return [bind for bind in attempt.binds.values() if bind.state is BindState.WAITING]
