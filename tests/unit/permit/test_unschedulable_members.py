"""A needed member that fits no node ends the wait of the others before the deadline."""

from __future__ import annotations

import pytest

from extender.model.pod import PodUid
from extender.model.reason import Reason
from extender.permit.messages import Cause, SiblingUnschedulable

from .world import GANG, MachineDriver, a_gang_of


def refused(driver: MachineDriver, uid: str) -> None:
    """kube-scheduler writes that it found no node, and the grace passes."""
    driver.tell(SiblingUnschedulable(driver.world.refuse_pod(uid), GANG))
    driver.passes(driver.limits.grace_s)


NO_CPU = "0/3 nodes: 3 Insufficient cpu"
AFFINITY = "0/3 nodes: 3 didn't match pod affinity rules"
OURS = f"0/3 nodes are available: 3 {Reason.BEHIND_IN_ORDER.sentence}."
#: The needed member before the attempt, what kube-scheduler writes since, and what that ends.
REFUSALS = {
    "it fits no node": ({}, [NO_CPU], Cause.SIBLING_UNSCHEDULABLE),
    "the extender refused it": ({}, [OURS], None),
    "the extender refused it last": ({}, [NO_CPU, OURS], None),
    "the condition is older than the attempt": ({"refusal": NO_CPU}, [NO_CPU], None),
    "the condition changed": ({"refusal": NO_CPU}, [AFFINITY], Cause.SIBLING_UNSCHEDULABLE),
    "pods are being evicted for it": ({"nominated": "n-2"}, [NO_CPU], None),
}


@pytest.mark.parametrize(("before", "words", "cause"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_member_that_is_needed_ends_the_wait_if_it_fits_no_node(before, words, cause):
    driver = a_gang_of(2)
    driver.world.change_pod("w-1", **before)
    driver.arrives("w-0")
    for each in words:
        driver.tell(SiblingUnschedulable(driver.world.refuse_pod("w-1", each), GANG))
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(1) is cause


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
