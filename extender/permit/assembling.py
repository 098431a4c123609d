"""Assembles the members of a gang, verifies it, and commits or aborts the attempt.

Until the bindings are sent; what happens after that is in `committing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from extender.model.gang import PodGroup
from extender.model.pod import Pod, PodUid
from extender.permit import checks
from extender.permit.checks import cause_to_refuse, cause_to_refuse_group, displaced
from extender.permit.messages import Cause, Facts, Instruction, Verified, Verify, VerifyFailed
from extender.permit.states import BEFORE_COMMIT, AttemptState, GangAttempt, Table, WaitingBind
from extender.permit.timeouts import LearnedTimeout


class Assembling:
    """The life of an attempt, from the first arrival to the moment its bindings are sent."""

    def __init__(self, table: Table, facts: Facts, learned: LearnedTimeout) -> None:
        self._table = table
        self._facts = facts
        self._learned = learned
        self._epochs = count(1)

    # Assemble

    def join(self, bind: WaitingBind, group: PodGroup, now: float) -> Iterator[Instruction]:
        """Let a new arrival wait; the first of its gang sets the deadline for all."""
        attempt = self._table.attempts.get(group.key)
        if attempt is not None and attempt.state is AttemptState.PARTIAL:
            self._table.move_attempt(attempt, AttemptState.EMPTY)  # no member runs
            attempt = None
        elif attempt is not None and attempt.group.uid != group.uid:
            yield from self._table.end(attempt, Cause.GROUP_REPLACED, now)
            attempt = None
        is_first = attempt is None
        if attempt is None:
            attempt = self._begin(group, now)
        elif attempt.state is AttemptState.ASSEMBLING:
            attempt.group = group
        yield from self._table.mark_waiting(bind, attempt)
        if is_first and self._is_too_large(group, self._facts.scheduled(group.key), now):
            yield from self._table.end(
                attempt, Cause.TOO_LARGE, now
            )  # no need to wait for the rest
        else:
            yield from self.evaluate(attempt, now)

    def _begin(self, group: PodGroup, now: float) -> GangAttempt:
        timeouts = self._learned.current
        attempt = self._table.attempts[group.key] = GangAttempt(
            group=group,
            epoch=next(self._epochs),
            deadline=now + timeouts.hold_s,
            verify_by=now + timeouts.hold_s + timeouts.verify_s,
            give_up=now + timeouts.answer_s,
        )
        for pod in self._facts.pods_of(group.key):
            self._table.add(attempt, pod.uid, pod.refusal)
        self._table.alarms.set(attempt.deadline, attempt.key)
        return attempt

    def evaluate(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Request the live PodGroup once enough members wait, and an eviction is not undecided."""
        if attempt.state is not AttemptState.ASSEMBLING or attempt.reread_at is not None:
            return
        group = attempt.group
        if now < self._table.undecided.get(group.key, now):
            return
        if len(attempt.binds) + self._facts.scheduled(group.key) < group.min_member:
            return  # nearly always: one arrival of many
        if not checks.is_reached(
            group, self._shown(attempt), checks.scheduled_counts(group, self._facts)
        ):
            return
        self._table.move_attempt(attempt, AttemptState.VERIFYING)
        attempt.epoch = next(self._epochs)
        attempt.seen = self._facts.group(group.key)
        yield Verify(group.key, attempt.epoch, group)

    def _shown(self, attempt: GangAttempt) -> list[WaitingBind]:
        """Return the waiting binds whose pod the watch has shown; the others may be gone already.

        kube-scheduler binds a deleted pod until it learns of the deletion itself.
        """
        return [each for each in attempt.binds.values() if self._facts.pod(each.uid) is not None]

    def _verifying(self, answer: Verified | VerifyFailed) -> GangAttempt | None:
        """Return the attempt that waits for *answer*; None when its epoch has passed."""
        attempt = self._table.attempts.get(answer.gang)
        if attempt is None or attempt.state is not AttemptState.VERIFYING:
            return None
        return attempt if attempt.epoch == answer.epoch else None

    def verified(self, event: Verified, now: float) -> Iterator[Instruction]:
        """Check every member again with the live PodGroup, and commit if enough remain."""
        attempt, group = self._verifying(event), event.group
        if attempt is None:
            return
        known = self._facts.group(attempt.key)
        if not checks.is_same_request(known, attempt.seen):
            yield from self.group_changed(attempt, known, now)
            return
        cause = self._cause(group, attempt)
        if cause is None and self._facts.may_lose_all(attempt.key):
            cause = Cause.GANG_PREEMPTED  # scheduled members may be gone when the others start
        if group is None or cause is not None:
            yield from self._table.end(attempt, cause or Cause.GROUP_GONE, now)
            return
        attempt.group = group
        # A slow read may be older than what the cache shows: both must be satisfied. Scheduled
        # members are counted before the waiting ones are checked. A pod that becomes scheduled in
        # between is then missing from both counts instead of being in both.
        demands = [
            (each, checks.scheduled_counts(each, self._facts)) for each in (group, known) if each
        ]
        yield from self._judge_members(attempt, now)
        shown = self._shown(attempt)
        if not attempt.binds:
            self._table.move_attempt(attempt, AttemptState.EMPTY)
        elif all(checks.is_reached(each, shown, scheduled) for each, scheduled in demands):
            yield from self._commit(attempt, demands, shown, now)
        else:
            self._table.move_attempt(attempt, AttemptState.ASSEMBLING)
            yield from self.time_passed(attempt, now)

    def _judge_members(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        for bind in tuple(attempt.binds.values()):
            cause = cause_to_refuse(bind, self._facts)
            if cause is not None:
                yield from self._table.end_bind(bind, cause, now)
        for bind in tuple(displaced(attempt.binds.values(), self._facts)):
            yield from self._table.end_bind(bind, Cause.NODE_FULL, now)

    def _commit(
        self,
        attempt: GangAttempt,
        demands: Sequence[checks.Demand],
        binds: Sequence[WaitingBind],
        now: float,
    ) -> Iterator[Instruction]:
        if any(self._is_too_large(group, scheduled.total, now) for group, scheduled in demands):
            yield from self._table.end(attempt, Cause.TOO_LARGE, now)
            return
        if now + self._learned.current.commit_s > attempt.give_up:
            yield from self._table.end(attempt, Cause.TOO_LATE, now)
            return
        self._table.move_attempt(attempt, AttemptState.COMMITTING)
        attempt.scheduled_before = demands[0][1]
        # The others follow once the gang has started (`committing`): no pod of a refused gang may
        # start.
        needed = checks.needed(demands, binds) or tuple(binds)
        yield from self._table.commit(needed, attempt.give_up)

    def _is_too_large(self, group: PodGroup, scheduled: int, now: float) -> bool:
        """Return whether binding takes longer than the commit may; surplus members do not count."""
        timeouts = self._learned.current
        return timeouts.commit_needs_s(group.min_member - scheduled) > timeouts.commit_s

    def verify_failed(self, event: VerifyFailed, now: float) -> Iterator[Instruction]:
        """Read the PodGroup again soon, if there is time left."""
        attempt = self._verifying(event)
        if attempt is None:
            return
        self._table.move_attempt(attempt, AttemptState.ASSEMBLING, Cause.UNVERIFIED)
        attempt.reread_at = now + self._learned.current.reread_s
        if attempt.reread_at >= attempt.deadline:
            yield from self._table.end(attempt, Cause.UNVERIFIED, now)
            return
        self._table.alarms.set(attempt.reread_at, attempt.key)

    # Abort

    def release_member(self, bind: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Answer one waiting bind; the others stay while enough members are within reach."""
        attempt = self._table.attempt_of(bind)
        yield from self._table.end_bind(bind, cause, now)
        if attempt is not None:
            self.dissolve_if_empty(attempt)

    def dissolve_if_empty(self, attempt: GangAttempt) -> None:
        """End an attempt without waiting binds; the gang need not back off."""
        if attempt.state in BEFORE_COMMIT and not attempt.binds:
            self._table.move_attempt(attempt, AttemptState.EMPTY)

    def member_changed(
        self, attempt: GangAttempt, uid: PodUid, now: float
    ) -> Iterator[Instruction]:
        """Evaluate the attempt again; start the grace period if this member will not come."""
        pod = self._facts.pod(uid)
        if pod is None or not checks.may_come(pod, attempt):
            self.start_grace_period(attempt, now)
        yield from self.evaluate(attempt, now)

    def member_refused(self, attempt: GangAttempt, pod: Pod, now: float) -> Iterator[Instruction]:
        """Start the grace period if kube-scheduler found no node for a member in this attempt.

        An older condition does not count: the member was woken since, and kube-scheduler has
        checked it again or is about to. (If it finds no node for the same reasons it writes
        nothing; then the deadline ends the attempt.)
        """
        if pod.refusal == attempt.siblings.get(pod.uid, ""):
            return
        self._table.add(attempt, pod.uid)
        attempt.siblings[pod.uid] = pod.refusal
        if pod.fits_no_node and not checks.waits_for_victims(pod, self._facts):
            attempt.stuck.add(pod.uid)
        else:
            attempt.stuck.discard(pod.uid)
        yield from self.member_changed(attempt, pod.uid, now)

    def start_grace_period(self, attempt: GangAttempt, now: float) -> None:
        """Give a gang that lost a member a grace period: controllers replace pods quickly."""
        if attempt.recount_at is None:
            attempt.recount_at = now + self._learned.current.grace_s
            self._table.alarms.set(attempt.recount_at, attempt.key)

    def group_changed(
        self, attempt: GangAttempt, group: PodGroup | None, now: float
    ) -> Iterator[Instruction]:
        """Continue with the changed group, or stop; bindings that were sent stay sent."""
        cause = cause_to_refuse_group(group, attempt.group.uid)
        if attempt.state is AttemptState.PARTIAL and cause and not attempt.binds:
            self._table.move_attempt(attempt, AttemptState.EMPTY, cause)
        if attempt.state not in BEFORE_COMMIT:
            return
        cause = self._cause(group, attempt)
        if group is None or cause is not None:
            yield from self._table.end(attempt, cause or Cause.GROUP_GONE, now)
            return
        if attempt.state is AttemptState.VERIFYING:
            if checks.is_same_request(group, attempt.seen):
                return
            # The read that is in flight may be older than this change.
            self._table.move_attempt(attempt, AttemptState.ASSEMBLING)
        attempt.group = group
        yield from self.evaluate(attempt, now)
        yield from self.time_passed(attempt, now)

    def _cause(self, group: PodGroup | None, attempt: GangAttempt) -> Cause | None:
        """Return why an attempt cannot continue with *group*.

        The reservations of its members count in the queue at that time. A gang that has started
        keeps counting in that queue.
        """
        cause = cause_to_refuse_group(group, attempt.group.uid)
        if cause is not None or group is None or group.queue == attempt.group.queue:
            return cause
        return None if self._facts.scheduled(attempt.key) else Cause.GROUP_MOVED

    # Time

    def time_passed(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Do what is due for one attempt."""
        if attempt.state is AttemptState.VERIFYING:
            yield from self._while_verifying(attempt, now)
        elif attempt.state is AttemptState.ASSEMBLING:
            yield from self._while_assembling(attempt, now)

    def _while_verifying(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        """Let a verification that began in time finish, but not for ever."""
        if now >= attempt.verify_by:
            yield from self._table.end(attempt, Cause.UNVERIFIED, now)
        elif now >= attempt.deadline:
            self._table.alarms.set(attempt.verify_by, attempt.key)

    def _while_assembling(self, attempt: GangAttempt, now: float) -> Iterator[Instruction]:
        if now >= attempt.deadline:
            yield from self._table.end(attempt, Cause.DEADLINE, now)
            return
        if attempt.recount_at is not None and now >= attempt.recount_at:
            attempt.recount_at = None
            if not checks.is_within_reach(attempt, self._facts):
                cause = Cause.SIBLING_UNSCHEDULABLE if attempt.stuck else Cause.NOT_ENOUGH_MEMBERS
                yield from self._table.end(attempt, cause, now)
                return
        if attempt.reread_at is not None and now >= attempt.reread_at:
            attempt.reread_at = None
            yield from self.evaluate(attempt, now)
