"""Races with kube-scheduler: bind calls that disconnect, and calls that are repeated."""

from __future__ import annotations

from extender.model.pod import PodUid, Status
from extender.permit.messages import Answer, BackOff, Bind, Cause, MarkWaiting, Verify

from .world import FAILED, GANG, a_gang_of, bound_uids, the


def test_a_caller_that_disconnects_while_its_bind_waits_is_released():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.now += 5
    driver.peer_goes(1)

    assert driver.cause_of(1) is Cause.PEER_GONE
    assert PodUid("w-0") not in driver.world.flight
    assert driver.machine.waiting_binds == 1


def test_a_disconnect_during_the_commit_changes_only_the_answer():
    driver = a_gang_of(2)
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.peer_goes(1)
    driver.settled("w-0", "w-1")

    assert driver.cause_of(1) is Cause.PEER_GONE
    assert driver.arrives("w-0") == [Answer(3, "", Cause.BOUND, 0.0)]


def test_a_scheduler_restart_empties_the_gang_without_backoff():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    out = driver.peer_goes(1) + driver.peer_goes(2)

    assert driver.machine.state_of(GANG) is None
    assert not any(isinstance(each, BackOff | Bind | Verify) for each in out)
    driver.world.add_pod("w-0")
    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_repeated_call_replaces_the_waiting_one():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    driver.arrives("w-0", node="n-2")

    assert driver.cause_of(1) is Cause.SUPERSEDED
    orders = the(Bind, driver.commits(driver.arrives("w-1"))).orders
    assert [order.node for order in orders] == ["n-2", "n-1"]


def test_a_repeated_call_does_not_count_twice_nor_extend_the_deadline():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.passes(20)
    assert driver.arrives("w-0")[-1] == MarkWaiting(PodUid("w-0"), "n-1")
    driver.passes(10)

    assert driver.cause_of(2) is Cause.DEADLINE


def test_a_repeated_call_while_verifying_is_bound_to_its_last_node():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    verify = driver.arrives("w-1", node="n-1")
    driver.arrives("w-0", node="n-3")

    orders = the(Bind, driver.commits(verify)).orders
    assert [order.node for order in orders] == ["n-3", "n-1"]


def test_a_repeated_call_for_a_deleted_pod_is_refused_with_the_old_one():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.world.change_pod("w-0", status=Status.RELEASING)
    driver.arrives("w-0")

    assert [driver.cause_of(1), driver.cause_of(2)] == [Cause.SUPERSEDED, Cause.POD_GONE]
    assert driver.machine.waiting_binds == 0


def test_a_repeated_call_for_a_pod_bound_meanwhile_is_a_success():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    driver.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    driver.arrives("w-0", node="n-1")

    assert driver.error_of(2) == ""


def test_a_repeated_call_of_a_gang_that_runs_by_now_is_bound_at_once():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.world.add_pod("x-0", node="n-3")
    driver.world.add_pod("x-1", node="n-3")

    assert bound_uids(driver.arrives("w-0")) == ["w-0"]
    assert driver.machine.state_of(GANG) is None


def test_a_repeated_call_during_the_commit_gets_the_same_answer():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    driver.commits(driver.arrives("w-1"))
    assert driver.arrives("w-0", node="n-1") == []
    assert driver.arrives("w-0", node="n-2") == []
    driver.settled("w-0")

    assert [driver.error_of(1), driver.error_of(3)] == ["", ""]
    assert driver.cause_of(4) is Cause.POD_ELSEWHERE


def test_a_repeated_call_after_the_bind_is_answered_from_memory():
    driver = a_gang_of(1, min_member=1)
    driver.arrives("w-0", node="n-1")
    driver.settled("w-0")
    driver.arrives("w-0", node="n-1")
    driver.arrives("w-0", node="n-2")

    assert driver.error_of(2) == ""
    assert driver.cause_of(3) is Cause.POD_ELSEWHERE


def test_a_failed_bind_is_not_remembered():
    driver = a_gang_of(1, min_member=1)
    driver.arrives("w-0")
    driver.settled("w-0", outcome=FAILED)

    assert bound_uids(driver.arrives("w-0")) == ["w-0"]
