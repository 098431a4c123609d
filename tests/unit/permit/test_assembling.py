"""How a gang assembles: quorum, roles, verification, commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import Phase
from extender.model.node import Taint
from extender.model.pod import PodUid, Status, Toleration
from extender.permit.messages import (
    Answer,
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
from extender.ports import BindOrder

from .world import (
    BOUND,
    FAILED,
    GANG,
    SHAPE,
    UNKNOWN,
    a_gang_of,
    a_gang_with_a_surplus_member,
    bound_uids,
    the,
)


def test_the_last_member_asks_for_the_live_group_before_anything_is_sent():
    driver = a_gang_of(2)
    driver.arrives("w-0")

    group = driver.world.groups[GANG]
    assert driver.arrives("w-1") == [MarkWaiting(PodUid("w-1"), "n-1"), Verify(GANG, 2, group)]


def test_a_verified_gang_is_bound_together():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    verify = driver.arrives("w-1", node="n-2")

    orders = (
        BindOrder(uid=PodUid("w-0"), namespace="team", name="w-0", node="n-1"),
        BindOrder(uid=PodUid("w-1"), namespace="team", name="w-1", node="n-2"),
    )
    assert driver.commits(verify) == [Bind(orders, until=100.0 + driver.limits.answer_s)]


def test_each_call_is_answered_as_soon_as_its_own_outcome_is_known():
    driver = a_gang_of(2)
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.now += 1

    assert driver.settled("w-0") == [
        MarkBound(PodUid("w-0"), "n-1"),
        Answer(1, "", Cause.BOUND, 1.0),
    ]
    assert driver.error_of(2) is None
    driver.settled("w-1")
    assert driver.error_of(2) == ""
    assert driver.machine.state_of(GANG) is None


def test_the_live_group_may_ask_for_more_than_the_cache_knew():
    driver = a_gang_of(3, min_member=2)
    verify = the(Verify, driver.arrives("w-0", "w-1"))

    assert driver.verified(verify, replace(verify.group, min_member=3)) == []
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING
    raised = the(Verify, driver.arrives("w-2"))
    assert raised.epoch > verify.epoch


def test_roles_must_be_there_too():
    driver = a_gang_of(0, min_member=3)
    driver.world.add_group(3, roles={"master": 1, "worker": 2})
    for uid, role in [("w-0", "worker"), ("w-1", "worker"), ("w-2", "worker"), ("m-0", "master")]:
        driver.world.add_pod(uid, role=role)
    for uid in ("w-0", "w-1", "w-2"):
        assert driver.arrives(uid) == [MarkWaiting(PodUid(uid), "n-1")]

    assert bound_uids(driver.commits(driver.arrives("m-0"))) == ["w-0", "w-1", "m-0"]


def test_a_scheduled_member_counts_for_its_role():
    driver = a_gang_of(0, min_member=2)
    driver.world.add_group(2, roles={"master": 1})
    driver.world.add_pod("m-0", role="master", node="n-3")
    driver.world.add_pod("w-0", role="worker")

    assert bound_uids(driver.commits(driver.arrives("w-0"))) == ["w-0"]


def test_a_bind_waits_while_a_role_is_missing_though_enough_other_members_run():
    driver = a_gang_of(0, min_member=2)
    driver.world.add_group(2, roles={"master": 1})
    for uid in ("w-0", "w-1"):
        driver.world.add_pod(uid, role="worker", node="n-3")
    driver.world.add_pod("w-2", role="worker")

    assert driver.arrives("w-2") == [MarkWaiting(PodUid("w-2"), "n-1")]


def test_roles_that_add_up_to_more_than_the_minimum_are_not_required():
    driver = a_gang_of(2)
    driver.world.add_group(2, roles={"master": 1, "worker": 5})
    driver.arrives("w-0")

    assert bound_uids(driver.commits(driver.arrives("w-1"))) == ["w-0", "w-1"]


def test_a_group_of_one_with_a_role_still_waits_for_that_role():
    driver = a_gang_of(0, min_member=1)
    driver.world.add_group(1, roles={"master": 1})
    driver.world.add_pod("w-0", role="worker")
    driver.world.add_pod("m-0", role="master")

    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    assert bound_uids(driver.commits(driver.arrives("m-0"))) == ["m-0"]
    assert bound_uids(driver.settled("m-0")) == ["w-0"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"status": Status.RELEASING}, Cause.POD_GONE),
        ({"gated": True}, Cause.POD_CHANGED),
    ],
    ids=["being deleted", "gated"],
)
def test_a_member_that_changed_unnoticed_is_found_before_the_commit(change, cause):
    driver = a_gang_of(3)
    verify = driver.arrives("w-0", "w-1", "w-2")
    driver.world.change_pod("w-1", **change)
    driver.commits(verify)

    assert driver.cause_of(2) is cause
    assert driver.cause_of(1) is None
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_member_bound_elsewhere_unnoticed_is_refused_but_counts_as_scheduled():
    driver = a_gang_of(3)
    verify = driver.arrives("w-0", "w-1", "w-2")
    driver.world.change_pod("w-1", status=Status.RUNNING, node="n-3")

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-2"]
    assert driver.cause_of(2) is Cause.POD_ELSEWHERE


CHANGES = {
    "gone": (None, Cause.NODE_LOST),
    "unready": ({"ready": False}, Cause.NODE_LOST),
    "cordoned": ({"unschedulable": True}, Cause.NODE_LOST),
    "tainted": ({"taints": (Taint("busy"),)}, Cause.NODE_LOST),
    "emptied": ({"taints": (Taint("out", "x", "NoExecute"),)}, Cause.NODE_LOST),
    "shrunk": ({"max_pods": 1}, Cause.NODE_FULL),
    "disliked": ({"taints": (Taint("busy", "", "PreferNoSchedule"),)}, None),
    "roomy": ({"max_pods": 2}, None),
}


@pytest.mark.parametrize(("facts", "cause"), CHANGES.values(), ids=CHANGES.keys())
def test_a_node_that_failed_unnoticed_is_found_before_the_commit(facts, cause):
    driver = a_gang_of(3)
    driver.arrives("w-0", node="n-1")
    driver.arrives("w-1", node="n-2")
    verify = driver.arrives("w-2", node="n-2")
    del driver.world.nodes["n-2"]
    if facts is not None:
        driver.world.add_node("n-2", **facts)
    driver.commits(verify)

    assert [driver.cause_of(call) for call in (1, 2, 3)] == [None, cause, cause]
    after = AttemptState.ASSEMBLING if cause else AttemptState.COMMITTING
    assert driver.machine.state_of(GANG) is after


@pytest.mark.parametrize(("facts", "cause"), CHANGES.values(), ids=CHANGES.keys())
def test_binds_that_wait_for_a_node_that_fails_are_refused_at_once(facts, cause):
    driver = a_gang_of(4)
    driver.arrives("w-0", node="n-1")
    driver.arrives("w-1", node="n-2")
    driver.arrives("w-2", node="n-2")
    del driver.world.nodes["n-2"]
    if facts is not None:
        driver.world.add_node("n-2", **facts)
    driver.tell(NodeChanged("n-2"))

    assert [driver.cause_of(call) for call in (1, 2, 3)] == [None, cause, cause]


def test_a_pod_that_tolerates_the_taint_of_its_node_is_bound_there():
    driver = a_gang_of(2)
    shape = replace(SHAPE, tolerations=(Toleration(key="gpu", operator="Exists"),))
    for uid in ("w-0", "w-1"):
        driver.world.change_pod(uid, shape=shape)
    verify = driver.arrives("w-0", "w-1")
    driver.world.add_node("n-1", taints=(Taint("gpu"),))
    driver.tell(NodeChanged("n-1"))

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]


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
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", shape=replace(SHAPE, tolerations=(toleration,)))
    driver.arrives("w-0", node="n-1")
    driver.world.add_node("n-1", unschedulable=True)
    driver.tell(NodeChanged("n-1"))

    assert driver.cause_of(1) is (None if stays else Cause.NODE_LOST)


def test_an_attempt_whose_last_member_fails_the_verification_ends():
    driver = a_gang_of(1, min_member=2)
    driver.world.add_pod("seated", node="n-3")
    verify = driver.arrives("w-0")
    driver.world.nodes.clear()
    driver.commits(verify)

    assert driver.cause_of(1) is Cause.NODE_LOST
    assert driver.machine.state_of(GANG) is None


def test_a_group_that_stays_unreadable_refuses_every_call():
    driver = a_gang_of(2)
    verify = the(Verify, driver.arrives("w-0", "w-1"))
    while driver.machine.state_of(GANG) is not None:
        driver.tell(VerifyFailed(GANG, verify.epoch))
        again = [each for each in driver.passes(0.5) if isinstance(each, Verify)]
        verify = again[0] if again else verify

    assert driver.cause_of(1) is Cause.UNVERIFIED
    assert driver.cause_of(2) is Cause.UNVERIFIED
    assert driver.now <= 100 + driver.limits.hold_s


def test_a_live_read_that_never_ends_refuses_every_call():
    driver = a_gang_of(2)
    driver.arrives("w-0", "w-1")
    driver.passes(driver.limits.hold_s + driver.limits.verify_s)

    assert driver.cause_of(1) is Cause.UNVERIFIED
    assert driver.cause_of(2) is Cause.UNVERIFIED


def test_an_answer_from_another_epoch_is_ignored():
    driver = a_gang_of(2)
    old = the(Verify, driver.arrives("w-0", "w-1"))
    driver.tell(VerifyFailed(GANG, old.epoch))
    driver.passes(driver.limits.reread_s)

    assert driver.verified(old) == []
    assert driver.machine.state_of(GANG) is AttemptState.VERIFYING


def test_a_change_of_the_group_while_it_is_read_causes_another_read():
    driver = a_gang_of(2)
    old = the(Verify, driver.arrives("w-0", "w-1"))
    changed = driver.world.add_group(1)

    assert driver.tell(GroupChanged(GANG, changed)) == [Verify(GANG, old.epoch + 1, changed)]


def test_a_change_of_the_groups_status_while_it_is_read_is_no_change():
    driver = a_gang_of(2)
    verify = driver.arrives("w-0", "w-1")
    running = replace(driver.world.groups[GANG], phase=Phase.RUNNING)
    driver.world.groups[GANG] = running

    assert driver.tell(GroupChanged(GANG, running)) == []
    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]


def test_a_slow_read_cannot_lower_the_minimum_that_the_cache_shows():
    driver = a_gang_of(2)
    driver.arrives("w-0", node="n-1")
    verify = the(Verify, driver.arrives("w-1", node="n-2"))
    del driver.world.nodes["n-2"]

    assert bound_uids(driver.verified(verify, replace(verify.group, min_member=1))) == []
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_members_needed_by_the_cached_minimum_are_sent_in_one_batch():
    driver = a_gang_of(2)
    verify = the(Verify, driver.arrives("w-0", "w-1"))

    sent = driver.verified(verify, replace(verify.group, min_member=1))

    assert [[order.uid for order in each.orders] for each in sent if isinstance(each, Bind)] == [
        ["w-0", "w-1"]
    ]


def test_a_change_that_the_cache_has_not_reported_yet_causes_another_read():
    driver = a_gang_of(3, min_member=2)
    old = the(Verify, driver.arrives("w-0", "w-1"))
    driver.world.add_group(3)

    assert driver.verified(old) == []
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_is_not_sent_when_kube_scheduler_would_time_out_midway():
    driver = a_gang_of(3)
    verify = driver.arrives("w-0", "w-1", "w-2")
    driver.now += driver.limits.hold_s + driver.limits.verify_s + 0.1
    driver.commits(verify)

    assert {driver.cause_of(call) for call in (1, 2, 3)} == {Cause.TOO_LATE}


def test_a_longer_timeout_admits_a_large_gang():
    driver = a_gang_of(1, min_member=10_000, limits=Timeouts.within(hold_s=30, bind_timeout_s=90))

    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_members_that_run_already_need_no_binding():
    driver = a_gang_of(3, limits=Timeouts(commit_s=10, binds_per_s=0.2))
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.arrives("w-1")

    assert bound_uids(driver.commits(driver.arrives("w-2"))) == ["w-1", "w-2"]


def test_a_gang_that_grew_too_large_while_it_waited_is_not_sent_in_part():
    driver = a_gang_of(3, min_member=2, limits=Timeouts(commit_s=10, binds_per_s=0.2))
    driver.arrives("w-0")
    driver.world.add_group(3)
    driver.tell(GroupChanged(GANG, driver.world.group(GANG)))
    driver.commits(driver.arrives("w-1", "w-2"))

    assert {driver.cause_of(call) for call in (1, 2, 3)} == {Cause.TOO_LARGE}


def test_members_that_come_during_the_commit_follow_once_the_gang_is_bound():
    driver = a_gang_of(3, min_member=2)
    driver.commits(driver.arrives("w-0", "w-1"))
    assert bound_uids(driver.arrives("w-2")) == []
    driver.settled("w-0")

    assert bound_uids(driver.settled("w-1")) == ["w-2"]
    driver.settled("w-2")
    assert driver.error_of(3) == ""


@pytest.mark.parametrize("late", [False, True])
def test_a_surplus_member_behind_a_refused_gang_is_refused_with_it(late):
    driver = a_gang_of(3, min_member=2)
    verify = driver.arrives("w-0", "w-1")
    if not late:
        driver.arrives("w-2")
    sent = driver.commits(verify)
    if late:
        sent += driver.arrives("w-2")
    sent += driver.settled("w-0", outcome=FAILED)
    sent += driver.settled("w-1", outcome=FAILED)

    assert bound_uids(sent) == ["w-0", "w-1"]
    assert driver.cause_of(3) is Cause.BIND_FAILED
    assert driver.machine.waiting_binds == 0
    assert bound_uids(driver.arrives("w-2")) == [], "nor does it start alone afterwards"


def test_an_unknown_outcome_is_an_error_but_keeps_its_capacity():
    driver = a_gang_of(1, min_member=1)
    driver.arrives("w-0")
    driver.settled("w-0", outcome=UNKNOWN)

    assert driver.error_of(1) == UNKNOWN.message
    assert driver.world.flight[PodUid("w-0")] == ("binding", "n-1")


def test_a_certain_failure_releases_the_capacity():
    driver = a_gang_of(1, min_member=1)
    driver.arrives("w-0")
    driver.settled("w-0", outcome=FAILED)

    assert PodUid("w-0") not in driver.world.flight


def test_the_history_of_a_gang_is_in_order():
    driver = a_gang_of(2)
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.settled("w-0", "w-1", outcome=BOUND)

    assert list(driver.machine.table.history.of(GANG)) == [
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


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            lambda driver: driver.world.reserved_for_others.add((PodUid("w-2"), "n-1")),
            Cause.CAPACITY_RESERVED,
        ),
        (lambda driver: setattr(driver, "now", 100 + driver.limits.answer_s), Cause.TOO_LATE),
        (lambda driver: driver.world.may_be_evicted.add(PodUid("w-2")), Cause.POD_PREEMPTED),
        (lambda driver: driver.world.pods.clear(), Cause.BIND_FAILED),
    ],
    ids=["capacity reserved", "caller gave up", "may be evicted", "all deleted"],
)
def test_a_surplus_member_that_may_not_start_does_not_follow(change, cause):
    driver = a_gang_with_a_surplus_member()
    change(driver)

    assert bound_uids(driver.settled("w-0", "w-1")) == []
    assert driver.cause_of(3) is cause


@pytest.mark.parametrize("second", [BOUND, FAILED, UNKNOWN], ids=lambda each: each.result.value)
def test_a_surplus_member_follows_as_soon_as_another_is_bound(second):
    driver = a_gang_with_a_surplus_member()
    driver.settled("w-0")

    assert bound_uids(driver.settled("w-1", outcome=second)) == ["w-2"]
    driver.settled("w-2")
    assert driver.error_of(3) == ""


def test_a_surplus_member_does_not_follow_members_of_unknown_outcome():
    driver = a_gang_with_a_surplus_member()

    assert bound_uids(driver.settled("w-0", "w-1", outcome=UNKNOWN)) == []
    assert driver.cause_of(3) is Cause.BIND_FAILED


def test_a_failed_surplus_member_does_not_break_the_gang():
    driver = a_gang_with_a_surplus_member()
    driver.settled("w-0", "w-1")

    assert not any(
        isinstance(each, ReportPartial) for each in driver.settled("w-2", outcome=FAILED)
    )
    assert driver.error_of(3) == FAILED.message


def test_a_bind_that_waits_for_a_commit_is_refused_on_close():
    driver = a_gang_with_a_surplus_member()
    driver.tell(Closed(Cause.SHUT_DOWN))

    assert driver.cause_of(3) is Cause.SHUT_DOWN
    assert driver.cause_of(1) is None, "what was sent finishes"
