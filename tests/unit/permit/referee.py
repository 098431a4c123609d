"""The invariants of docs/internals/permit.md, checked on every instruction of the state machine."""

from __future__ import annotations

from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.permit.checks import UNSCHEDULED_SET
from extender.permit.messages import (
    Answer,
    Bind,
    CallId,
    Cause,
    Event,
    EvictPartial,
    Instruction,
    MarkWaiting,
    Verified,
)
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder

from .world import World

#: Four members can be bound within the commit, five not.
LIMITS = Timeouts(max_waiting_binds=7, binds_per_s=0.4)


class Referee:
    """Knows what really happened, and checks the state machine against it."""

    def __init__(self) -> None:
        self.cached = World()
        self.now = 1000.0
        self.gang_of: dict[PodUid, GangKey] = {}
        self.calls: dict[CallId, BindOrder] = {}
        self.arrived: dict[CallId, float] = {}
        #: The PodGroup object by which each call was judged when it came.
        self.group_of: dict[CallId, PodGroup | None] = {}
        self.answers: dict[CallId, Answer] = {}
        #: Bindings under way.
        self.sent: list[BindOrder] = []
        #: Pods whose binding was ever sent.
        self.tried: set[PodUid] = set()
        #: What the API server has: uid -> node ("" while unbound). Absent when deleted.
        self.bound_to: dict[PodUid, str] = {}
        #: Every node the API server has ever shown for a pod.
        self.was_on: set[tuple[PodUid, str]] = set()
        #: Evictions that are being decided.
        self.asked: list[EvictPartial] = []
        #: Gangs of which this term has, or may have, bound a member.
        self.begun: set[GangKey] = set()
        self.words: dict[tuple[object, Cause], str] = {}

    def check(self, instruction: Instruction, event: Event) -> None:
        match instruction:
            case MarkWaiting(uid):
                assert self.cached.reserved_node(uid) is not None, "I6: waits without a reservation"
            case Bind(orders):
                self.check_bind(orders, event)
                self.tried.update(order.uid for order in orders)
            case Answer():
                self.check_answer(instruction)
            case EvictPartial(gang, orders):
                group = self.cached.group(gang)
                assert group is None or len(self.scheduled_pods(gang)) < group.min_member, (
                    "P4: it runs"
                )
                assert gang in self.begun, "P4: nothing of it was begun by us"
                assert {order.uid for order in orders} <= self.scheduled_pods(gang) | self.tried

    def check_bind(self, orders: tuple[BindOrder, ...], event: Event) -> None:
        needed = LIMITS.commit_s if isinstance(event, Verified) else 0.0
        latest = LIMITS.bind_timeout_s - LIMITS.margin_s - needed
        for order in orders:
            assert order.uid not in {each.uid for each in self.sent}, "a bind is sent once"
            waiting = self.waiting_for(order.uid)
            assert waiting, "I5: a call that was refused is bound"
            assert all(self.now <= self.arrived[call] + latest for call in waiting), "I3: too late"
        if isinstance(event, Verified):
            self.check_commit(orders, event.gang, event.group)
        else:
            for order in orders:
                assert self.cached.may_bind(order.uid, order.node), "I6: in the capacity of others"
                self.check_alone(order.uid, self.gang_of[order.uid])

    def check_alone(self, uid: PodUid, gang: GangKey) -> None:
        group = self.cached.group(gang)
        assert group is not None, "I2: no PodGroup"
        if group.min_member > 1:
            self.check_allowed_evictions(uid, gang)
        runs = group.min_member <= 1 or len(self.scheduled_pods(gang)) >= group.min_member
        assert runs or self.lives(gang), "I2: a member starts before its gang"
        assert runs or not self.is_asked(gang), "P4: completed while it is taken back"

    def check_allowed_evictions(self, uid: PodUid, gang: GangKey) -> None:
        assert not self.cached.may_lose(uid), "I2: a pod that kube-scheduler may be evicting"
        assert not self.cached.may_lose_all(gang), "I2: beside members that may be evicted"

    def is_asked(self, gang: GangKey) -> bool:
        return any(each.gang == gang for each in self.asked)

    def lives(self, gang: GangKey) -> bool:
        """Return whether a started gang has members to complete, in truth or by the cache."""
        really = any(node and self.gang_of[uid] == gang for uid, node in self.bound_to.items())
        return gang in self.begun and bool(really or self.scheduled_pods(gang))

    def check_commit(
        self, orders: tuple[BindOrder, ...], gang: GangKey, group: PodGroup | None
    ) -> None:
        assert group is not None, "I2: no PodGroup"
        assert not self.is_asked(gang), "P4: completed while it is taken back"
        together = self.scheduled_pods(gang) | {order.uid for order in orders}
        assert len(together) >= group.min_member, "I2: fewer than minMember"
        takes_s = LIMITS.commit_needs_s(group.min_member - len(self.scheduled_pods(gang)))
        assert takes_s <= LIMITS.commit_s, "I3: the binder gives up midway"
        known = self.cached.group(gang)
        assert known is not None, "I2: the cache is newer than an old read"
        assert len(together) >= known.min_member, "I2: fewer than its minimum in the cache"
        for order in orders:
            pod = self.cached.pod(order.uid)
            assert pod is not None, "I2: a pod that is gone, or may be for all the watch has shown"
            assert self.cached.fits(order.node, (order.uid,)), "I2: a node that is full"
            assert pod.status in UNSCHEDULED_SET, "I2: a pod that is bound or leaving"
            node = self.cached.node(order.node)
            assert node is not None, "I2: a node that is gone"
            assert node.ready, "I2: a node that is not ready"
            assert not node.taints, "I2: a node that is tainted"
            came_for = [self.group_of[call] for call in self.waiting_for(order.uid)]
            assert all(each and each.uid == group.uid for each in came_for), "I2: another PodGroup"
            self.check_allowed_evictions(order.uid, gang)

    def waiting_for(self, uid: PodUid) -> list[CallId]:
        return [
            call
            for call, bind in self.calls.items()
            if bind.uid == uid and call not in self.answers
        ]

    def scheduled_pods(self, gang: GangKey) -> set[PodUid]:
        return {pod.uid for pod in self.cached.scheduled_pods(gang)}

    def check_answer(self, answer: Answer) -> None:
        assert answer.id not in self.answers, "I4: answered twice"
        call = self.calls[answer.id]
        if answer.error == "":
            assert (call.uid, call.node) in self.was_on, "I1: success without a binding"
        elif answer.cause is not Cause.BIND_FAILED:
            gang = answer.error.partition(":")[0]
            known = self.words.setdefault((gang, answer.cause), answer.error)
            assert known == answer.error, "I8: the words changed"
