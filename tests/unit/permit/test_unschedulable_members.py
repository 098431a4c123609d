"""A needed sibling that fits no node: the others are not held to the deadline for it."""

from __future__ import annotations

from extender.model.pod import PodUid
from extender.model.reason import Reason
from extender.permit.messages import Cause, SiblingUnschedulable

from .world import GANG, Desk, a_gang_of


def refused(desk: Desk, uid: str, words: str = "0/3 nodes: 3 Insufficient cpu") -> None:
    """kube-scheduler writes why it found no node; then the grace passes."""
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod(uid, words), GANG))
    desk.passes(desk.limits.grace_s)


def test_a_needed_member_that_fits_no_node_ends_the_wait_early():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-2"), GANG))
    desk.passes(desk.limits.grace_s)

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.SIBLING_UNSCHEDULABLE}


def test_a_member_that_is_not_needed_may_stay_unschedulable():
    desk = a_gang_of(4, min_member=3)
    desk.arrives("w-0")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-3"), GANG))
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(1) is None


def test_the_only_member_of_a_needed_role_is_needed_however_many_others_there_are():
    desk = a_gang_of(4, min_member=3)
    desk.world.add_group(3, roles={"ps": 1})
    desk.world.add_pod("ps", role="ps")
    for number in range(3):
        desk.arrives(f"w-{number}")
    refused(desk, "ps")

    assert desk.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_member_that_the_extender_refused_does_not_end_the_wait():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    words = f"0/3 nodes are available: 3 {Reason.BEHIND_IN_ORDER.sentence}."
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-1", words), GANG))
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(1) is None


def test_a_member_for_which_pods_are_being_evicted_is_waited_for():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.world.change_pod("w-1", nominated="n-2")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-1"), GANG))
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(1) is None


def test_a_member_that_comes_within_the_grace_is_accepted():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-1"), GANG))
    desk.arrives("w-1")
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(1) is None


def test_a_nomination_by_the_extender_does_not_count():
    desk = a_gang_of(2)
    desk.world.flight[PodUid("w-1")] = ("ticketed", "n-2")
    desk.arrives("w-0")
    desk.world.change_pod("w-1", nominated="n-2")
    refused(desk, "w-1")

    assert desk.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_nomination_after_the_refusal_is_the_extenders_even_without_a_reservation():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-1"), GANG))
    desk.world.flight.pop(PodUid("w-1"))
    desk.world.change_pod("w-1", nominated="n-2")
    desk.pod_changed("w-1")
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_refusal_from_before_the_attempt_does_not_end_the_wait():
    desk = a_gang_of(2)
    desk.world.refuse_pod("w-1")
    desk.arrives("w-0")
    refused(desk, "w-1")

    assert desk.cause_of(1) is None


def test_a_changed_refusal_of_a_member_ends_the_wait():
    desk = a_gang_of(2)
    desk.world.refuse_pod("w-1")
    desk.arrives("w-0")
    refused(desk, "w-1", "0/3 nodes: 3 didn't match pod affinity rules")

    assert desk.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_member_that_the_extender_refused_last_does_not_end_the_wait():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.tell(SiblingUnschedulable(desk.world.refuse_pod("w-1"), GANG))
    refused(desk, "w-1", f"0/3 nodes are available: 3 {Reason.BEHIND_IN_ORDER.sentence}.")

    assert desk.cause_of(1) is None
