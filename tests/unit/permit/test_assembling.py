"""How a gang comes together: quorum, roles, verification, commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import Phase
from extender.model.node import Taint
from extender.model.pod import PodUid, Status, Toleration
from extender.permit.messages import (
    Answer,
    BackOff,
    Bind,
    Cause,
    Closed,
    GroupChanged,
    MarkBound,
    MarkWaiting,
    NodeChanged,
    ReportPartial,
    Verify,
    VerifyFailed,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder, BindOutcome, BindResult

from .world import BOUND, FAILED, GANG, SHAPE, a_gang_of, bound_uids, the


def test_the_last_member_asks_for_the_live_group_before_anything_is_sent():
    desk = a_gang_of(2)
    desk.arrives("w-0")

    group = desk.world.groups[GANG]
    assert desk.arrives("w-1") == [MarkWaiting(PodUid("w-1"), "n-1"), Verify(GANG, 2, group)]


def test_a_verified_gang_is_bound_together():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    verify = desk.arrives("w-1", node="n-2")

    orders = (
        BindOrder(uid=PodUid("w-0"), namespace="team", name="w-0", node="n-1"),
        BindOrder(uid=PodUid("w-1"), namespace="team", name="w-1", node="n-2"),
    )
    assert desk.commits(verify) == [Bind(orders, until=100.0 + desk.limits.answer_s)]


def test_each_call_is_answered_as_soon_as_its_own_outcome_is_known():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.now += 1

    assert desk.settled("w-0") == [MarkBound(PodUid("w-0"), "n-1"), Answer(1, "", Cause.BOUND, 1.0)]
    assert desk.error_of(2) is None
    desk.settled("w-1")
    assert desk.error_of(2) == ""
    assert desk.book.state_of(GANG) is None


def test_members_that_come_while_the_group_is_read_follow_the_rest():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")

    assert desk.arrives("w-2") == [MarkWaiting(PodUid("w-2"), "n-1")]
    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]
    desk.settled("w-0")
    assert bound_uids(desk.settled("w-1")) == ["w-2"]


def test_the_live_group_may_ask_for_more_than_the_cache_knew():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))

    assert desk.verified(verify, replace(verify.group, min_member=3)) == []
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING
    raised = the(Verify, desk.arrives("w-2"))
    assert raised.epoch > verify.epoch


def test_roles_must_be_there_too():
    desk = a_gang_of(0, min_member=3)
    desk.world.add_group(3, roles={"master": 1, "worker": 2})
    for uid, role in [("w-0", "worker"), ("w-1", "worker"), ("w-2", "worker"), ("m-0", "master")]:
        desk.world.add_pod(uid, role=role)
    for uid in ("w-0", "w-1", "w-2"):
        assert desk.arrives(uid) == [MarkWaiting(PodUid(uid), "n-1")]

    assert bound_uids(desk.commits(desk.arrives("m-0"))) == ["w-0", "w-1", "m-0"]


def test_a_scheduled_member_counts_for_its_role():
    desk = a_gang_of(0, min_member=2)
    desk.world.add_group(2, roles={"master": 1})
    desk.world.add_pod("m-0", role="master", node="n-3")
    desk.world.add_pod("w-0", role="worker")

    assert bound_uids(desk.commits(desk.arrives("w-0"))) == ["w-0"]


def test_a_bind_waits_while_a_role_is_missing_though_enough_other_members_run():
    desk = a_gang_of(0, min_member=2)
    desk.world.add_group(2, roles={"master": 1})
    for uid in ("w-0", "w-1"):
        desk.world.add_pod(uid, role="worker", node="n-3")
    desk.world.add_pod("w-2", role="worker")

    assert desk.arrives("w-2") == [MarkWaiting(PodUid("w-2"), "n-1")]


def test_roles_that_add_up_to_more_than_the_minimum_are_not_required():
    desk = a_gang_of(2)
    desk.world.add_group(2, roles={"master": 1, "worker": 5})
    desk.arrives("w-0")

    assert bound_uids(desk.commits(desk.arrives("w-1"))) == ["w-0", "w-1"]


def test_a_group_of_one_with_a_role_still_waits_for_that_role():
    desk = a_gang_of(0, min_member=1)
    desk.world.add_group(1, roles={"master": 1})
    desk.world.add_pod("w-0", role="worker")
    desk.world.add_pod("m-0", role="master")

    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    assert bound_uids(desk.commits(desk.arrives("m-0"))) == ["m-0"]
    assert bound_uids(desk.settled("m-0")) == ["w-0"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"status": Status.RELEASING}, Cause.POD_GONE),
        ({"gated": True}, Cause.POD_CHANGED),
    ],
    ids=["being deleted", "gated"],
)
def test_a_member_that_changed_unnoticed_is_found_before_the_commit(change, cause):
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    verify = desk.arrives("w-2")
    desk.world.change_pod("w-1", **change)
    desk.commits(verify)

    assert desk.cause_of(2) is cause
    assert desk.cause_of(1) is None
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_member_bound_elsewhere_unnoticed_is_refused_but_counts_as_scheduled():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    verify = desk.arrives("w-2")
    desk.world.change_pod("w-1", status=Status.RUNNING, node="n-3")

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-2"]
    assert desk.cause_of(2) is Cause.POD_ELSEWHERE


CHANGES = {
    "gone": (None, Cause.NODE_LOST),
    "unready": ({"ready": False}, Cause.NODE_LOST),
    "cordoned": ({"unschedulable": True}, Cause.NODE_LOST),
    "tainted": ({"taints": (Taint("busy"),)}, Cause.NODE_LOST),
    "emptied": ({"taints": (Taint("out", "x", "NoExecute"),)}, Cause.NODE_LOST),
    "shrunk": ({"room": 1}, Cause.NODE_FULL),
    "disliked": ({"taints": (Taint("busy", "", "PreferNoSchedule"),)}, None),
    "roomy": ({"room": 2}, None),
}


@pytest.mark.parametrize(("facts", "cause"), CHANGES.values(), ids=CHANGES.keys())
def test_a_node_that_failed_unnoticed_is_found_before_the_commit(facts, cause):
    desk = a_gang_of(3)
    desk.arrives("w-0", node="n-1")
    desk.arrives("w-1", node="n-2")
    verify = desk.arrives("w-2", node="n-2")
    del desk.world.nodes["n-2"]
    if facts is not None:
        desk.world.add_node("n-2", **facts)
    desk.commits(verify)

    assert [desk.cause_of(call) for call in (1, 2, 3)] == [None, cause, cause]
    after = AttemptState.ASSEMBLING if cause else AttemptState.COMMITTING
    assert desk.book.state_of(GANG) is after


@pytest.mark.parametrize(("facts", "cause"), CHANGES.values(), ids=CHANGES.keys())
def test_binds_that_wait_for_a_node_that_fails_are_refused_at_once(facts, cause):
    desk = a_gang_of(4)
    desk.arrives("w-0", node="n-1")
    desk.arrives("w-1", node="n-2")
    desk.arrives("w-2", node="n-2")
    del desk.world.nodes["n-2"]
    if facts is not None:
        desk.world.add_node("n-2", **facts)
    desk.tell(NodeChanged("n-2"))

    assert [desk.cause_of(call) for call in (1, 2, 3)] == [None, cause, cause]


def test_capacity_that_another_pod_took_is_found_before_the_commit():
    desk = a_gang_of(2)
    desk.world.add_node("n-2", room=1)
    desk.arrives("w-0", node="n-1")
    verify = desk.arrives("w-1", node="n-2")
    desk.world.add_pod("stranger", None, node="n-2")
    desk.commits(verify)

    assert [desk.cause_of(1), desk.cause_of(2)] == [None, Cause.NODE_FULL]


def test_a_pod_that_tolerates_the_taint_of_its_node_is_bound_there():
    desk = a_gang_of(2)
    shape = replace(SHAPE, tolerations=(Toleration(key="gpu", operator="Exists"),))
    for uid in ("w-0", "w-1"):
        desk.world.change_pod(uid, shape=shape)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.world.add_node("n-1", taints=(Taint("gpu"),))
    desk.tell(NodeChanged("n-1"))

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"), True),
        (Toleration(key="node.kubernetes.io/unschedulable"), True),
        (Toleration(key="node.kubernetes.io/unschedulable", value="x"), False),
        (Toleration(key="node.kubernetes.io/unschedulable", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_a_pod_that_tolerates_a_cordon_may_wait_for_a_cordoned_node(toleration, stays):
    desk = a_gang_of(2)
    desk.world.change_pod("w-0", shape=replace(SHAPE, tolerations=(toleration,)))
    desk.arrives("w-0", node="n-1")
    desk.world.add_node("n-1", unschedulable=True)
    desk.tell(NodeChanged("n-1"))

    assert desk.cause_of(1) is (None if stays else Cause.NODE_LOST)


def test_an_attempt_whose_last_member_fails_the_verification_ends():
    desk = a_gang_of(1, min_member=2)
    desk.world.add_pod("seated", node="n-3")
    verify = desk.arrives("w-0")
    desk.world.nodes.clear()
    desk.commits(verify)

    assert desk.cause_of(1) is Cause.NODE_LOST
    assert desk.book.state_of(GANG) is None


def test_a_pod_that_something_else_bound_on_its_node_is_a_success():
    desk = a_gang_of(3)
    desk.arrives("w-0", node="n-1")
    desk.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    desk.pod_changed("w-0")

    assert desk.error_of(1) == ""


def test_an_unreadable_group_is_read_again():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    desk.tell(VerifyFailed(GANG, verify.epoch))

    again = desk.passes(desk.limits.reread_s)
    assert bound_uids(desk.commits(again)) == ["w-0", "w-1"]


def test_a_group_that_stays_unreadable_refuses_every_call():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    while desk.book.state_of(GANG) is not None:
        desk.tell(VerifyFailed(GANG, verify.epoch))
        again = [each for each in desk.passes(0.5) if isinstance(each, Verify)]
        verify = again[0] if again else verify

    assert desk.cause_of(1) is Cause.UNVERIFIED
    assert desk.cause_of(2) is Cause.UNVERIFIED
    assert desk.now <= 100 + desk.limits.hold_s


def test_a_live_read_that_never_ends_refuses_every_call():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.passes(desk.limits.hold_s + desk.limits.verify_s)

    assert desk.cause_of(1) is Cause.UNVERIFIED
    assert desk.cause_of(2) is Cause.UNVERIFIED


def test_an_answer_from_another_epoch_is_ignored():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    old = the(Verify, desk.arrives("w-1"))
    desk.tell(VerifyFailed(GANG, old.epoch))
    desk.passes(desk.limits.reread_s)

    assert desk.verified(old) == []
    assert desk.book.state_of(GANG) is AttemptState.VERIFYING


def test_a_change_of_the_group_while_it_is_read_causes_another_read():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    old = the(Verify, desk.arrives("w-1"))
    changed = desk.world.add_group(1)

    assert desk.tell(GroupChanged(GANG, changed)) == [Verify(GANG, old.epoch + 1, changed)]


def test_a_change_of_the_groups_status_while_it_is_read_is_no_change():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    running = replace(desk.world.groups[GANG], phase=Phase.RUNNING)
    desk.world.groups[GANG] = running

    assert desk.tell(GroupChanged(GANG, running)) == []
    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]


def test_a_slow_read_cannot_lower_the_minimum_that_the_cache_shows():
    desk = a_gang_of(2)
    desk.arrives("w-0", node="n-1")
    verify = the(Verify, desk.arrives("w-1", node="n-2"))
    del desk.world.nodes["n-2"]

    assert bound_uids(desk.verified(verify, replace(verify.group, min_member=1))) == []
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_members_needed_by_the_cached_minimum_are_sent_in_one_batch():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))

    sent = desk.verified(verify, replace(verify.group, min_member=1))

    assert [[order.uid for order in each.orders] for each in sent if isinstance(each, Bind)] == [
        ["w-0", "w-1"]
    ]


def test_a_change_that_the_cache_has_not_reported_yet_causes_another_read():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    old = the(Verify, desk.arrives("w-1"))
    desk.world.add_group(3)

    assert desk.verified(old) == []
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_is_not_sent_when_kube_scheduler_would_time_out_midway():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    verify = desk.arrives("w-2")
    desk.now += desk.limits.hold_s + desk.limits.verify_s + 0.1
    desk.commits(verify)

    assert {desk.cause_of(call) for call in (1, 2, 3)} == {Cause.TOO_LATE}


@pytest.mark.parametrize("members", [2_501, 5_000, 10_000])
def test_a_gang_that_cannot_be_bound_within_the_commit_is_refused_whole_at_its_first_call(members):
    desk = a_gang_of(1, min_member=members)
    out = desk.arrives("w-0")

    assert desk.cause_of(1) is Cause.TOO_LARGE
    assert the(BackOff, out).gang == GANG
    assert desk.book.state_of(GANG) is None


def test_a_longer_timeout_admits_a_large_gang():
    desk = a_gang_of(1, min_member=10_000, limits=Timeouts.within(hold_s=30, bind_timeout_s=90))

    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_members_that_run_already_need_no_binding():
    desk = a_gang_of(3, limits=Timeouts(commit_s=10, binds_per_s=0.2))
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.arrives("w-1")

    assert bound_uids(desk.commits(desk.arrives("w-2"))) == ["w-1", "w-2"]


def test_members_beyond_the_minimum_make_no_gang_too_large():
    desk = a_gang_of(3, min_member=2, limits=Timeouts(commit_s=10, binds_per_s=0.2))
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]
    desk.settled("w-0")

    assert bound_uids(desk.settled("w-1")) == ["w-2"]


def test_a_gang_that_grew_too_large_while_it_waited_is_not_sent_in_part():
    desk = a_gang_of(3, min_member=2, limits=Timeouts(commit_s=10, binds_per_s=0.2))
    desk.arrives("w-0")
    desk.world.add_group(3)
    desk.tell(GroupChanged(GANG, desk.world.group(GANG)))
    desk.arrives("w-1")
    desk.commits(desk.arrives("w-2"))

    assert {desk.cause_of(call) for call in (1, 2, 3)} == {Cause.TOO_LARGE}


def test_a_failed_surplus_member_does_not_break_the_gang():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.settled("w-0")
    desk.settled("w-1")
    out = desk.settled("w-2", FAILED)

    assert not any(isinstance(each, ReportPartial) for each in out)
    assert desk.error_of(3) == FAILED.message


def test_members_that_come_during_the_commit_follow_once_the_gang_is_bound():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    assert bound_uids(desk.arrives("w-2")) == []
    desk.settled("w-0")

    assert bound_uids(desk.settled("w-1")) == ["w-2"]
    desk.settled("w-2")
    assert desk.error_of(3) == ""


@pytest.mark.parametrize("late", [False, True])
def test_a_surplus_member_behind_a_refused_gang_is_refused_with_it(late):
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    if not late:
        desk.arrives("w-2")
    sent = desk.commits(verify)
    if late:
        sent += desk.arrives("w-2")
    sent += desk.settled("w-0", FAILED)
    sent += desk.settled("w-1", FAILED)

    assert bound_uids(sent) == ["w-0", "w-1"]
    assert desk.cause_of(3) is Cause.BIND_FAILED
    assert desk.book.waiting_binds == 0
    assert bound_uids(desk.arrives("w-2")) == [], "nor does it start alone afterwards"


def test_a_surplus_member_does_not_follow_members_of_unknown_outcome():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    unknown = BindOutcome(BindResult.UNKNOWN, "the API server does not answer")
    desk.settled("w-0", unknown)

    assert bound_uids(desk.settled("w-1", unknown)) == []
    assert desk.cause_of(3) is Cause.BIND_FAILED


def test_a_surplus_member_does_not_follow_members_deleted_meanwhile():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.arrives("w-2")
    desk.settled("w-0")
    for uid in ("w-0", "w-1"):
        desk.world.remove_pod(uid)
        desk.pod_changed(uid)

    assert bound_uids(desk.settled("w-1")) == []
    assert desk.cause_of(3) is Cause.BIND_FAILED


def test_a_surplus_member_completes_a_gang_whose_needed_member_failed():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.settled("w-0")

    assert bound_uids(desk.settled("w-1", FAILED)) == ["w-2"]
    desk.settled("w-2")
    assert desk.book.state_of(GANG) is None


def test_a_surplus_member_whose_capacity_was_reserved_for_another_does_not_follow():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.world.promised_away.add((PodUid("w-2"), "n-1"))
    desk.settled("w-0")

    assert bound_uids(desk.settled("w-1")) == []
    assert desk.cause_of(3) is Cause.CAPACITY_RESERVED


def test_a_surplus_member_follows_only_as_long_as_its_caller_waits():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.now += desk.limits.answer_s
    desk.settled("w-0")

    assert bound_uids(desk.settled("w-1")) == []
    assert desk.cause_of(3) is Cause.TOO_LATE


def test_a_bind_that_waits_for_a_commit_is_refused_on_close():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.tell(Closed(Cause.SHUT_DOWN))

    assert desk.cause_of(3) is Cause.SHUT_DOWN
    assert desk.cause_of(1) is None, "what was sent finishes"


def test_an_unknown_outcome_is_an_error_but_keeps_its_capacity():
    desk = a_gang_of(1, min_member=1)
    desk.arrives("w-0")
    desk.settled("w-0", BindOutcome(BindResult.UNKNOWN, "the API server does not answer"))

    assert desk.error_of(1) == "the API server does not answer"
    assert desk.world.flight[PodUid("w-0")] == ("committing", "n-1")


def test_a_certain_failure_releases_the_capacity():
    desk = a_gang_of(1, min_member=1)
    desk.arrives("w-0")
    desk.settled("w-0", FAILED)

    assert PodUid("w-0") not in desk.world.flight


def test_the_history_of_a_gang_is_in_order():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0", BOUND)
    desk.settled("w-1", BOUND)

    assert list(desk.book._table.history.of(GANG)) == [
        "WAITING",
        "WAITING",
        "VERIFYING",
        "COMMITTING",
        "BINDING",
        "BINDING",
        "BOUND",
        "BOUND",
        "DONE",
    ]
