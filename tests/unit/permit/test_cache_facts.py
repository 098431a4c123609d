"""The barrier's adapter to the real mirror."""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.core import connect
from extender.hooks.gate import Gate
from extender.model.gang import GangKey, Membership, PodGroup
from extender.model.node import Node, Taint
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.resources import CPU, NOTHING, PODS, Resources
from extender.permit.facts import CacheFacts
from extender.permit.machine import StateMachine
from extender.permit.messages import Cause
from extender.permit.runner import PermitRunner
from extender.permit.timeouts import Timeouts
from extender.planning_loop import PublishedPlan
from extender.ports import BindOutcome, BindResult
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger
from extender.reservations.wakeups import FilterResults
from extender.sim.clock import VirtualClock
from tests.doubles import Call, ManualBinder, ManualReader, RecordingObserver, RecordingUndo

GANG = GangKey("team/train")
MEMBER = Membership(key=GANG, named=True)
SINGLE = Membership(key=GangKey("team/other"), named=False)
SHAPE = Shape()


def pod(uid: str, **facts: object) -> Pod:
    known = {"uid": PodUid(uid), "namespace": "team", "name": uid, "shape": SHAPE}
    return Pod(**(known | facts))  # type: ignore[arg-type]


class Scene:
    """A barrier in front of a real mirror."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock)
        self.ledger = Ledger(
            self.cluster,
            self.clock,
            wake=lambda orders: None,
            ticket_s=20.0,
        )
        self.binder = ManualBinder()
        self.reader = ManualReader()
        arrivals = ArrivingGangs(self.cluster, self.ledger, self.clock, grace_s=3.0)
        self.gate = Gate(self.cluster, self.ledger, arrivals, PublishedPlan())
        self.facts = CacheFacts(self.cluster, self.ledger, self.gate)
        self.barrier = PermitRunner(
            StateMachine(self.facts, chance=lambda: 0.0),
            binder=self.binder,
            groups=self.reader,
            ledger=self.ledger,
            undo=RecordingUndo(),
            timer=self.clock,
            clock=self.clock,
            observer=RecordingObserver(),
        )
        connect(self.cluster, self.ledger, self.barrier)
        self.cluster.apply(Upsert(Node(name="n-1", allocatable=NOTHING)))

    def show(self, seen: Pod, membership: Membership = MEMBER) -> None:
        self.cluster.apply(Upsert(SeenPod(seen, membership)))
        self.clock.advance()

    def show_group(self, min_member: int) -> None:
        group = PodGroup(
            namespace="team",
            name="train",
            min_member=min_member,
            uid="g-1",
            dialect="scheduling.volcano.sh",
        )
        self.cluster.apply(Upsert(group, group.dialect))

    def give_ticket(self, uid: str | Pod) -> None:
        holder = pod(uid) if isinstance(uid, str) else uid
        self.cluster.reservations.reserve(
            holder, GANG, "n-1", self.clock.monotonic(), stage=Stage.FILTERED
        )
        self.ledger.filter_results.passed(holder, MEMBER)

    def stage(self, uid: str) -> Stage | None:
        reservation = self.cluster.reservations.of(PodUid(uid))
        return reservation.stage if reservation else None


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.show_group(min_member=2)
    for uid in ("w-0", "w-1"):
        scene.show(pod(uid))
        scene.give_ticket(uid)
    return scene


def test_a_gang_is_held_committed_and_seated_in_the_mirror(scene):
    first = Call(scene.barrier, "w-0")
    assert scene.stage("w-0") is Stage.WAITING
    second = Call(scene.barrier, "w-1")
    scene.reader.confirm()
    assert scene.stage("w-1") is Stage.BINDING
    scene.binder.say("w-0")
    scene.binder.say("w-1")

    assert [first.result(0), second.result(0)] == ["", ""]
    assert scene.cluster.scheduled(GANG) == 2
    assert scene.stage("w-0") is Stage.BOUND


def test_a_member_that_failed_beside_one_that_did_not_has_its_ticket_again(scene):
    for uid in ("w-0", "w-1"):
        Call(scene.barrier, uid)
    scene.reader.confirm()
    scene.binder.say("w-0")
    scene.binder.say("w-1", BindOutcome(BindResult.FAILED, "refused"))

    assert scene.stage("w-1") is Stage.RESERVED
    again = Call(scene.barrier, "w-1")
    assert scene.stage("w-1") is Stage.BINDING
    scene.binder.say("w-1")
    assert again.result(0) == ""


def test_a_refusal_gives_the_room_back(scene):
    waiting = Call(scene.barrier, "w-0")
    waiting.hang_up()

    assert scene.stage("w-0") is None


def test_a_gang_that_backs_off_keeps_no_room_for_those_who_never_came(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.ledger.hook_called()  # kube-scheduler works on: a ticket would last for minutes
    scene.clock.advance(Timeouts().hold_s)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)
    assert scene.stage("w-0") is None
    assert scene.stage("w-1") is None, "nobody of it may start before its pause is over"
    assert scene.cluster.reservations.reserved_on("n-1") == NOTHING


def test_the_mirror_tells_of_deleted_pods(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.cluster.apply(Delete(Kind.POD, "w-0"))
    scene.clock.advance(1)

    assert waiting.result(0) == Cause.POD_GONE.text(GANG)


def test_the_mirror_tells_of_deleted_groups(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.cluster.apply(Delete(Kind.GROUP, GANG, "scheduling.volcano.sh"))
    scene.clock.advance()

    assert waiting.result(0) == Cause.GROUP_GONE.text(GANG)


def test_the_mirror_tells_of_cordoned_nodes(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=NOTHING, unschedulable=True)))
    scene.clock.advance()

    assert waiting.result(0) == Cause.NODE_LOST.text(GANG)


def test_the_mirror_tells_of_tainted_nodes(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=NOTHING, taints=(Taint("leaving"),))))
    scene.clock.advance()

    assert waiting.result(0) == Cause.NODE_LOST.text(GANG)


def two_cpus_each(uid: str, **facts: object) -> Pod:
    return pod(uid, shape=Shape(requests=Resources({CPU: 2000, PODS: 1})), **facts)


@pytest.fixture
def tight(scene: Scene) -> Scene:
    """The gang of two, each of two cpus, before a node of four."""
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({CPU: 4000}))))
    for uid in ("w-0", "w-1"):
        scene.cluster.reservations.release(PodUid(uid))
        scene.show(two_cpus_each(uid))
        scene.give_ticket(two_cpus_each(uid))
    return scene


def test_a_gang_that_fills_its_node_to_the_brim_is_bound(tight):
    for uid in ("w-0", "w-1"):
        Call(tight.barrier, uid)
    tight.reader.confirm()

    assert tight.binder.batches == [["w-0", "w-1"]]


def test_a_node_that_shrinks_below_what_waits_for_it_sends_it_back(tight):
    waiting = Call(tight.barrier, "w-0")
    tight.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({CPU: 1999}))))
    tight.clock.advance()

    assert waiting.result(0) == Cause.NODE_FULL.text(GANG)


def test_a_node_that_somebody_else_fills_gets_no_gang_on_top(tight):
    calls = [Call(tight.barrier, uid) for uid in ("w-0", "w-1")]
    tight.show(two_cpus_each("other", node="n-1", status=Status.RUNNING), SINGLE)
    tight.reader.confirm()

    assert {call.result(0) for call in calls} == {Cause.NODE_FULL.text(GANG)}


def test_what_a_pod_does_not_ask_for_may_be_short(tight):
    tight.cluster.apply(Upsert(Node(name="n-1", allocatable=NOTHING)))
    tight.show(pod("modest"))

    assert tight.facts.fits("n-1", ["modest"])
    assert not tight.facts.fits("n-1", ["w-0"])
    assert not tight.facts.fits("unknown", ["modest"])


def test_a_pod_on_its_way_is_counted_once_and_a_ticket_of_others_not_yet(tight):
    for uid in ("w-8", "w-9"):
        tight.show(two_cpus_each(uid))
    assert tight.facts.fits("n-1", ["w-0", "w-1"])
    assert tight.facts.fits("n-1", ["w-8", "w-9"])
    Call(tight.barrier, "w-0")
    assert tight.facts.fits("n-1", ["w-0", "w-1"])
    assert not tight.facts.fits("n-1", ["w-8", "w-9"])


def test_room_of_a_binding_in_doubt_has_to_be_there_when_it_is_sent_again(tight):
    tight.cluster.reservations.advance(PodUid("w-0"), Stage.UNKNOWN)
    Call(tight.barrier, "w-0")
    assert tight.facts.fits("n-1", ["w-0", "w-1"])

    for uid in ("s-0", "s-1"):
        tight.show(two_cpus_each(uid, node="n-1", status=Status.RUNNING), SINGLE)

    assert not tight.facts.fits("n-1", ["w-0"])


def test_the_mirror_tells_of_siblings_that_fit_no_node(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.show(pod("w-1", refusal="0/1 nodes are available: 1 Insufficient cpu."))
    scene.clock.advance(2.0)

    assert waiting.result(0) == Cause.SIBLING_UNSCHEDULABLE.text(GANG)


def test_the_mirror_tells_of_a_sibling_that_vanished_before_it_came(scene):
    waiting = Call(scene.barrier, "w-0")
    scene.cluster.apply(Delete(Kind.POD, "w-1"))
    scene.clock.advance(2.0)

    assert waiting.result(0) == Cause.NOT_ENOUGH_MEMBERS.text(GANG)


def test_a_bind_that_is_quicker_than_the_watch_knows_its_pod_from_filter(scene):
    single = Membership(key=GangKey("team/pod:quick"))
    scene.ledger.filter_results.passed(pod("quick"), single)
    waiting = Call(scene.barrier, "quick")

    assert scene.stage("quick") is Stage.BINDING
    scene.binder.say("quick")
    assert waiting.result(0) == ""


def test_a_pod_that_filter_saw_and_the_watch_saw_go_is_gone(scene):
    single = Membership(key=GangKey("team/pod:quick"))
    scene.ledger.filter_results.passed(pod("quick"), single)
    scene.show(pod("quick"), single)
    scene.cluster.apply(Delete(Kind.POD, "quick"))
    answer = Call(scene.barrier, "quick")
    scene.clock.advance(1)

    assert answer.result(0) == Cause.POD_GONE.text()


@pytest.mark.parametrize(
    "facts",
    [
        {"namespace": "kube-system"},
        {"priority_class": "system-cluster-critical"},
        {"priority_class": "system-node-critical"},
        {"ours": False},
    ],
)
def test_what_keeps_the_cluster_alive_waits_for_no_gang(scene, facts):
    scene.ledger.filter_results.passed(pod("vital", **facts), MEMBER)
    scene.show(pod("vital", **facts))
    waiting = Call(scene.barrier, "vital")

    assert scene.binder.batches == [["vital"]]
    scene.binder.say("vital")
    assert waiting.result(0) == ""


def test_a_gang_that_did_not_assemble_backs_off_in_the_mirror(scene):
    Call(scene.barrier, "w-0")
    scene.clock.advance(30)

    assert scene.cluster.reservations.backs_off_for(GANG) == 10


def test_a_seated_member_seen_by_the_watch_is_a_success_at_once(scene):
    scene.show(pod("w-0", status=Status.RUNNING, node="n-1"))

    assert Call(scene.barrier, "w-0").result(0) == ""


def test_a_member_our_watch_has_not_shown_yet_is_held_and_bound_as_soon_as_it_is_shown() -> None:
    scene = Scene()
    scene.show_group(2)
    scene.show(pod("p-1"))
    late = pod("p-2")
    for each in (pod("p-1"), late):
        scene.cluster.reservations.reserve(each, GANG, "n-1", 0.0)
        scene.ledger.filter_results.passed(each, MEMBER)
    scene.show(pod("p-1"))  # and the watch shows one of them again
    waiting = [Call(scene.barrier, uid) for uid in ("p-1", "p-2")]
    scene.clock.advance()
    assert not scene.reader.reads

    scene.show(late)
    scene.clock.advance()
    scene.reader.confirm()
    for uid in ("p-1", "p-2"):
        scene.binder.say(uid)

    assert [each.result(0) for each in waiting] == ["", ""]


def test_whoever_the_watch_has_not_shown_is_never_one_of_those_who_make_a_gang_whole() -> None:
    """Beside enough others it is held, too; it comes after them, if it comes."""
    scene = Scene()
    scene.show_group(2)
    unshown = pod("p-0")
    for each in (unshown, pod("p-1"), pod("p-2")):
        scene.cluster.reservations.reserve(each, GANG, "n-1", 0.0)
        scene.ledger.filter_results.passed(each, MEMBER)
    scene.show(pod("p-1"))
    scene.show(pod("p-2"))
    for uid in ("p-0", "p-1", "p-2"):
        Call(scene.barrier, uid)
    scene.reader.confirm()

    assert scene.binder.batches == [["p-1", "p-2"]]


class _ShowsItself(FilterResults):
    """A pod that the watch shows, and so makes forgotten, just when somebody asks for it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def filtered(self, uid: PodUid) -> None:
        self._scene.show(pod(uid))


def test_a_pod_shown_by_the_watch_between_two_looks_is_seen_as_a_member() -> None:
    for ask, answer in (("arriving", pod("p-1")), ("gang_of", GANG)):
        scene = Scene()
        scene.ledger.filter_results = _ShowsItself(scene)

        assert getattr(scene.facts, ask)(PodUid("p-1")) == answer


def test_an_ordinary_pod_whose_room_was_promised_away_since_filter_is_refused() -> None:
    scene = Scene()
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({"cpu": 1000, "pods": 9}))))
    shape = Shape(requests=Resources({"cpu": 1000, "pods": 1}))
    scene.ledger.filter_results.passed(
        pod("web", shape=shape), Membership(key=GangKey("team/pod:web"))
    )
    assert scene.ledger.reserve(pod("w-0", shape=shape), GANG, "n-1", "default")

    answer = Call(scene.barrier, "web")

    assert answer.result(0) == Cause.CAPACITY_RESERVED.text()
    assert scene.binder.batches == []
