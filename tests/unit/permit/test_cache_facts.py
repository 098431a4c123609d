"""The state machine with the real cache."""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.core import connect
from extender.evictions.preemption import Preemption
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
    """A permit runner with a real cache."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock)
        self.ledger = Ledger(
            self.cluster,
            self.clock,
            wake=lambda orders: None,
            reservation_s=20.0,
        )
        self.binder = ManualBinder()
        self.reader = ManualReader()
        arrivals = ArrivingGangs(self.cluster, self.ledger, self.clock, grace_s=3.0)
        published = PublishedPlan()
        preemption = Preemption(
            self.cluster, published, self.ledger.check_queue, self.clock.monotonic
        )
        self.gate = Gate(self.cluster, self.ledger, arrivals, published, preemption, self.clock)
        self.facts = CacheFacts(
            self.cluster,
            self.ledger,
            may_lose=preemption.may_lose,
            may_lose_all=preemption.may_lose_all,
        )
        self.runner = PermitRunner(
            StateMachine(self.facts, chance=lambda: 0.0),
            binder=self.binder,
            groups=self.reader,
            ledger=self.ledger,
            undo=RecordingUndo(),
            timer=self.clock,
            clock=self.clock,
            observer=RecordingObserver(),
        )
        connect(self.cluster, self.ledger, self.runner)
        self.cluster.pending_evictions.granted = preemption.may_leave
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

    def reserve(self, uid: str | Pod) -> None:
        holder = pod(uid) if isinstance(uid, str) else uid
        self.cluster.reservations.reserve(
            holder, GANG, "n-1", self.clock.monotonic(), stage=Stage.FILTERED
        )
        self.ledger.passed(holder, MEMBER)

    def send_gang(self, *uids: str) -> list[Call]:
        """Let kube-scheduler bind the whole gang, and confirm its PodGroup."""
        calls = [Call(self.runner, uid) for uid in uids]
        self.reader.confirm()
        return calls

    def stage(self, uid: str) -> Stage | None:
        reservation = self.cluster.reservations.of(PodUid(uid))
        return reservation.stage if reservation else None


def gang_of_two() -> Scene:
    """Return a scene with a gang whose members filter has admitted."""
    scene = Scene()
    scene.show_group(min_member=2)
    for uid in ("w-0", "w-1"):
        scene.show(pod(uid))
        scene.reserve(uid)
    return scene


@pytest.fixture
def scene() -> Scene:
    return gang_of_two()


def test_the_cache_shows_a_gang_waiting_binding_and_scheduled(scene):
    first = Call(scene.runner, "w-0")
    assert scene.stage("w-0") is Stage.WAITING
    second = Call(scene.runner, "w-1")
    scene.reader.confirm()
    assert scene.stage("w-1") is Stage.BINDING
    scene.binder.say("w-0")
    scene.binder.say("w-1")

    assert [first.result(0), second.result(0)] == ["", ""]
    assert scene.cluster.scheduled(GANG) == 2
    assert scene.stage("w-0") is Stage.BOUND


def test_a_member_whose_binding_failed_has_its_reservation_again(scene):
    scene.send_gang("w-0", "w-1")
    scene.binder.say("w-0")
    scene.binder.say("w-1", BindOutcome(BindResult.FAILED, "refused"))

    assert scene.stage("w-1") is Stage.RESERVED
    again = Call(scene.runner, "w-1")
    assert scene.stage("w-1") is Stage.BINDING
    scene.binder.say("w-1")
    assert again.result(0) == ""


def test_a_gang_bound_in_part_is_partial_in_the_next_snapshot(scene):
    scene.cluster.snapshot(scene.clock.now())
    scene.send_gang("w-0", "w-1")
    scene.binder.say("w-0")
    scene.show(pod("w-0", node="n-1", status=Status.RUNNING))
    assert not scene.cluster.snapshot(scene.clock.now()).partial_gangs
    scene.binder.say("w-1", BindOutcome(BindResult.FAILED, "refused"))

    assert scene.cluster.snapshot(scene.clock.now()).partial_gangs == {GANG}


def test_a_refusal_releases_the_capacity(scene):
    waiting = Call(scene.runner, "w-0")
    waiting.hang_up()

    assert scene.stage("w-0") is None


def test_a_gang_that_backs_off_keeps_no_reservation_of_members_that_never_came(scene):
    waiting = Call(scene.runner, "w-0")
    # kube-scheduler works on: a reservation would last for minutes.
    scene.ledger.refused(PodUid("another"))
    scene.clock.advance(Timeouts().hold_s)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)
    assert scene.stage("w-0") is None
    assert scene.stage("w-1") is None, "no member may start before the backoff ends"
    assert scene.cluster.reservations.reserved_on("n-1") == NOTHING
    assert scene.cluster.reservations.backs_off_for(GANG) == 10


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (Delete(Kind.POD, "w-0"), Cause.POD_GONE),
        (Delete(Kind.POD, "w-1"), Cause.NOT_ENOUGH_MEMBERS),
        (Delete(Kind.GROUP, GANG, "scheduling.volcano.sh"), Cause.GROUP_GONE),
        (Upsert(Node(name="n-1", allocatable=NOTHING, unschedulable=True)), Cause.NODE_LOST),
        (
            Upsert(Node(name="n-1", allocatable=NOTHING, taints=(Taint("leaving"),))),
            Cause.NODE_LOST,
        ),
        (
            Upsert(SeenPod(pod("w-1", refusal="0/1 nodes: 1 Insufficient cpu."), MEMBER)),
            Cause.SIBLING_UNSCHEDULABLE,
        ),
    ],
    ids=["pod gone", "sibling gone", "no group", "cordoned", "tainted", "sibling unschedulable"],
)
def test_the_cache_reports_what_ends_a_waiting_bind(scene, change, cause):
    waiting = Call(scene.runner, "w-0")
    scene.cluster.apply(change)
    scene.clock.advance(2.0)

    assert waiting.result(0) == cause.text(GANG)


def two_cpus_each(uid: str, **facts: object) -> Pod:
    return pod(uid, shape=Shape(requests=Resources({CPU: 2000, PODS: 1})), **facts)


@pytest.fixture
def tight(scene: Scene) -> Scene:
    """The gang of two, each of two cpus, before a node of four."""
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({CPU: 4000}))))
    for uid in ("w-0", "w-1"):
        scene.cluster.reservations.release(PodUid(uid))
        scene.show(two_cpus_each(uid))
        scene.reserve(two_cpus_each(uid))
    return scene


def test_binds_that_wait_for_a_node_that_shrinks_too_much_are_refused(tight):
    waiting = Call(tight.runner, "w-0")
    tight.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({CPU: 1999}))))
    tight.clock.advance()

    assert waiting.result(0) == Cause.NODE_FULL.text(GANG)


def test_no_gang_is_bound_to_a_node_that_another_pod_filled(tight):
    calls = [Call(tight.runner, uid) for uid in ("w-0", "w-1")]
    tight.show(two_cpus_each("other", node="n-1", status=Status.RUNNING), SINGLE)
    tight.reader.confirm()

    assert {call.result(0) for call in calls} == {Cause.NODE_FULL.text(GANG)}


def test_a_lack_of_resources_that_the_pod_does_not_request_is_ignored(tight):
    tight.cluster.apply(Upsert(Node(name="n-1", allocatable=NOTHING)))
    tight.show(pod("modest"))

    assert tight.facts.fits("n-1", ["modest"])
    assert not tight.facts.fits("n-1", ["w-0"])
    assert not tight.facts.fits("unknown", ["modest"])


def test_a_waiting_pod_is_counted_once_and_reservations_of_others_not_yet(tight):
    for uid in ("w-8", "w-9"):
        tight.show(two_cpus_each(uid))
    assert tight.facts.fits("n-1", ["w-0", "w-1"])
    assert tight.facts.fits("n-1", ["w-8", "w-9"])
    Call(tight.runner, "w-0")
    assert tight.facts.fits("n-1", ["w-0", "w-1"])
    assert not tight.facts.fits("n-1", ["w-8", "w-9"])


def test_a_binding_of_unknown_outcome_needs_capacity_when_it_is_sent_again(tight):
    tight.cluster.reservations.advance(PodUid("w-0"), Stage.UNKNOWN)
    Call(tight.runner, "w-0")
    assert tight.facts.fits("n-1", ["w-0", "w-1"])

    for uid in ("s-0", "s-1"):
        tight.show(two_cpus_each(uid, node="n-1", status=Status.RUNNING), SINGLE)

    assert not tight.facts.fits("n-1", ["w-0"])


def test_a_bind_that_comes_before_the_watch_event_knows_its_pod_from_filter(scene):
    single = Membership(key=GangKey("team/pod:quick"))
    scene.ledger.passed(pod("quick"), single)
    waiting = Call(scene.runner, "quick")

    assert scene.stage("quick") is Stage.BINDING
    scene.binder.say("quick")
    assert waiting.result(0) == ""


def test_a_pod_known_from_filter_that_the_watch_shows_deleted_is_gone(scene):
    single = Membership(key=GangKey("team/pod:quick"))
    scene.ledger.passed(pod("quick"), single)
    scene.show(pod("quick"), single)
    scene.cluster.apply(Delete(Kind.POD, "quick"))
    answer = Call(scene.runner, "quick")
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
def test_a_critical_pod_waits_for_no_gang(scene, facts):
    scene.ledger.passed(pod("vital", **facts), MEMBER)
    scene.show(pod("vital", **facts))
    waiting = Call(scene.runner, "vital")

    assert scene.binder.batches == [["vital"]]
    scene.binder.say("vital")
    assert waiting.result(0) == ""


def test_the_bind_of_a_member_waits_until_the_watch_shows_the_member() -> None:
    scene = Scene()
    scene.show_group(2)
    scene.show(pod("p-1"))
    late = pod("p-2")
    for each in (pod("p-1"), late):
        scene.cluster.reservations.reserve(each, GANG, "n-1", 0.0)
        scene.ledger.passed(each, MEMBER)
    scene.show(pod("p-1"))  # and the watch shows one of them again
    waiting = [Call(scene.runner, uid) for uid in ("p-1", "p-2")]
    scene.clock.advance()
    assert not scene.reader.reads

    scene.show(late)
    scene.clock.advance()
    scene.reader.confirm()
    for uid in ("p-1", "p-2"):
        scene.binder.say(uid)

    assert [each.result(0) for each in waiting] == ["", ""]


def test_a_member_that_the_watch_has_not_shown_never_completes_a_gang() -> None:
    """With enough other members its bind waits too, and is sent after theirs."""
    scene = Scene()
    scene.show_group(2)
    unshown = pod("p-0")
    for each in (unshown, pod("p-1"), pod("p-2")):
        scene.cluster.reservations.reserve(each, GANG, "n-1", 0.0)
        scene.ledger.passed(each, MEMBER)
    scene.show(pod("p-1"))
    scene.show(pod("p-2"))
    scene.send_gang("p-0", "p-1", "p-2")

    assert scene.binder.batches == [["p-1", "p-2"]]


class _ShowsItself(FilterResults):
    """A pod that the watch shows during the lookup, so that its filter result is forgotten."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def filtered(self, uid: PodUid) -> None:
        self._scene.show(pod(uid))


def test_a_pod_that_the_watch_shows_between_two_lookups_is_found_as_a_member() -> None:
    for ask, answer in (("pod_or_filtered", pod("p-1")), ("gang_of", GANG)):
        scene = Scene()
        scene.ledger.filter_results = _ShowsItself(scene)

        assert getattr(scene.facts, ask)(PodUid("p-1")) == answer


def test_an_ordinary_pod_whose_capacity_was_reserved_since_filter_is_refused() -> None:
    scene = Scene()
    scene.cluster.apply(Upsert(Node(name="n-1", allocatable=Resources({"cpu": 1000, "pods": 9}))))
    shape = Shape(requests=Resources({"cpu": 1000, "pods": 1}))
    scene.ledger.passed(pod("web", shape=shape), Membership(key=GangKey("team/pod:web")))
    assert scene.ledger.reserve(pod("w-0", shape=shape), GANG, "n-1", "default")

    answer = Call(scene.runner, "web")

    assert answer.result(0) == Cause.CAPACITY_RESERVED.text()
    assert scene.binder.batches == []
