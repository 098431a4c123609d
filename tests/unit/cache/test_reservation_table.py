from __future__ import annotations

from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.reservation_table import ANY_NODE, SETTLED_S, ReservationTable, Stage
from extender.model.gang import GangKey
from extender.model.node import HostPorts
from extender.model.pod import HostPort, Status
from extender.sim.clock import VirtualClock
from tests.builders import GANG, NOW, ONE_CPU, cache, node, pod, pod_group, seen, shape, uid

OTHER = GangKey("a/other")


def alone(clock: VirtualClock | None = None) -> ReservationTable:
    """A reservation table with an empty cluster."""
    return cache(clock=clock or VirtualClock()).reservations


def test_a_reservation_uses_capacity_that_kube_scheduler_counts_as_free() -> None:
    inflight = alone()

    assert inflight.reserve(pod("w-0"), GANG, "n", 1.0)

    reservation = inflight.of(uid("w-0"))
    assert reservation is not None
    assert (reservation.node, reservation.stage, reservation.gang) == ("n", Stage.RESERVED, GANG)
    assert (reservation.pod.namespace, reservation.pod.name) == ("a", "w-0")
    assert inflight.reserved_on("n") == ONE_CPU.requests
    assert set(inflight.reserved_nodes()) == {"n"}


def test_the_capacity_of_a_waiting_bind_is_committed_and_no_longer_reserved() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 1.0)
    inflight.advance(uid("w-0"), Stage.WAITING)

    assert inflight.reserved_on("n").amount("cpu") == 0
    assert inflight.assumed_on("n") == ONE_CPU.requests


def test_kube_scheduler_may_choose_another_node() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 1.0)
    inflight.advance(uid("w-0"), Stage.WAITING, node="m")

    assert set(inflight.reserved_nodes()) == set()
    assert inflight.assumed_on("n").amount("cpu") == 0
    assert inflight.assumed_on("m") == ONE_CPU.requests


@pytest.mark.parametrize("stage", [Stage.BINDING, Stage.BOUND])
def test_there_is_no_way_back_from_a_binding_under_way(stage: Stage) -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 1.0, stage=stage)

    assert not inflight.advance(uid("w-0"), Stage.FILTERED)
    assert not inflight.move(uid("w-0"), "m")
    assert not inflight.reserve(pod("w-0"), GANG, "m", 2.0)
    assert inflight.assumed_on("n") == ONE_CPU.requests


def test_a_waiting_pod_that_kube_scheduler_retries_goes_back_to_filtered() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 1.0, stage=Stage.WAITING)

    assert inflight.advance(uid("w-0"), Stage.FILTERED)
    assert inflight.reserved_on("n") == ONE_CPU.requests


def test_a_pod_without_a_reservation_cannot_advance_move_or_be_released() -> None:
    inflight = alone()

    assert not inflight.advance(uid("w-0"), Stage.WAITING)
    assert not inflight.move(uid("w-0"), "n")
    assert not inflight.release(uid("w-0"))


def test_a_released_pod_leaves_nothing_behind() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 1.0)

    assert inflight.release(uid("w-0"))
    assert len(inflight) == 0
    assert inflight.of_gang(GANG) == ()
    assert inflight.reserved_on("n").amount("cpu") == 0


def test_expiry_keeps_reservations_that_kube_scheduler_counts_on() -> None:
    inflight = alone()
    for name, stage in (("t", Stage.RESERVED), ("p", Stage.FILTERED), ("h", Stage.WAITING)):
        inflight.reserve(pod(name), GANG, "n", 1.0, stage=stage)
    inflight.reserve(pod("o"), OTHER, "n", 1.0)

    inflight.expire(GANG)
    assert [each.pod.name for each in inflight.of_gang(GANG)] == ["h"]
    assert len(inflight.of_gang(OTHER)) == 1


def test_a_pod_on_a_node_needs_no_reservation() -> None:
    made = cache(node("n"), seen("w-0", on="n"), seen("w-1", status=Status.RELEASING))

    assert not made.reservations.reserve(pod("w-0"), GANG, "n", 1.0)
    assert not made.reservations.reserve(pod("w-1"), GANG, "n", 1.0)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_pod_seen_on_its_node_is_counted_once(stage: Stage) -> None:
    kind = shape(cpu=1, memory=1)
    made = cache(node("n"), pod_group(), seen("w-0", shape=kind))
    made.reservations.reserve(pod("w-0", kind), GANG, "n", 1.0, stage=stage)
    before = made.snapshot(NOW)
    made.apply(Upsert(seen("w-0", shape=kind, on="n", status=Status.BOUND)))
    after = made.snapshot(NOW)

    assert made.reservations.of(uid("w-0")) is None
    assert before.nodes.used.tolist() == after.nodes.used.tolist() == [[1000, 1 << 30, 1]]
    assert before.gangs[GANG].ready == after.gangs[GANG].ready == 1
    assert made.scheduled(GANG) == 1


@pytest.mark.parametrize("stage", Stage)
def test_a_member_has_started_when_it_is_bound_and_not_before(stage: Stage) -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, stage=stage)

    assert made.scheduled(GANG) == (stage is Stage.BOUND)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_deleted_pod_has_no_reservation(stage: Stage) -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, stage=stage)
    made.snapshot(NOW)
    made.apply(Delete(Kind.POD, uid("w-0")))

    assert len(made.reservations) == 0
    assert made.snapshot(NOW).nodes.used.sum() == 0


@pytest.mark.parametrize(
    "change",
    [{"status": Status.RELEASING}, {"gang": "other"}, {"on": "m"}],
    ids=["is being deleted", "leaves the gang", "is bound elsewhere"],
)
def test_a_reservation_ends_when_its_pod(change: dict[str, Any]) -> None:
    made = cache(node("m"), node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0)
    made.snapshot(NOW)
    made.apply(Upsert(seen("w-0", **change)))

    assert made.reservations.of(uid("w-0")) is None
    assert made.snapshot(NOW).nodes.used[:, 0].tolist() == [1000 if "on" in change else 0, 0]


def test_a_waiting_bind_keeps_its_capacity_until_it_is_answered() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, stage=Stage.WAITING)
    made.apply(Upsert(seen("w-0", status=Status.RELEASING)))
    snapshot = made.snapshot(NOW)

    assert snapshot.nodes.used[0, 0] == 1000
    assert snapshot.gangs[GANG].pods[0].status is Status.RELEASING
    assert snapshot.gangs[GANG].ready == 0


def test_an_old_watch_event_does_not_undo_a_confirmed_bind() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, stage=Stage.BOUND)
    made.apply(Upsert(seen("w-0", nominated="n")))

    assert made.scheduled(GANG) == 1
    assert made.snapshot(NOW).gangs[GANG].ready == 1


@pytest.mark.parametrize(
    ("stage", "status"),
    [
        (Stage.RESERVED, Status.ALLOCATED),
        (Stage.FILTERED, Status.ALLOCATED),
        (Stage.WAITING, Status.BINDING),
        (Stage.BINDING, Status.BINDING),
        (Stage.BOUND, Status.BINDING),
    ],
)
def test_the_snapshot_has_a_pod_with_a_reservation_on_its_node(
    stage: Stage, status: Status
) -> None:
    made = cache(node("n"), pod_group(), seen("w-0", nominated="m", priority=3))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, stage=stage)

    (shown,) = made.snapshot(NOW).gangs[GANG].pods

    assert (shown.status, shown.node, shown.nominated, shown.priority) == (status, "n", "m", 3)


def test_the_snapshot_reuses_a_reserved_pod_that_did_not_change() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"), seen("w-1"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0)
    before = made.snapshot(NOW).gangs[GANG].pods[0]
    made.reservations.advance(uid("w-0"), Stage.FILTERED)
    same = made.snapshot(NOW).gangs[GANG].pods[0]
    made.reservations.advance(uid("w-0"), Stage.WAITING)
    held = made.snapshot(NOW).gangs[GANG].pods[0]

    assert same is before
    assert held.status is Status.BINDING


def test_the_snapshot_has_the_current_state_of_a_reserved_pod() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0)
    made.snapshot(NOW)
    made.apply(Upsert(seen("w-0", nominated="n")))

    (shown,) = made.snapshot(NOW).gangs[GANG].pods

    assert (shown.status, shown.nominated) == (Status.ALLOCATED, "n")


def test_the_snapshot_has_a_released_pod_as_it_was_before() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0)
    made.snapshot(NOW)
    made.reservations.release(uid("w-0"))
    snapshot = made.snapshot(NOW)

    assert snapshot.gangs[GANG].pods[0].status is Status.PENDING
    assert snapshot.nodes.used.sum() == 0


def test_reserved_host_ports_are_used() -> None:
    web = pod("x", shape=shape(cpu=1, host_ports=(HostPort(80),)))
    made = cache(node("n"), seen("x", "", shape=web.shape))
    made.reservations.reserve(web, GangKey("a/pod:x"), "n", 1.0)

    assert made.snapshot(NOW).nodes.ports == {"n": HostPorts([HostPort(80)])}

    made.reservations.release(web.uid)

    assert made.snapshot(NOW).nodes.ports == {}


def test_a_reservation_on_an_unknown_node_adds_no_row() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "ghost", 1.0)

    assert made.snapshot(NOW).nodes.used.sum() == 0

    made.apply(Upsert(node("ghost")))

    assert made.snapshot(NOW).nodes.used[:, 0].tolist() == [1000, 0]


def test_a_bind_without_an_outcome_is_treated_as_not_done() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 0.0, stage=Stage.UNKNOWN)
    sent = made.reservations.of(uid("w-0"))

    assert not made.reservations.drop_unsettled(sent, SETTLED_S)
    assert made.reservations.drop_unsettled(sent, SETTLED_S + 1)
    assert len(made.reservations) == 0


def test_a_bind_whose_outcome_may_still_come_keeps_its_capacity() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 0.0, stage=Stage.BINDING)

    assert not made.reservations.drop_unsettled(made.reservations.of(uid("w-0")), 10 * SETTLED_S)
    assert len(made.reservations) == 1


def test_a_confirmed_bind_is_kept_as_long_as_its_pod_exists() -> None:
    made = cache(node("n"), pod_group(), seen("seen"))
    for name in ("seen", "never-seen"):
        made.reservations.reserve(pod(name), GANG, "n", 0.0, stage=Stage.BOUND)
    for each in made.reservations.of_gang(GANG):
        made.reservations.drop_unsettled(each, SETTLED_S + 1)

    assert [each.pod.name for each in made.reservations.of_gang(GANG)] == ["seen"]


@pytest.mark.parametrize("stage", [Stage.UNKNOWN, Stage.BOUND])
def test_a_bind_without_an_outcome_is_kept_while_the_watch_is_silent(
    stage: Stage,
) -> None:
    made = cache(node("n"), pod_group())
    made.freshness.expect("pods", 0.0)
    made.freshness.listed("pods", 5.0)
    made.reservations.reserve(pod("new"), GANG, "n", 10.0, stage=stage)
    sent, later = made.reservations.of(uid("new")), 10.0 + SETTLED_S + 1
    assert sent is not None

    assert not made.reservations.drop_unsettled(sent, later)
    made.freshness.received("pods", later)
    assert made.reservations.drop_unsettled(sent, later)


def test_a_gang_backs_off_until_its_backoff_ends() -> None:
    clock = VirtualClock()
    made = cache(pod_group(), clock=clock)
    made.reservations.back_off(GANG, 10)

    assert made.snapshot(NOW).gangs[GANG].backing_off_until == NOW + 10
    assert made.reservations.backs_off_for(GANG) == 10

    clock.advance(10)

    assert made.snapshot(NOW + 10).gangs[GANG].backing_off_until == 0.0
    assert made.reservations.backs_off_for(GANG) == 0.0


def test_the_backoff_of_a_gang_does_not_depend_on_the_wall_clock() -> None:
    clock = VirtualClock()
    made = cache(pod_group(), clock=clock)
    made.reservations.back_off(GANG, 10)
    made.snapshot(NOW)

    an_hour_back = NOW - 3600
    assert made.snapshot(an_hour_back).gangs[GANG].backing_off_until == an_hour_back + 10


def test_new_reservations_count_as_spent_by_their_queue_and_namespace() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 0.0, queue="q")
    made.reservations.reserve(pod("w-0"), GANG, "n", 1.0, queue="q")

    assert made.reservations.spent() == {("q", "a"): pod("w-0").requests}

    made.snapshot(NOW)

    assert made.reservations.spent() == {}


def test_reservations_swap_nodes_unless_one_of_them_is_in_use() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n-0", 0.0)
    inflight.reserve(pod("w-1"), GANG, "n-1", 0.0)

    assert inflight.swap(uid("w-0"), uid("w-1"))
    assert {each.pod.name: each.node for each in inflight.of_gang(GANG)} == {
        "w-0": "n-1",
        "w-1": "n-0",
    }
    assert [each.pod.name for each in inflight.on_node("n-1")] == ["w-0"]
    assert inflight.reserved_on("n-0") == pod("w-0").requests

    inflight.advance(uid("w-1"), Stage.FILTERED)
    assert not inflight.swap(uid("w-0"), uid("w-1"))


def test_a_reservation_on_any_node_uses_no_capacity_of_a_node() -> None:
    inflight = alone()
    inflight.reserve(pod("web"), GANG, ANY_NODE, 0.0, stage=Stage.FILTERED)

    assert not inflight.reserved_nodes()
    assert inflight.drain().steps == []

    inflight.advance(uid("web"), Stage.BINDING, "n")

    assert inflight.assumed_on("n") == pod("web").requests


def test_a_release_requests_a_cycle_but_a_reservation_does_not() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(1))
    made.reservations.reserve(pod("w-0"), GANG, "n", 0.0)
    made.reservations.advance(uid("w-0"), Stage.FILTERED)

    assert woken == []

    made.reservations.release(uid("w-0"))

    assert woken == [1]


def test_the_number_of_bound_members_follows_every_step() -> None:
    inflight = alone()
    inflight.reserve(pod("w-0"), GANG, "n", 0.0)
    inflight.reserve(pod("w-1"), GANG, "n", 0.0)
    inflight.advance(uid("w-0"), Stage.BOUND)
    inflight.advance(uid("w-0"), Stage.BOUND)

    assert inflight.bound_in(GANG) == 1

    inflight.release(uid("w-0"))

    assert inflight.bound_in(GANG) == 0
