"""The state machine with any order of events: the invariants of docs/internals/permit.md.

The machine plays kube-scheduler, the API server and a watch that may lag behind it.
`python -m tests.nightly.soak permit` plays a hundred thousand stories instead of a few hundred.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.model.gang import GangKey, PodGroup
from extender.model.node import Taint
from extender.model.pod import PodUid, Status
from extender.permit.checks import UNSCHEDULED_SET
from extender.permit.machine import StateMachine
from extender.permit.messages import (
    Answer,
    Arrived,
    Bind,
    CallId,
    Cause,
    Closed,
    Event,
    EvictionRefused,
    EvictionStarted,
    EvictPartial,
    FoundPartial,
    GroupChanged,
    Instruction,
    Joined,
    NodeChanged,
    Opened,
    PeerGone,
    PodChanged,
    Settled,
    SiblingUnschedulable,
    StillIncomplete,
    Tick,
    Verified,
    Verify,
    VerifyFailed,
    Withdrawn,
)
from extender.ports import BindOrder, BindOutcome, BindResult
from tests.strategies import examples

from . import soundness
from .referee import LIMITS, Referee

EXAMPLES = examples(300)
STEPS = 40

GANGS = (GangKey("team/a"), GangKey("team/b"))
NODES = ("n-1", "n-2", "n-3")
#: As separate rules they would disturb every example before it binds a gang.
TROUBLES = {
    "change_group",
    "change_node",
    "close",
    "delete_group",
    "delete_pod",
    "end_grants",
    "find_incomplete",
    "find_short",
    "grant_all",
    "grant_one",
    "promise_room_away",
    "recreate_group",
    "refuse_sibling",
    "restart_gang",
    "somebody_else_binds",
    "start_deleting",
    "withdraw",
}
INDEXES = range(6)
EITHER = (True, False)
MOSTLY = (True,) * 9 + (False,)


def one_of(*choices: Iterable[object]) -> st.SearchStrategy[tuple[object, ...]]:
    """Draw one of each at the price of one draw: most of the time goes into drawing."""
    return st.sampled_from(list(product(*choices)))


class PermitMachine(Referee, RuleBasedStateMachine):
    """What may happen, in any order."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        Referee.__init__(self)
        self.machine = StateMachine(self.cached, LIMITS, chance=lambda: 0.5)
        self.live: dict[GangKey, PodGroup] = {}
        #: Reads under way, each with what the API server had when it was asked.
        self.reads: list[tuple[Verify, PodGroup | None]] = []
        #: What the cache shows already but has not reported yet.
        self.news: deque[Event] = deque()
        #: What it reported, and what caused no event.
        self.mail: deque[Joined] = deque()
        self.uids = 0
        self.is_sound = True

    @initialize(mins=one_of((1, 2, 3, 4, 5), (2, 3)), evict_partial_s=st.sampled_from((None, 20.0)))
    def begin(self, mins, evict_partial_s):
        limits = replace(LIMITS, evict_partial_s=evict_partial_s)
        self.machine = StateMachine(self.cached, limits, chance=lambda: 0.5)
        for name in NODES:
            self.cached.add_node(name)
        for gang, min_member in zip(GANGS, mins, strict=True):
            self.live[gang] = self.cached.add_group(min_member, gang, uid=f"{gang}-1")
            for _ in range(min_member):
                self.add_pod(gang)

    # What happens in the cluster

    @rule(trouble=one_of(INDEXES, EITHER, sorted(TROUBLES)))
    def disturb(self, trouble):
        index, seen, what = trouble
        getattr(self, what)(index, seen)

    @precondition(lambda self: self.reads)
    @rule(trouble=one_of(INDEXES, EITHER, sorted(TROUBLES - {"close"})))
    def disturb_while_reading(self, trouble):
        self.disturb(trouble)

    @rule(new=one_of(GANGS, EITHER))
    def add_one(self, new):
        self.add_pod(*new)

    def add_pod(self, gang, is_shown=True):
        if sum(each == gang for each in self.cached.gangs.values()) >= 5:
            return
        self.uids += 1
        uid = self.cached.add_pod(f"p-{self.uids}", gang, reserved=False, is_shown=is_shown)
        self.bound_to[uid] = ""
        self.gang_of[uid] = gang
        if is_shown:
            self.hear_of(uid, gang, at_once=True)

    @precondition(lambda self: self.cached.unshown)
    @rule(index=st.sampled_from(INDEXES))
    def show_what_is_new(self, index):
        """Until now only filter knew the pod. It may be deleted again by now."""
        new = list(self.cached.unshown)
        uid = self.cached.show_pod(new[index % len(new)])
        self.hear_of(uid, self.cached.gangs[uid], at_once=True)

    def delete_pod(self, index, seen):
        uid = self.pick(index)
        if uid is not None:
            self.delete(uid, seen)

    def delete(self, uid, seen):
        """The watch does not report the deletion of a pod that it has not shown yet."""
        self.bound_to.pop(uid, None)
        if seen and uid in self.cached.pods:
            self.show_deletion(uid)

    def restart_gang(self, index, seen):
        """The job controller restarts the gang: all pods are deleted and created again."""
        gang = GANGS[index % 2]
        for uid in [uid for uid, each in self.cached.gangs.items() if each == gang]:
            self.delete(uid, seen)
        for _ in range(index // 2 + 1):
            self.add_pod(gang, is_shown=seen)

    @rule(index=st.sampled_from(INDEXES))
    def show_what_is_gone(self, index):
        gone = [uid for uid in self.cached.pods if uid not in self.bound_to]
        if gone:
            self.show_deletion(gone[index % len(gone)])

    def show_deletion(self, uid):
        self.cached.remove_pod(uid)
        self.cached.flight.pop(uid, None)
        self.hear_of(uid, None, at_once=True)

    def start_deleting(self, index, seen):
        uid = self.pick(index)
        if uid in self.cached.pods:
            self.cached.change_pod(uid, status=Status.RELEASING)
            self.hear_of(uid, self.cached.gangs[uid], at_once=seen)

    @rule(which=one_of(INDEXES, MOSTLY))
    def show_what_is_bound(self, which):
        index, at_once = which
        news = [
            uid
            for uid, node in self.bound_to.items()
            if node and self.cached.pod_or_filtered(uid).status in UNSCHEDULED_SET
        ]
        if news:
            uid = news[index % len(news)]
            if uid in self.cached.unshown:
                self.cached.show_pod(uid)
            self.cached.change_pod(uid, status=Status.BOUND, node=self.bound_to[uid])
            self.cached.flight.pop(uid, None)
            self.hear_of(uid, self.cached.gangs[uid], at_once=at_once)

    def somebody_else_binds(self, index, seen):
        uid = self.pick(index)
        if uid is not None and not self.bound_to.get(uid, "x"):
            self.put_on(uid, NODES[index % 3])

    def refuse_sibling(self, index, seen):
        uid = self.pick(index)
        if uid in self.cached.pods and self.cached.pods[uid].status is Status.PENDING:
            self.cached.refuse_pod(uid)
            self.tell(SiblingUnschedulable(uid, self.cached.gangs[uid]))

    def find_incomplete(self, index, seen):
        self.tell(StillIncomplete(GANGS[index % 2]))

    def find_short(self, index, seen):
        """An earlier leader left what the cache shows."""
        gang = GANGS[index % 2]
        if self.scheduled_pods(gang):
            self.begun.add(gang)  # by that leader, and the new one completes or evicts it
        self.tell(FoundPartial(gang))

    def withdraw(self, index, seen):
        self.tell(Withdrawn(GANGS[index % 2]))

    def grant_one(self, index, seen):
        """kube-scheduler may evict it from now on. The state machine is not notified."""
        uid = self.pick(index)
        if uid in self.cached.pods:
            self.cached.may_be_evicted.add(uid)

    def grant_all(self, index, seen):
        self.cached.may_be_evicted |= (
            self.scheduled_pods(GANGS[index % 2]) & self.cached.pods.keys()
        )

    def end_grants(self, index, seen):
        self.cached.may_be_evicted.clear()

    def promise_room_away(self, index, seen):
        """Reserve capacity for another pod, or end that. The state machine is not notified."""
        uid = self.pick(index)
        if uid is not None:
            self.cached.reserved_for_others ^= {(uid, NODES[index % 3])}

    def change_group(self, index, seen):
        gang, min_member = GANGS[index % 2], index % 4 + 1
        if gang in self.live:
            self.live[gang] = replace(
                self.live[gang], min_member=min_member, created=self.next_version()
            )
            if seen:
                self.show_group(gang)

    def delete_group(self, index, seen):
        gang = GANGS[index % 2]
        self.live.pop(gang, None)
        if seen:
            self.show_group(gang)

    def recreate_group(self, index, seen):
        gang, min_member = GANGS[index % 2], index % 3 + 1
        namespace, name = gang.split("/")
        version = self.next_version()
        self.live[gang] = PodGroup(
            namespace=namespace,
            name=name,
            min_member=min_member,
            uid=f"{gang}-{version:.0f}",
            created=version,
        )
        if seen:
            self.show_group(gang)

    @rule(which=one_of(GANGS, EITHER))
    def show_some_group(self, which):
        self.show_group(*which)

    def show_group(self, gang, at_once=True):
        group = self.live.get(gang)
        if group is None:
            self.cached.groups.pop(gang, None)
        else:
            self.cached.groups[gang] = group
        self.hear(GroupChanged(gang, group), at_once)

    @rule()
    def late_news(self):
        if self.news:
            self.tell(self.news.popleft())

    def hear_of(self, uid, gang, *, at_once):
        """A pod changed. Events that the machine does not need, or not yet, are not delivered."""
        news = self.machine.event_for(uid, gang)
        if isinstance(news, Joined):
            self.mail.append(news)
        elif news is not None or any(each.uid == uid for each in self.mail):
            self.hear(PodChanged(uid, gang), at_once)

    def hear(self, event: Event, at_once: bool) -> None:
        """The cache shows a change before it reports it, sometimes long before."""
        self.news.append(event)
        while at_once and self.news:
            self.tell(self.news.popleft())

    def change_node(self, index, seen):
        node, old = NODES[index % 3], self.cached.nodes[NODES[index % 3]]
        if index < 3:
            self.cached.add_node(node, ready=not old.ready)
        elif old.taints:
            self.cached.add_node(node, max_pods=1)
        else:
            self.cached.add_node(node, taints=(Taint("busy"),))
        self.hear(NodeChanged(node), seen)

    # What kube-scheduler does

    @rule(call=one_of(GANGS, NODES))
    def call_for_all(self, call):
        gang, node = call
        for uid in [uid for uid, each in self.cached.gangs.items() if each == gang]:
            self.call_for(uid, node, has_reservation=True)

    @rule(call=one_of(INDEXES, NODES, MOSTLY))
    def call_for_one(self, call):
        index, node, has_reservation = call
        uid = self.pick(index)
        if uid is not None:
            self.call_for(uid, node, has_reservation)

    @rule(call=one_of(INDEXES, NODES, MOSTLY))
    def call_for_another(self, call):
        index, node, has_reservation = call
        waiting = [uid for uid in self.cached.gangs if uid not in self.machine.table.binds]
        if waiting:
            self.call_for(waiting[index % len(waiting)], node, has_reservation)

    def call_for(self, uid, node, has_reservation):
        if has_reservation:
            self.cached.flight.setdefault(uid, ("filtered", ""))
        call = CallId(len(self.calls) + 1)
        bind = BindOrder(uid=uid, namespace="team", name=uid, node=node)
        self.calls[call] = bind
        self.arrived[call] = self.now
        self.group_of[call] = self.cached.group(self.cached.gangs[uid])
        self.tell(Arrived(call, bind))

    @rule(index=st.sampled_from(INDEXES))
    def give_up(self, index):
        waiting = sorted(self.calls.keys() - self.answers.keys())
        if waiting:
            self.tell(PeerGone(waiting[index % len(waiting)]))

    # What the API server does

    @precondition(lambda self: self.reads)
    @rule(reply=one_of(INDEXES, MOSTLY, EITHER))
    def answer_read(self, reply):
        index, works, is_slow = reply
        read, then = self.reads.pop(index % len(self.reads))
        if not works:
            self.tell(VerifyFailed(read.gang, read.epoch))
        else:
            group = then if is_slow else self.live.get(read.gang)
            self.tell(Verified(read.gang, read.epoch, group))

    @precondition(lambda self: self.sent)
    @rule(reply=one_of(INDEXES, ["answers"] * 6 + ["fails", "is silent", "loses"]))
    def answer_bind(self, reply):
        index, mood = reply
        order = self.sent.pop(index % len(self.sent))
        if mood == "fails":
            self.settle(order, BindResult.FAILED)
        elif mood == "loses":
            self.settle(order, BindResult.UNKNOWN)
        elif self.bound_to.get(order.uid, "gone") == "":
            self.put_on(order.uid, order.node)
            silent = mood == "is silent"
            self.settle(order, BindResult.UNKNOWN if silent else BindResult.BOUND)
        elif self.bound_to.get(order.uid) == order.node:
            self.settle(order, BindResult.BOUND)
        else:
            self.settle(order, BindResult.LOST)

    @precondition(lambda self: self.sent)
    @rule(mood=st.sampled_from(["answers", "answers", "fails", "loses"]))
    def answer_every_bind(self, mood):
        """The API server is well, or not, for as long as a commit takes."""
        while self.sent:
            self.answer_bind((0, mood))

    @precondition(lambda self: self.asked)
    @rule(leaves=st.sampled_from(EITHER))
    def decide_whether_it_leaves(self, leaves):
        order = self.asked.pop(0)
        self.tell((EvictionStarted if leaves else EvictionRefused)(order.gang))
        for each in order.orders if leaves else ():
            # The eviction reads first which members are on a node.
            if self.bound_to.get(each.uid):
                if each.uid in self.cached.unshown:
                    self.cached.show_pod(each.uid)
                self.cached.change_pod(each.uid, status=Status.RELEASING)

    def settle(self, order, result):
        if result in (BindResult.BOUND, BindResult.UNKNOWN):
            self.begun.add(self.gang_of[order.uid])
        message = "" if result is BindResult.BOUND else "not bound"
        self.tell(Settled(order.uid, BindOutcome(result, message)))

    # What happens to the extender

    @rule(seconds=st.sampled_from([0.01, 0.01, 0.5, 0.5, 2.0, 10.0, 31.0, 700.0]))
    def time_passes(self, seconds):
        until = self.now + seconds
        while self.machine.due is not None and self.machine.due <= until:
            self.now = max(self.now, self.machine.due)
            self.tell(Tick())
        self.now = until

    def close(self, index, seen):
        self.tell(Closed(Cause.LEASE_LOST if seen else Cause.SHUT_DOWN))

    @precondition(lambda self: self.machine.closed)
    @rule()
    def open(self):
        self.tell(Opened())

    # The environment of the state machine

    def next_version(self) -> float:
        """Number the states of PodGroups; a test may (mis)use their creation time for it."""
        self.uids += 1
        return float(self.uids)

    def pick(self, index) -> PodUid | None:
        """Return a pod that the watch, or at least filter, has shown."""
        uids = list(self.cached.gangs)
        return uids[index % len(uids)] if uids else None

    def put_on(self, uid, node):
        self.bound_to[uid] = node
        self.was_on.add((uid, node))

    def tell(self, event: Event) -> None:
        while self.mail:
            self.take_note(self.mail.popleft())
        self.take_note(event)

    def take_note(self, event: Event) -> None:
        self.is_sound = False
        for instruction in list(self.machine.react(event, self.now)):
            self.check(instruction, event)
            self.carry_out(instruction)
        soundness.check(self.machine)
        self.is_sound = True

    def carry_out(self, instruction: Instruction) -> None:
        self.cached.take_note(instruction)
        match instruction:
            case Bind(orders):
                self.sent.extend(orders)
            case Verify():
                self.reads.append((instruction, self.live.get(instruction.gang)))
            case Answer(id):
                self.answers[id] = instruction
            case EvictPartial():
                self.asked.append(instruction)

    # The invariants that hold between events

    @invariant()
    def every_call_is_answered_or_waits(self):
        waiting = self.calls.keys() - self.answers.keys()
        assert waiting == self.machine.table.calls.keys(), "I4: a call is lost"

    @invariant()
    def the_table_is_bounded(self):
        assert self.machine.waiting_binds <= LIMITS.max_waiting_binds, "I9"

    def teardown(self):
        """I4 at the end: once the API server has answered and time has passed, no call waits."""
        if not self.is_sound:
            return  # a failure of its own must not hide the one that led here
        while self.sent:
            self.answer_bind((0, "answers"))
        self.time_passes(LIMITS.hold_s + LIMITS.verify_s)
        assert not self.machine.table.calls, "I4: a call waits for ever"
        assert not self.machine.waiting_binds


def play(machine: type[PermitMachine], stories: int) -> None:
    """Play so many stories of any order of events."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=stories,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_order_of_events_breaks_an_invariant():
    play(PermitMachine, EXAMPLES)
