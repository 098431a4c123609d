"""A node that kube-scheduler rejects is not used for a while, and then tried again."""

from __future__ import annotations

from functools import partial

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.gang_history import RejectedNodes
from extender.model.gang import VOLCANO, GangKey
from extender.sim.clock import VirtualClock
from tests.builders import GANG, NOW, cache, node, pod_group, seen, uid
from tests.steps import steps

OTHER = GangKey("a/other")


def test_a_rejected_node_is_forgotten_after_a_while() -> None:
    clock = VirtualClock()
    rejected = RejectedNodes(clock.monotonic)
    rejected.note(GANG, "n1", 30.0)
    rejected.note(GANG, "n2", 300.0)
    assert rejected.expire() == {GANG: {"n1", "n2"}}

    clock.advance(31)
    assert rejected.expire() == {GANG: {"n2"}}

    clock.advance(300)
    assert rejected.expire() == {}


def test_a_whole_gang_is_recorded_without_reading_all_others() -> None:
    """It happens in the event loop: with some gangs of a thousand it took seconds each time."""
    nodes = [f"n{number}" for number in range(1000)]
    taken = []
    for others in (1, 100):
        rejected = RejectedNodes(VirtualClock().monotonic)
        for number in range(others):
            rejected.note(GangKey(f"a/other-{number}"), "n1", 30.0)
        taken.append(steps(partial(rejected.note_all, GANG, nodes, 300.0)))

        assert rejected.of(GANG) == set(nodes)
        assert rejected.of(GangKey("a/other-0")) == {"n1"}
        assert len(rejected.expire()) == others + 1

    assert taken[0] == taken[1]


class ComparedKey(str):
    """The key of a gang that counts how often it is compared."""

    __slots__ = ("times",)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.times = getattr(self, "times", 0) + 1
        return str.__eq__(self, other)


def test_a_gang_is_forgotten_without_reading_all_others() -> None:
    """It happens under the lock of the cache, whenever a gang ends."""
    rejected = RejectedNodes(VirtualClock().monotonic)
    for number in range(1000):
        rejected.note(GangKey(f"a/g{number}"), "n1", 30.0)
    gone = ComparedKey("a/g500")

    rejected.forget(GangKey(gone))

    assert len(rejected.expire()) == 999
    assert gone.times < 10


def test_a_namespace_with_many_rejected_nodes_displaces_no_other() -> None:
    rejected = RejectedNodes(VirtualClock().monotonic, max_pairs=100)
    theirs = GangKey("b/victim")
    rejected.note_all(theirs, [f"n{number}" for number in range(30)], 300.0)
    for number in range(200):
        rejected.note(GangKey(f"a/g{number}"), f"n{number}", 300.0)
    rejected.note_all(GangKey("a/large"), [f"n{number}" for number in range(40)], 300.0)

    found = rejected.expire()

    assert len(found.pop(theirs)) == 30
    assert sum(map(len, found.values())) == 70
    assert list(found) == [*(f"a/g{number}" for number in range(170, 200)), "a/large"]


def test_one_gang_has_no_more_rejected_nodes_than_all_may_have() -> None:
    rejected = RejectedNodes(VirtualClock().monotonic, max_pairs=100)
    rejected.note_all(GANG, [f"n{number}" for number in range(150)], 300.0)

    assert rejected.of(GANG) == {f"n{number}" for number in range(50, 150)}


def test_released_and_expired_entries_leave_space_for_others() -> None:
    clock = VirtualClock()
    rejected = RejectedNodes(clock.monotonic, max_pairs=2)
    rejected.note(GANG, "n1", 30.0)
    rejected.note(OTHER, "n1", 300.0)
    rejected.forget(OTHER)
    rejected.note(OTHER, "n2", 300.0)
    clock.advance(31)
    assert rejected.expire() == {OTHER: {"n2"}}

    rejected.note(OTHER, "n3", 300.0)

    assert rejected.expire() == {OTHER: {"n2", "n3"}}


def test_a_snapshot_excludes_the_rejected_node_for_that_gang_alone() -> None:
    cluster = cache(node("n1"), pod_group(), seen("p0"), pod_group("other"), seen("q0", "other"))
    cluster.rejected_nodes.note(GANG, "n1", 30.0)

    shown = cluster.snapshot(NOW)

    (mine,), (theirs,) = shown.gangs[GANG].pods, shown.gangs[OTHER].pods
    assert shown.rejected_nodes == {mine.shape: {"n1"}}
    assert theirs.shape not in shown.rejected_nodes
    assert cluster.snapshot(NOW).gangs[GANG].pods[0].shape is mine.shape


def test_after_the_expiry_the_pods_of_the_gang_have_their_common_shape_again() -> None:
    clock = VirtualClock()
    cluster = cache(node("n1"), pod_group(), seen("p0"), clock=clock)
    before = cluster.snapshot(NOW).gangs[GANG].pods[0].shape
    cluster.rejected_nodes.note(GANG, "n1", 30.0)
    assert cluster.snapshot(NOW).gangs[GANG].pods[0].shape is not before

    clock.advance(31)

    shown = cluster.snapshot(NOW)
    assert shown.rejected_nodes == {}
    assert shown.gangs[GANG].pods[0].shape is before


def test_the_rejected_nodes_of_a_deleted_gang_are_forgotten() -> None:
    for gone in (Delete(Kind.POD, uid("p0")), Delete(Kind.GROUP, GANG, VOLCANO)):
        cluster = cache(node("n1"), pod_group(), seen("p0"))
        cluster.rejected_nodes.note(GANG, "n1", 30.0)

        cluster.apply(gone)

        assert cluster.rejected_nodes.expire() == {}


def test_a_recreated_group_begins_without_rejected_nodes() -> None:
    cluster = cache(node("n1"), pod_group(uid="first"), seen("p0"))
    cluster.rejected_nodes.note(GANG, "n1", 30.0)

    cluster.apply(Upsert(pod_group(uid="second")))

    assert cluster.rejected_nodes.expire() == {}
