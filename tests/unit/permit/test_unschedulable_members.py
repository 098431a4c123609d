"""A needed member that fits no node ends the wait of the others before the deadline."""

from __future__ import annotations

from extender.model.pod import PodUid
from extender.model.reason import Reason
from extender.permit.messages import Cause, SiblingUnschedulable

from .world import GANG, MachineDriver, a_gang_of


def refused(driver: MachineDriver, uid: str, words: str = "0/3 nodes: 3 Insufficient cpu") -> None:
    """kube-scheduler writes why it found no node, and the grace passes."""
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod(uid, words), GANG))
    driver.passes(driver.limits.grace_s)


def test_a_needed_member_that_fits_no_node_ends_the_wait_early():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-2"), GANG))
    driver.passes(driver.limits.grace_s)

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.SIBLING_UNSCHEDULABLE}


def test_a_member_that_is_not_needed_may_stay_unschedulable():
    driver = a_gang_of(4, min_member=3)
    driver.arrives("w-0")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-3"), GANG))
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is None


def test_the_only_member_of_a_needed_role_is_needed_however_many_others_there_are():
    driver = a_gang_of(4, min_member=3)
    driver.world.add_group(3, roles={"ps": 1})
    driver.world.add_pod("ps", role="ps")
    for number in range(3):
        driver.arrives(f"w-{number}")
    refused(driver, "ps")

    assert driver.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_member_that_the_extender_refused_does_not_end_the_wait():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    words = f"0/3 nodes are available: 3 {Reason.BEHIND_IN_ORDER.sentence}."
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1", words), GANG))
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is None


def test_a_member_for_which_pods_are_being_evicted_is_waited_for():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.world.change_pod("w-1", nominated="n-2")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1"), GANG))
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is None


def test_a_member_that_comes_within_the_grace_is_accepted():
    driver = a_gang_of(3)
    driver.arrives("w-0")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1"), GANG))
    driver.arrives("w-1")
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is None


def test_a_nomination_by_the_extender_does_not_count():
    driver = a_gang_of(2)
    driver.world.flight[PodUid("w-1")] = ("reserved", "n-2")
    driver.arrives("w-0")
    driver.world.change_pod("w-1", nominated="n-2")
    refused(driver, "w-1")

    assert driver.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_nomination_after_the_refusal_is_the_extenders_even_without_a_reservation():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1"), GANG))
    driver.world.flight.pop(PodUid("w-1"))
    driver.world.change_pod("w-1", nominated="n-2")
    driver.pod_changed("w-1")
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_refusal_from_before_the_attempt_does_not_end_the_wait():
    driver = a_gang_of(2)
    driver.world.refuse_pod("w-1")
    driver.arrives("w-0")
    refused(driver, "w-1")

    assert driver.cause_of(1) is None


def test_a_changed_refusal_of_a_member_ends_the_wait():
    driver = a_gang_of(2)
    driver.world.refuse_pod("w-1")
    driver.arrives("w-0")
    refused(driver, "w-1", "0/3 nodes: 3 didn't match pod affinity rules")

    assert driver.cause_of(1) is Cause.SIBLING_UNSCHEDULABLE


def test_a_member_that_the_extender_refused_last_does_not_end_the_wait():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1"), GANG))
    refused(driver, "w-1", f"0/3 nodes are available: 3 {Reason.BEHIND_IN_ORDER.sentence}.")

    assert driver.cause_of(1) is None
