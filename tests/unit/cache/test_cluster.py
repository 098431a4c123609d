from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.reservation_table import Stage
from extender.model.gang import COSCHEDULING, VOLCANO, GangKey, Membership, Phase, PodGroup
from extender.model.node import HostPorts
from extender.model.pod import HostPort, Pod, PodUid, Shape, Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.sim.clock import VirtualClock
from tests.builders import (
    GANG,
    NOW,
    ONE_CPU,
    amounts,
    cache,
    member_of,
    node,
    pod,
    pod_group,
    seen,
    shape,
    uid,
)


def cpu_used(made: Any, name: str) -> int:
    table = made.snapshot(NOW).nodes
    return int(table.used[table.facts.index[name], table.dimensions.index("cpu")])


def test_a_gang_is_its_group_with_all_pods_that_name_it() -> None:
    made = cache(pod_group(), seen("w-1"), seen("w-0"), seen("other", gang="else"))

    gang = made.snapshot(NOW).gangs[GANG]

    assert gang.group.min_member == 2
    assert [each.name for each in gang.pods] == ["w-0", "w-1"]


def test_gangs_are_sorted_by_key_however_they_came() -> None:
    made = cache(seen("c", ""), seen("a", ""))
    made.snapshot(NOW)
    made.apply(Upsert(seen("b", "")))

    assert list(made.snapshot(NOW).gangs) == ["a/pod:a", "a/pod:b", "a/pod:c"]


def test_pods_that_name_a_missing_group_are_a_gang_with_a_problem() -> None:
    made = cache(seen("w-0"))

    problem = made.snapshot(NOW).gangs[GANG].problem

    assert problem is not None
    assert problem.reason is Reason.POD_GROUP_MISSING
    assert "PodGroup a/train does not exist" in problem.message
    assert made.group(GANG) is None

    made.apply(Upsert(pod_group()))

    assert made.snapshot(NOW).gangs[GANG].problem is None


@pytest.mark.parametrize(
    "invalid",
    [
        (pod_group(problem="it cannot be read"), seen("w-0")),
        (
            pod_group(),
            seen("w-0"),
            SeenPod(pod("w-1"), Membership(key=GANG, named=True, problem="it cannot be read")),
        ),
    ],
    ids=["a PodGroup", "a pod"],
)
def test_an_object_that_cannot_be_used_makes_an_invalid_gang(invalid: tuple[Any, ...]) -> None:
    problem = cache(*invalid).snapshot(NOW).gangs[GANG].problem

    assert problem is not None
    assert problem.message == "it cannot be read"


def test_pods_that_declare_their_number_need_no_group() -> None:
    membership = member_of(min_member=3)
    made = cache(SeenPod(pod("w-0"), membership), SeenPod(pod("w-1"), membership))

    gang = made.snapshot(NOW).gangs[GANG]

    assert (gang.group.min_member, gang.group.dialect, gang.problem) == (3, "", None)
    assert made.group(GANG) == PodGroup(namespace="a", name="train", min_member=3)


def test_when_pods_disagree_about_their_number_the_highest_counts() -> None:
    pods = [SeenPod(pod(f"w-{n}"), member_of(min_member=n)) for n in (2, 5, 3)]

    assert cache(*pods).snapshot(NOW).gangs[GANG].group.min_member == 5


def test_a_written_group_wins_over_what_pods_declare() -> None:
    made = cache(SeenPod(pod("w-0"), member_of(min_member=9)), pod_group(min_member=2))

    assert made.snapshot(NOW).gangs[GANG].group.min_member == 2


def test_a_made_group_is_as_old_as_its_oldest_pod() -> None:
    made = cache(seen("x", "", created=7.0))

    assert made.snapshot(NOW).gangs[GangKey("a/pod:x")].group.created == 7.0


def test_of_one_name_in_two_dialects_volcanos_counts() -> None:
    made = cache(pod_group(min_member=7, dialect=COSCHEDULING), pod_group(min_member=2))

    assert made.snapshot(NOW).gangs[GANG].group.min_member == 2

    made.apply(Delete(Kind.GROUP, GANG, VOLCANO))

    assert made.snapshot(NOW).gangs[GANG].group.min_member == 7


def test_a_relist_of_one_dialect_leaves_the_others_alone() -> None:
    made = cache(pod_group("x"), pod_group("y", dialect=COSCHEDULING))
    made.replace(Kind.GROUP, [], VOLCANO)

    assert list(made.snapshot(NOW).gangs) == ["a/y"]


def test_pods_of_other_schedulers_only_use_capacity() -> None:
    made = cache(node("n"), seen("x", "", on="n", ours=False))

    assert made.snapshot(NOW).gangs == {}
    assert cpu_used(made, "n") == 1000


def test_a_finished_pod_of_another_scheduler_is_forgotten() -> None:
    made = cache(node("n"), seen("x", "", on="n", ours=False))
    made.apply(Upsert(seen("x", "", on="n", ours=False, status=Status.SUCCEEDED)))

    assert made.pod(uid("x")) is None
    assert cpu_used(made, "n") == 0


def test_native_groups_are_shown_only_if_they_use_capacity() -> None:
    native = member_of("native:g", native=True)
    made = cache(
        node("n"),
        SeenPod(pod("waits"), native),
        SeenPod(pod("runs", on="n"), native),
    )

    gang = made.snapshot(NOW).gangs[GangKey("a/native:g")]

    assert [each.name for each in gang.pods] == ["runs"]
    assert gang.group.dialect == "scheduling.k8s.io"


@pytest.mark.parametrize(
    ("status", "occupies"),
    [
        (Status.BOUND, True),
        (Status.RUNNING, True),
        (Status.UNKNOWN, True),
        (Status.RELEASING, True),
        (Status.SUCCEEDED, False),
        (Status.FAILED, False),
    ],
)
def test_a_pod_uses_capacity_until_it_is_finished(status: Status, occupies: bool) -> None:
    made = cache(node("n"), seen("x", "", on="n", status=status))

    assert cpu_used(made, "n") == (1000 if occupies else 0)


def test_the_capacity_of_terminating_pods_is_used_and_releasing() -> None:
    asks = {"on": "n", "shape": shape(cpu=1, memory=1)}
    made = cache(node("n"), seen("x", "", **asks))
    made.apply(Upsert(seen("x", "", **asks, status=Status.RELEASING)))

    table = made.snapshot(NOW).nodes

    assert table.used.tolist() == table.releasing.tolist() == [[1000, 1 << 30, 1]]


def test_a_node_that_comes_back_still_has_its_pods() -> None:
    made = cache(node("n"), node("m"), seen("x", "", on="n"))
    made.apply(Delete(Kind.NODE, "n"))

    assert [each.name for each in made.snapshot(NOW).nodes.nodes] == ["m"]

    made.apply(Upsert(node("n")))

    assert cpu_used(made, "n") == 1000


def test_nodes_are_rows_in_the_order_of_their_names() -> None:
    table = cache(node("n2", cpu=2), node("n1", cpu=1), node("n3", cpu=3)).snapshot(NOW).nodes

    assert [each.name for each in table.nodes] == ["n1", "n2", "n3"]
    assert table.allocatable[:, 0].tolist() == [1000, 2000, 3000]


def test_only_a_resource_that_some_node_offers_is_a_column() -> None:
    gpus = Resources({"cpu": 1000, "memory": 1, "pods": 1, "b/gpu": 8, "a/fpga": 1, "huge": 0})
    made = cache(
        node("n", allocatable=gpus), seen("x", "", on="n", shape=Shape(amounts(cpu=1, c=5)))
    )

    table = made.snapshot(NOW).nodes

    assert table.dimensions == ("cpu", "memory", "pods", "a/fpga", "b/gpu")
    assert table.allocatable.tolist() == [[1000, 1, 1, 1, 8]]


def test_many_nodes_and_many_resources_fit() -> None:
    made = cache(
        *(node(f"n{i:03}", allocatable=amounts(cpu=i, **{f"r{i % 40:02}": i})) for i in range(200)),
        *(seen(f"p{i}", "", on=f"n{i:03}") for i in range(200)),
    )

    table = made.snapshot(NOW).nodes

    assert table.allocatable[:, 0].tolist() == [i * 1000 for i in range(200)]
    assert table.used[:, 0].tolist() == [1000] * 200
    assert len(table.dimensions) == 43


def test_a_node_without_a_pod_limit_takes_any_number_of_pods() -> None:
    made = cache(node("n", allocatable=Resources({"cpu": 1000, "memory": 1})))

    assert made.snapshot(NOW).nodes.allocatable[0, 2] > 10**17


def test_host_ports_are_counted_as_often_as_pods_use_them() -> None:
    http = HostPort(80)
    made = cache(node("n"), seen("x", "", on="n", shape=shape(cpu=1, host_ports=(http,))))

    assert made.snapshot(NOW).nodes.ports == {"n": HostPorts([http])}

    made.apply(Delete(Kind.POD, uid("x")))

    assert made.snapshot(NOW).nodes.ports == {}


def test_snapshots_cannot_be_changed() -> None:
    table = cache(node("n")).snapshot(NOW).nodes

    with pytest.raises(ValueError, match="read-only"):
        table.used[0, 0] = 1


def test_snapshots_share_what_did_not_change() -> None:
    made = cache(
        node("n"), pod_group("x"), pod_group("y"), seen("x-0", gang="x"), seen("y-0", gang="y")
    )
    before = made.snapshot(NOW)
    made.apply(Upsert(seen("x-0", gang="x", on="n")))
    after = made.snapshot(NOW)

    assert after.gangs[GangKey("a/y")] is before.gangs[GangKey("a/y")]
    assert after.gangs[GangKey("a/x")] is not before.gangs[GangKey("a/x")]
    assert after.nodes.facts is before.nodes.facts
    assert after.nodes.allocatable is before.nodes.allocatable
    assert after.queues is before.queues
    assert before.nodes.used.sum() == 0


def test_an_older_snapshot_does_not_change_with_the_cluster() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    before = made.snapshot(NOW)
    made.apply(Delete(Kind.POD, uid("w-0")))
    made.apply(Delete(Kind.NODE, "n"))
    made.snapshot(NOW)

    assert len(before.gangs[GANG].pods) == 1
    assert [each.name for each in before.nodes.nodes] == ["n"]


def test_an_upsert_of_the_same_object_is_no_change() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    generation = made.generation
    woken: list[int] = []
    made.on_change(lambda: woken.append(1))
    for item in (node("n"), pod_group(), seen("w-0")):
        made.apply(Upsert(item))

    assert made.generation == generation
    assert woken == []


def test_the_start_time_of_a_pod_is_known_before_its_containers_run() -> None:
    made = cache(node("n1"), pod_group(min_member=1), seen("p0", on="n1", status=Status.BOUND))
    woken: list[str] = []
    made.on_change(lambda: woken.append("plan"))
    made.apply(Upsert(seen("p0", on="n1", status=Status.BOUND, began=NOW)))

    assert made.snapshot(NOW).gangs[GANG].runs_since == NOW
    assert woken == [], "nothing to plan anew for"


def test_a_refusal_notifies_pod_listeners_but_requests_no_cycle() -> None:
    made = cache(pod_group(), seen("w-0"))
    heard: list[str] = []
    woken: list[int] = []
    made.watch_pods(lambda _, shown: heard.append(shown.refusal if shown else "gone"))
    made.on_change(lambda: woken.append(1))
    made.apply(Upsert(seen("w-0", refusal="0/3 nodes are available")))

    assert heard == ["0/3 nodes are available"]
    assert woken == []
    shown = made.pod(uid("w-0"))
    assert shown is not None
    assert shown.refusal == "0/3 nodes are available"


def test_a_pod_may_change_its_gang() -> None:
    made = cache(pod_group("x"), pod_group("y"), seen("p", gang="x"))
    made.apply(Upsert(seen("p", gang="y")))

    gangs = made.snapshot(NOW).gangs

    assert [len(gangs[GangKey(key)].pods) for key in ("a/x", "a/y")] == [0, 1]
    assert made.gang_of(uid("p")) == "a/y"
    assert made.members(GangKey("a/x")) == 0


def test_gangs_without_a_group_end_with_their_pods() -> None:
    made = cache(seen("x", ""), seen("y", ""))
    made.snapshot(NOW)
    made.apply(Upsert(seen("x", "", status=Status.SUCCEEDED)))
    made.apply(Delete(Kind.POD, uid("y")))

    assert made.snapshot(NOW).gangs == {}


def test_only_pods_that_can_still_run_are_members() -> None:
    made = cache(
        pod_group(),
        seen("waits"),
        seen("runs", on="n"),
        seen("done", status=Status.SUCCEEDED),
        seen("failed", status=Status.FAILED),
        seen("leaves", status=Status.RELEASING),
    )

    assert made.members(GANG) == 3
    assert made.scheduled(GANG) == 2
    assert len(made.pods_of(GANG)) == 5


def test_scheduled_members_are_counted_by_role() -> None:
    made = cache(
        pod_group(),
        seen("launcher", role="launcher", on="n"),
        seen("w-0", role="worker", on="n"),
        seen("w-1", role="worker"),
    )
    made.reservations.reserve(pod("w-1", role="worker"), GANG, "n", 0.0, stage=Stage.BOUND)

    assert made.scheduled_in_role(GANG, "launcher") == 1
    assert made.scheduled_in_role(GANG, "worker") == 2
    assert made.scheduled_in_role(GANG, "unknown") == 0


def test_scheduled_members_are_counted_by_role_without_reading_every_reservation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Filter asks for each role of a gang, of which thousands of members may be in flight."""
    made = cache(pod_group(), seen("w-0", role="worker", on="n"))
    inflight = made.reservations
    for name in ("w-1", "w-2", "w-3"):
        inflight.reserve(pod(name, role="worker"), GANG, "n", 0.0, stage=Stage.BINDING)
    inflight.advance(uid("w-1"), Stage.BOUND)
    inflight.advance(uid("w-2"), Stage.BOUND)
    inflight.release(uid("w-2"))
    monkeypatch.setattr(inflight, "of_gang", None)

    assert made.scheduled_in_role(GANG, "worker") == 2
    inflight.release(uid("w-1"))
    assert made.scheduled_in_role(GANG, "worker") == 1
    assert not inflight.bound_roles


def test_free_capacity_is_what_kube_scheduler_counts_as_free() -> None:
    made = cache(node("n", cpu=8), seen("x", "", on="n"))
    for name, stage in (("t", Stage.RESERVED), ("p", Stage.FILTERED), ("h", Stage.WAITING)):
        made.reservations.reserve(pod(name), GANG, "n", 0.0, stage=stage)

    capacity = made.free("n")

    assert capacity is not None
    assert capacity.amount("cpu") == 6000
    assert made.reservations.reserved_on("n").amount("cpu") == 2000
    assert made.free("unknown") is None


def test_listeners_are_notified_of_created_and_deleted_pods_groups_and_nodes() -> None:
    made = cache()
    heard: list[Any] = []
    made.watch_pods(lambda key, seen: heard.append((key, seen is not None)))
    made.on_group(lambda key, seen: heard.append((key, seen is not None)))
    made.on_node(lambda key, seen: heard.append((key, seen is not None)))
    for item in (node("n"), pod_group(), seen("w-0"), seen("foreign", "", ours=False)):
        made.apply(Upsert(item))
    for kind, key in ((Kind.POD, uid("w-0")), (Kind.GROUP, GANG), (Kind.NODE, "n")):
        made.apply(Delete(kind, key))

    assert heard == [
        ("n", True),
        (GANG, True),
        ("a-w-0", True),
        ("a-w-0", False),
        (GANG, False),
        ("n", False),
    ]


def test_a_listener_that_fails_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    made = cache()
    woken: list[int] = []

    def fail() -> None:
        raise RuntimeError("mistake")

    made.on_change(fail)
    made.on_change(lambda: woken.append(1))
    made.apply(Upsert(node("n")))

    assert woken == [1]
    assert "a listener of the cache failed" in caplog.text


def test_listeners_may_read_the_cluster_and_take_snapshots() -> None:
    made = cache()
    sizes: list[int] = []
    made.on_change(lambda: sizes.append(len(made.snapshot(NOW).nodes.nodes)))
    made.apply(Upsert(node("n")))

    assert sizes == [1]


def test_single_facts_can_be_read_while_a_snapshot_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    answered = threading.Event()

    def ask() -> None:
        made.pod(uid("w-0"))
        made.group(GANG)
        made.gang_of(uid("w-0"))
        made.scheduled(GANG)
        made.members(GANG)
        made.node("n")
        made.free("n")
        made.reservations.reserve(pod("w-0"), GANG, "n", 0.0)
        made.reservations.advance(uid("w-0"), Stage.FILTERED)
        answered.set()

    expire = made.rejected_nodes.expire

    def take_long() -> Mapping[GangKey, frozenset[str]]:
        threading.Thread(target=ask, daemon=True).start()
        assert answered.wait(5)
        return expire()

    monkeypatch.setattr(made.rejected_nodes, "expire", take_long)
    made.snapshot(NOW)

    assert answered.is_set()


def test_a_complete_list_replaces_all_objects_of_its_source() -> None:
    made = cache(node("n"), seen("old"), seen("kept"))
    made.replace(Kind.POD, [seen("kept", on="n"), seen("new")])

    assert made.pod(uid("old")) is None
    assert made.pod(uid("new")) is not None
    assert cpu_used(made, "n") == 1000


def test_a_list_that_breaks_off_removes_nothing() -> None:
    def broken() -> Any:
        yield seen("new")
        raise ConnectionError

    made = cache(seen("old"))
    with pytest.raises(ConnectionError):
        made.replace(Kind.POD, broken())

    assert made.pod(uid("old")) is not None


def test_a_deletion_in_the_middle_of_a_list_removes_the_earlier_object() -> None:
    made = cache(seen("old"))
    made.replace(Kind.POD, [seen("x"), seen("old"), Delete(Kind.POD, uid("x"))])

    assert made.pod(uid("x")) is None
    assert made.pod(uid("old")) is not None


def test_a_list_longer_than_a_batch_is_applied_completely() -> None:
    made = cache(seen("gone"))
    made.replace(Kind.POD, (seen(f"p{i}", "") for i in range(1000)))

    assert len(made.snapshot(NOW).gangs) == 1000
    assert made.pod(uid("gone")) is None


def test_a_pod_with_a_reservation_has_a_gang_before_the_watch_shows_it() -> None:
    made = cache(node("n"), pod_group())
    unseen = Pod(uid=PodUid("new"), namespace="a", name="new", shape=ONE_CPU)
    made.reservations.reserve(unseen, GANG, "n", 0.0)

    assert made.gang_of(PodUid("new")) == GANG
    assert [each.name for each in made.snapshot(NOW).gangs[GANG].pods] == ["new"]
    assert cpu_used(made, "n") == 1000


def test_a_gang_counts_as_recently_admitted_for_a_minute_after_its_phase_changed() -> None:
    clock = VirtualClock()
    made = cache(pod_group(), pod_group("other", phase=Phase.INQUEUE), clock=clock)
    clock.advance(30)
    made.apply(Upsert(pod_group(phase=Phase.INQUEUE)))
    made.apply(Upsert(pod_group(phase=Phase.INQUEUE, min_member=3)))
    shown = []
    for _ in range(3):
        shown.append(made.snapshot(NOW).recently_admitted)
        clock.advance(30)

    assert shown == [{GANG, "a/other"}, {GANG}, frozenset()]


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, None])
def test_a_gang_that_runs_or_is_pending_again_or_deleted_is_not_recently_admitted(
    phase: Phase | None,
) -> None:
    made = cache(pod_group(phase=Phase.INQUEUE))
    made.apply(Upsert(pod_group(phase=phase)) if phase else Delete(Kind.GROUP, GANG, VOLCANO))

    assert not made.snapshot(NOW).recently_admitted
