"""How an assembly comes together, is verified, and commits or falls apart.

Until the bindings are sent; what becomes of them is in `forward`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from extender.model.gang import PodGroup
from extender.model.pod import Pod, PodUid
from extender.permit import checks
from extender.permit.checks import displaced, group_objection, objection
from extender.permit.messages import Cause, Facts, Instruction, Verified, Verify, VerifyFailed
from extender.permit.states import GATHERING, AttemptState, GangAttempt, Table, WaitingBind
from extender.permit.timeouts import LearnedTimeout


class Assembling:
    """The life of assemblies, from the first arrival to the moment their bindings are sent."""

    def __init__(self, table: Table, facts: Facts, patience: LearnedTimeout) -> None:
        self._table = table
        self._facts = facts
        self._patience = patience
        self._epochs = count(1)

    # Coming together

    def join(self, hold: WaitingBind, group: PodGroup, now: float) -> Iterator[Instruction]:
        """Hold a new arrival; the first of its gang sets the deadline for all."""
        assembly = self._table.assemblies.get(group.key)
        if assembly is not None and assembly.state is AttemptState.PARTIAL:
            self._table.turn(assembly, AttemptState.EMPTY)  # nobody of it runs
            assembly = None
        elif assembly is not None and assembly.group.uid != group.uid:
            yield from self._table.end(assembly, Cause.GROUP_REPLACED, now)
            assembly = None
        is_first = assembly is None
        if assembly is None:
            assembly = self._begin(group, now)
        elif assembly.state is AttemptState.ASSEMBLING:
            assembly.group = group
        yield from self._table.mark_waiting(hold, assembly)
        if is_first and self._is_too_large(group, self._facts.seated(group.key), now):
            yield from self._table.end(assembly, Cause.TOO_LARGE, now)  # why bring the rest?
        else:
            yield from self.evaluate(assembly, now)

    def _begin(self, group: PodGroup, now: float) -> GangAttempt:
        limits = self._patience.limits(now)
        assembly = self._table.assemblies[group.key] = GangAttempt(
            group=group,
            epoch=next(self._epochs),
            deadline=now + limits.hold_s,
            verify_by=now + limits.hold_s + limits.verify_s,
            give_up=now + limits.answer_s,
        )
        for pod in self._facts.pods_of(group.key):
            self._table.add(assembly, pod.uid, pod.refusal)
        self._table.alarms.set(assembly.deadline, assembly.key)
        return assembly

    def evaluate(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Ask for the live PodGroup once enough members are here, and none is about to leave."""
        if assembly.state is not AttemptState.ASSEMBLING or assembly.reread_at is not None:
            return
        group = assembly.group
        if now < self._table.undecided.get(group.key, now):
            return
        if len(assembly.binds) + self._facts.seated(group.key) < group.min_member:
            return  # nearly always: one arrival of many
        if not checks.is_reached(
            group, self._shown(assembly), checks.scheduled_counts(group, self._facts)
        ):
            return
        self._table.turn(assembly, AttemptState.VERIFYING)
        assembly.epoch = next(self._epochs)
        assembly.seen = self._facts.group(group.key)
        yield Verify(group.key, assembly.epoch, group)

    def _shown(self, assembly: GangAttempt) -> list[WaitingBind]:
        """Return those who wait and whom the watch has shown: the others may be gone already.

        kube-scheduler asks for whoever was deleted until it hears of that itself.
        """
        return [each for each in assembly.binds.values() if self._facts.pod(each.uid) is not None]

    def _that_asked(self, answer: Verified | VerifyFailed) -> GangAttempt | None:
        """Return the assembly that waits for *answer*, None when its epoch has passed."""
        assembly = self._table.assemblies.get(answer.gang)
        if assembly is None or assembly.state is not AttemptState.VERIFYING:
            return None
        return assembly if assembly.epoch == answer.epoch else None

    def verified(self, event: Verified, now: float) -> Iterator[Instruction]:
        """Judge every member anew with the live PodGroup, and commit if enough remain."""
        assembly, group = self._that_asked(event), event.group
        if assembly is None:
            return
        known = self._facts.group(assembly.key)
        if not checks.is_same_request(known, assembly.seen):
            yield from self.group_changed(assembly, known, now)
            return
        cause = self._objection(group, assembly)
        if cause is None and self._facts.may_lose_all(assembly.key):
            cause = Cause.GANG_PREEMPTED  # those who stand may be gone when the others start
        if group is None or cause is not None:
            yield from self._table.end(assembly, cause or Cause.GROUP_GONE, now)
            return
        assembly.group = group
        # A slow read may be older than what the mirror shows: both must be satisfied. Seats are
        # counted before the members are judged: whoever takes one in between is then missing
        # from both counts instead of standing in both.
        demands = [
            (each, checks.scheduled_counts(each, self._facts)) for each in (group, known) if each
        ]
        yield from self._judge_members(assembly, now)
        shown = self._shown(assembly)
        if not assembly.binds:
            self._table.turn(assembly, AttemptState.EMPTY)
        elif all(checks.is_reached(each, shown, seated) for each, seated in demands):
            yield from self._commit(assembly, demands, shown, now)
        else:
            self._table.turn(assembly, AttemptState.ASSEMBLING)
            yield from self.time_passed(assembly, now)

    def _judge_members(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        for hold in tuple(assembly.binds.values()):
            cause = objection(hold, self._facts)
            if cause is not None:
                yield from self._table.release_call(hold, cause, now)
        for hold in tuple(displaced(assembly.binds.values(), self._facts)):
            yield from self._table.release_call(hold, Cause.NODE_FULL, now)

    def _commit(
        self,
        assembly: GangAttempt,
        demands: Sequence[checks.Demand],
        holds: Sequence[WaitingBind],
        now: float,
    ) -> Iterator[Instruction]:
        if any(self._is_too_large(group, seated.total, now) for group, seated in demands):
            yield from self._table.end(assembly, Cause.TOO_LARGE, now)
            return
        if now + self._patience.limits(now).commit_s > assembly.give_up:
            yield from self._table.end(assembly, Cause.TOO_LATE, now)
            return
        self._table.turn(assembly, AttemptState.COMMITTING)
        assembly.scheduled_before = demands[0][1]
        # The others follow once it stands (`forward`): nobody may start whose gang is refused.
        needed = checks.needed(demands, holds) or tuple(holds)
        yield from self._table.commit(needed, assembly.give_up)

    def _is_too_large(self, group: PodGroup, seated: int, now: float) -> bool:
        """Return whether the binder would give up midway; surplus members may be left behind."""
        limits = self._patience.limits(now)
        return limits.commit_needs_s(group.min_member - seated) > limits.commit_s

    def verify_failed(self, event: VerifyFailed, now: float) -> Iterator[Instruction]:
        """Read the PodGroup again in a moment, if there is one left."""
        assembly = self._that_asked(event)
        if assembly is None:
            return
        self._table.turn(assembly, AttemptState.ASSEMBLING, Cause.UNVERIFIED)
        assembly.reread_at = now + self._patience.limits(now).reread_s
        if assembly.reread_at >= assembly.deadline:
            yield from self._table.end(assembly, Cause.UNVERIFIED, now)
            return
        self._table.alarms.set(assembly.reread_at, assembly.key)

    # Falling apart

    def leave(self, hold: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Let one held call go; the others stay while the gang is within reach."""
        assembly = self._table.attempt_of(hold)
        yield from self._table.release_call(hold, cause, now)
        if assembly is not None:
            self.dissolve_if_empty(assembly)

    def dissolve_if_empty(self, assembly: GangAttempt) -> None:
        """End an attempt in which nobody waits any more; nobody is to blame."""
        if assembly.state in GATHERING and not assembly.binds:
            self._table.turn(assembly, AttemptState.EMPTY)

    def member_changed(
        self, assembly: GangAttempt, uid: PodUid, now: float
    ) -> Iterator[Instruction]:
        """Weigh anew, and doubt if this member will not come."""
        pod = self._facts.pod(uid)
        if pod is None or not checks.may_come(pod, assembly):
            self.mark_unknown(assembly, now)
        yield from self.evaluate(assembly, now)

    def member_refused(self, assembly: GangAttempt, pod: Pod, now: float) -> Iterator[Instruction]:
        """Doubt if kube-scheduler found no node for a member since the assembly began.

        What it said before does not count: the member was woken since, and looked at again or
        about to be. (If it finds no node for the same reasons it writes nothing; then the
        deadline must do.)
        """
        if pod.refusal == assembly.siblings.get(pod.uid, ""):
            return
        self._table.add(assembly, pod.uid)
        assembly.siblings[pod.uid] = pod.refusal
        if pod.fits_no_node and not checks.waits_for_victims(pod, self._facts):
            assembly.stuck.add(pod.uid)
        else:
            assembly.stuck.discard(pod.uid)
        yield from self.member_changed(assembly, pod.uid, now)

    def mark_unknown(self, assembly: GangAttempt, now: float) -> None:
        """Return a gang that lost a member some grace: controllers replace pods quickly."""
        if assembly.unknown_at is None:
            assembly.unknown_at = now + self._patience.limits(now).grace_s
            self._table.alarms.set(assembly.unknown_at, assembly.key)

    def group_changed(
        self, assembly: GangAttempt, group: PodGroup | None, now: float
    ) -> Iterator[Instruction]:
        """Go on with the changed group, or stop; bindings that were sent stay sent."""
        cause = group_objection(group, assembly.group.uid)
        if assembly.state is AttemptState.PARTIAL and cause and not assembly.binds:
            self._table.turn(assembly, AttemptState.EMPTY, cause)
        if assembly.state not in GATHERING:
            return
        cause = self._objection(group, assembly)
        if group is None or cause is not None:
            yield from self._table.end(assembly, cause or Cause.GROUP_GONE, now)
            return
        if assembly.state is AttemptState.VERIFYING:
            if checks.is_same_request(group, assembly.seen):
                return
            # The read that is under way may be older than this change.
            self._table.turn(assembly, AttemptState.ASSEMBLING)
        assembly.group = group
        yield from self.evaluate(assembly, now)
        yield from self.time_passed(assembly, now)

    def _objection(self, group: PodGroup | None, assembly: GangAttempt) -> Cause | None:
        """Return why an assembly cannot go on with *group*.

        What its members were promised counts in the queue that they asked for then; who has begun
        is counted where that was.
        """
        cause = group_objection(group, assembly.group.uid)
        if cause is not None or group is None or group.queue == assembly.group.queue:
            return cause
        return None if self._facts.seated(assembly.key) else Cause.GROUP_MOVED

    # Time

    def time_passed(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Do what is due for one assembly."""
        if assembly.state is AttemptState.VERIFYING:
            yield from self._while_verifying(assembly, now)
        elif assembly.state is AttemptState.ASSEMBLING:
            yield from self._while_assembling(assembly, now)

    def _while_verifying(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Let a verification that began in time finish, but not for ever."""
        if now >= assembly.verify_by:
            yield from self._table.end(assembly, Cause.UNVERIFIED, now)
        elif now >= assembly.deadline:
            self._table.alarms.set(assembly.verify_by, assembly.key)

    def _while_assembling(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        if now >= assembly.deadline:
            yield from self._table.end(assembly, Cause.DEADLINE, now)
            return
        if assembly.unknown_at is not None and now >= assembly.unknown_at:
            assembly.unknown_at = None
            if not checks.is_within_reach(assembly, self._facts):
                cause = Cause.SIBLING_UNSCHEDULABLE if assembly.stuck else Cause.NOT_ENOUGH_MEMBERS
                yield from self._table.end(assembly, cause, now)
                return
        if assembly.reread_at is not None and now >= assembly.reread_at:
            assembly.reread_at = None
            yield from self.evaluate(assembly, now)
