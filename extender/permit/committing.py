"""What becomes of a gang whose bindings were sent: it has started, or it is bound in part.

There is no way back from here: whoever is missing is bound as it comes, as long as anybody runs,
and who is not needed follows once the others have their outcomes. Once nobody runs, nothing has
happened, and the next members gather anew. Only a gang that stays short for long is taken back, if
that was asked for, and that is an eviction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.model.gang import GangKey, PodGroup
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Status
from extender.permit import checks
from extender.permit.checks import UNSEATED_SET, group_objection, objection
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
    GATHERING,
    AttemptState,
    BindState,
    GangAttempt,
    Table,
    WaitingBind,
)
from extender.permit.timeouts import LearnedTimeout
from extender.ports import BindResult, EvictOrder

#: Has a node, or is about to be shown on one.
_THERE = UNSEATED_SET | SCHEDULED_SET | {Status.SUCCEEDED}
#: Longer than it takes to ask for each of a gang, however often: should nobody ever tell what came
#: of it, whoever comes after that is judged as if it had stayed.
_DECIDED_S = 60.0


class Committing:
    """The life of assemblies from the moment their bindings are sent."""

    def __init__(self, table: Table, facts: Facts, patience: LearnedTimeout) -> None:
        self._table = table
        self._facts = facts
        self._patience = patience

    def settled(
        self, assembly: GangAttempt, hold: WaitingBind, result: BindResult, now: float
    ) -> Iterator[Instruction]:
        """Count an outcome; the last one tells whether the gang has started."""
        if result is BindResult.BOUND:
            assembly.bound[hold.uid] = hold.role
        elif result is BindResult.UNKNOWN:
            assembly.unknown.add(hold.uid)
        elif result is BindResult.FAILED:
            assembly.failed.add(hold.uid)
        if assembly.under_way:
            return
        if assembly.state is AttemptState.PARTIAL:
            self.look_again(assembly, hold if result is BindResult.BOUND else None)
        elif checks.is_complete(assembly, filter(self._is_there, assembly.bound)):
            self._start(assembly)
            yield from self._follow(assembly, now)
        else:
            yield from self._fall_short(assembly, now)
            yield from self._follow(assembly, now)
        self._hand_over(assembly)

    def _follow(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Send those who waited for what becomes of the others, if some of them stand by now."""
        answer_s = self._patience.limits(now).answer_s
        gone = group_objection(self._facts.group(assembly.key), assembly.group.uid)
        if gone is None and not any(map(self._is_there, assembly.bound)):
            # Nobody knows what became of the others, or those who were bound are gone since.
            gone = Cause.BIND_FAILED
        if gone is None and self._facts.may_lose_all(assembly.key):
            gone = Cause.GANG_PREEMPTED
        ready: list[WaitingBind] = []
        until = float("inf")
        for hold in _waiting(assembly):
            by = min(waiter.arrived for waiter in hold.calls) + answer_s
            cause = gone or objection(hold, self._facts)
            if cause is None and not self._facts.may_bind(hold.uid, hold.node):
                cause = Cause.CAPACITY_RESERVED
            if cause is None and by <= now:
                cause = Cause.TOO_LATE
            if cause is not None:
                yield from self._table.release_call(hold, cause, now)
            else:
                ready.append(hold)
                until = min(until, by)
        if ready:
            yield from self._table.commit(tuple(ready), until)

    def _is_there(self, uid: PodUid) -> bool:
        pod = self._facts.arriving(uid)  # our watch may be behind what we have bound
        return pod is not None and pod.status in _THERE

    def close(self, assembly: GangAttempt, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse those who wait; what was sent finishes."""
        for hold in _waiting(assembly):
            yield from self._table.release_call(hold, cause, now)
        self._hand_over(assembly)

    def _hand_over(self, assembly: GangAttempt) -> None:
        """Leave a gang in part to whoever leads next, and to the time that he gives it."""
        is_in_part = assembly.state is AttemptState.PARTIAL and not assembly.binds
        if self._table.closed and is_in_part:
            self._table.turn(assembly, AttemptState.EMPTY, self._table.closed)

    def _start(self, assembly: GangAttempt) -> None:
        self._table.short_until.pop(assembly.key, None)
        self._table.turn(assembly, AttemptState.DONE)
        self._table.backoff.started(assembly.key)

    def _fall_short(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Go on forward if a member may have started; otherwise nothing has happened."""
        if not assembly.bound and not assembly.unknown:
            for uid in sorted(assembly.failed):
                yield Release(uid)
            yield from self._table.end(assembly, Cause.BIND_FAILED, now)
            return
        self._table.short_until.pop(assembly.key, None)
        self._table.turn(assembly, AttemptState.PARTIAL)
        limits = self._patience.limits(now)
        assembly.deadline = now + (limits.evict_partial_s or limits.partial_s)
        self._look_later(assembly, now)
        for pod in self._facts.pods_of(assembly.key):
            self._table.add(assembly, pod.uid, pod.refusal)
        yield ReportPartial(assembly.key)

    def found_partial(self, event: FoundPartial, now: float) -> Iterable[Instruction]:
        """Take a gang back in time though its commit was somebody else's, if that was asked for."""
        take_back_s, group = (
            self._patience.limits(now).evict_partial_s,
            self._facts.group(event.gang),
        )
        if self._table.closed or not take_back_s or group is None or not self._is_in_part(group):
            return ()
        assembly = self._table.assemblies.get(group.key)
        if assembly is None:
            self._take_up(group, now + take_back_s, now)
        elif assembly.state is not AttemptState.PARTIAL:
            self._table.short_until[group.key] = now + take_back_s
        return ()

    def attempt_ended(self, gang: GangKey, now: float) -> None:
        """Take up a gang that was found in part while it assembled, and did not start."""
        deadline, group = self._table.short_until.pop(gang, None), self._facts.group(gang)
        if deadline is not None and group is not None and self._is_in_part(group):
            self._take_up(group, deadline, now)

    def _is_in_part(self, group: PodGroup) -> bool:
        seated = checks.scheduled_counts(group, self._facts)
        return seated.total > 0 and not checks.is_satisfied(group, seated)

    def _take_up(self, group: PodGroup, deadline: float, now: float) -> None:
        """Complete forward, until *deadline*, what somebody else began to bind."""
        assembly = self._table.assemblies[group.key] = GangAttempt(
            group=group,
            epoch=0,  # nothing of it is verified any more
            deadline=deadline,
            verify_by=deadline,
            give_up=deadline,
            state=AttemptState.PARTIAL,
        )
        self._look_later(assembly, now)
        for pod in self._facts.pods_of(group.key):
            self._table.add(assembly, pod.uid, pod.refusal)

    def eviction_started(self, event: EvictionStarted, now: float) -> Iterator[Instruction]:
        """Return the places of a gang away that is taken back: not before that is certain."""
        self._table.undecided.pop(event.gang, None)
        self._table.short_until.pop(event.gang, None)
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state in GATHERING:
            yield from self._table.end(assembly, Cause.EVICTED_PARTIAL, now)
        else:
            yield BackOff(event.gang, self._table.backoff.aborted(event.gang, now))

    def eviction_refused(self, event: EvictionRefused, now: float) -> Iterator[Instruction]:
        """Let the rest of a gang that cannot be taken back come at once: nothing else helps it."""
        self._table.undecided.pop(event.gang, None)
        if self._table.backoff.lasts(event.gang, now):
            self._table.backoff.started(event.gang)
            yield BackOff(event.gang, 0.0)

    def _look_later(self, assembly: GangAttempt, now: float) -> None:
        """Look again by ourselves, too: nobody tells when the promise of a member lapses."""
        look_at = now + self._patience.limits(now).look_s
        assembly.look_at = min(look_at, assembly.deadline)
        self._table.alarms.set(assembly.look_at, assembly.key)

    def look_again(self, assembly: GangAttempt, just_bound: WaitingBind | None = None) -> None:
        """See whether a gang in part runs by now, or nothing of it is left to be completed.

        Who was bound before may be gone by now. Who is *just_bound* has no seat yet, unless the
        watch was faster; seats are counted first, so that nobody is counted twice.
        """
        if assembly.state is not AttemptState.PARTIAL or assembly.binds:
            return
        group = self._facts.group(assembly.key) or assembly.group
        seated = checks.scheduled_counts(group, self._facts)
        coming = [just_bound] if just_bound and self._is_unseated(just_bound.uid) else []
        if checks.is_reached(group, coming, seated):
            self._start(assembly)
        elif not (seated.total or coming or any(map(self._may_be_bound, assembly.unknown))):
            self._table.turn(assembly, AttemptState.EMPTY)

    def _is_unseated(self, uid: PodUid) -> bool:
        pod = self._facts.arriving(uid)
        return pod is not None and pod.status in UNSEATED_SET

    def _may_be_bound(self, uid: PodUid) -> bool:
        """Return whether an outcome is unknown still: not shown, and its promise has not lapsed."""
        pod = self._facts.pod(uid)
        if pod is None or pod.status not in UNSEATED_SET:
            return False
        return self._facts.reserved_node(uid) is not None

    def time_passed(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Return up the completion of a gang in part, or the gang itself, when its time is over."""
        if assembly.state is not AttemptState.PARTIAL or now < assembly.look_at:
            return
        if now < assembly.deadline:
            self.look_again(assembly)
            if self._table.assemblies.get(assembly.key) is assembly:
                self._look_later(assembly, now)
            return
        limits = self._patience.limits(now)
        group = self._facts.group(assembly.key) or assembly.group
        seated = checks.scheduled_counts(group, self._facts)
        if assembly.binds:
            self._table.alarms.set(now + limits.commit_s, assembly.key)
        elif limits.evict_partial_s and seated.total and not checks.is_satisfied(group, seated):
            yield from self._take_back(assembly, now)
        else:
            self._table.turn(assembly, AttemptState.EMPTY)

    def _take_back(self, assembly: GangAttempt, now: float) -> Iterator[Instruction]:
        """Stop waiting for the rest: what occupies nodes for nothing leaves again.

        Nobody of it is bound meanwhile; but until it is known that all of them may go, the places
        of the others stay theirs, and their calls wait: if one must not, nothing helps but that
        they come, and kube-scheduler tries those again late who are refused.
        """
        self._table.turn(assembly, AttemptState.ABORTED, Cause.EVICTED_PARTIAL)
        self._table.undecided[assembly.key] = now + _DECIDED_S
        why = Cause.EVICTED_PARTIAL.text(assembly.key)
        yield EvictPartial(
            assembly.key,
            tuple(
                EvictOrder(uid=pod.uid, namespace=pod.namespace, name=pod.name, why=why)
                for pod in self._standing(assembly)
            ),
        )

    def _standing(self, assembly: GangAttempt) -> Iterator[Pod]:
        """Return whoever occupies a node, or may: the watch shows what we have bound later."""
        sent = assembly.bound.keys() | set(filter(self._may_be_bound, assembly.unknown))
        pods = {pod.uid: pod for pod in self._facts.pods_of(assembly.key)}
        for uid in sent - pods.keys():
            if (pod := self._facts.arriving(uid)) is not None:
                pods[uid] = pod
        for uid, pod in sorted(pods.items()):
            if pod.status in SCHEDULED_SET or (uid in sent and pod.status in UNSEATED_SET):
                yield pod


def _waiting(assembly: GangAttempt) -> list[WaitingBind]:
    return [hold for hold in assembly.binds.values() if hold.state is BindState.WAITING]
