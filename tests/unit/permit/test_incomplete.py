"""A gang that was admitted before all members existed, and whose rest does not come."""

from __future__ import annotations

from extender.permit.messages import Cause, StillIncomplete
from extender.permit.states import AttemptState

from .world import GANG, a_gang_of


def test_the_waiting_binds_of_an_incomplete_gang_are_refused_at_once():
    driver = a_gang_of(2, min_member=3)
    driver.arrives("w-0")
    driver.arrives("w-1")

    driver.tell(StillIncomplete(GANG))

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.INCOMPLETE}
    assert driver.machine.waiting_binds == 0


def test_an_incomplete_gang_has_no_backoff_when_the_rest_comes():
    driver = a_gang_of(1, min_member=2)
    driver.arrives("w-0")
    driver.tell(StillIncomplete(GANG))
    for uid in ("w-0", "w-1"):
        driver.world.add_pod(uid)  # with a new reservation

    driver.arrives("w-0")
    driver.arrives("w-1")

    assert driver.machine.state_of(GANG) is AttemptState.VERIFYING


def test_an_incomplete_event_after_the_last_member_came_is_ignored():
    driver = a_gang_of(2)
    driver.arrives("w-0")

    driver.tell(StillIncomplete(GANG))

    assert driver.cause_of(1) is None


def test_an_incomplete_event_does_not_end_a_verification():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.arrives("w-1")

    driver.tell(StillIncomplete(GANG))

    assert driver.machine.state_of(GANG) is AttemptState.VERIFYING
