"""Races between the barrier and kube-scheduler: calls given up, and calls repeated."""

from __future__ import annotations

from extender.model.pod import PodUid, Status
from extender.permit.messages import Answer, BackOff, Bind, Cause, MarkWaiting, Verify

from .world import FAILED, GANG, a_gang_of, bound_uids, the


def test_a_caller_that_disconnects_while_its_bind_waits_is_released():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.now += 5
    desk.peer_goes(1)

    assert desk.cause_of(1) is Cause.PEER_GONE
    assert PodUid("w-0") not in desk.world.flight
    assert desk.book.waiting_binds == 1


def test_a_disconnect_during_the_commit_changes_only_the_answer():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.peer_goes(1)
    desk.settled("w-0")
    desk.settled("w-1")

    assert desk.cause_of(1) is Cause.PEER_GONE
    assert desk.arrives("w-0") == [Answer(3, "", Cause.BOUND, 0.0)]


def test_a_scheduler_restart_empties_the_gang_without_backoff():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    out = desk.peer_goes(1) + desk.peer_goes(2)

    assert desk.book.state_of(GANG) is None
    assert not any(isinstance(each, BackOff | Bind | Verify) for each in out)
    desk.world.add_pod("w-0")
    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_repeated_call_replaces_the_waiting_one():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    desk.arrives("w-0", node="n-2")

    assert desk.cause_of(1) is Cause.SUPERSEDED
    orders = the(Bind, desk.commits(desk.arrives("w-1"))).orders
    assert [order.node for order in orders] == ["n-2", "n-1"]


def test_a_repeated_call_does_not_count_twice_nor_extend_the_deadline():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.passes(20)
    assert desk.arrives("w-0")[-1] == MarkWaiting(PodUid("w-0"), "n-1")
    desk.passes(10)

    assert desk.cause_of(2) is Cause.DEADLINE


def test_a_repeated_call_while_verifying_is_bound_to_its_last_node():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    verify = desk.arrives("w-1", node="n-1")
    desk.arrives("w-0", node="n-3")

    orders = the(Bind, desk.commits(verify)).orders
    assert [order.node for order in orders] == ["n-3", "n-1"]


def test_a_repeated_call_for_a_deleted_pod_is_refused_with_the_old_one():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.world.change_pod("w-0", status=Status.RELEASING)
    desk.arrives("w-0")

    assert [desk.cause_of(1), desk.cause_of(2)] == [Cause.SUPERSEDED, Cause.POD_GONE]
    assert desk.book.waiting_binds == 0


def test_a_repeated_call_for_a_pod_bound_meanwhile_is_a_success():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    desk.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    desk.arrives("w-0", node="n-1")

    assert desk.error_of(2) == ""


def test_a_repeated_call_of_a_gang_that_runs_by_now_is_bound_at_once():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.world.add_pod("x-0", node="n-3")
    desk.world.add_pod("x-1", node="n-3")

    assert bound_uids(desk.arrives("w-0")) == ["w-0"]
    assert desk.book.state_of(GANG) is None


def test_a_repeated_call_during_the_commit_gets_the_same_answer():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    desk.commits(desk.arrives("w-1"))
    assert desk.arrives("w-0", node="n-1") == []
    assert desk.arrives("w-0", node="n-2") == []
    desk.settled("w-0")

    assert [desk.error_of(1), desk.error_of(3)] == ["", ""]
    assert desk.cause_of(4) is Cause.POD_ELSEWHERE


def test_a_repeated_call_after_the_bind_is_answered_from_memory():
    desk = a_gang_of(1, min_member=1)
    desk.arrives("w-0", node="n-1")
    desk.settled("w-0")
    desk.arrives("w-0", node="n-1")
    desk.arrives("w-0", node="n-2")

    assert desk.error_of(2) == ""
    assert desk.cause_of(3) is Cause.POD_ELSEWHERE


def test_a_failed_bind_is_not_remembered():
    desk = a_gang_of(1, min_member=1)
    desk.arrives("w-0")
    desk.settled("w-0", FAILED)

    assert bound_uids(desk.arrives("w-0")) == ["w-0"]
