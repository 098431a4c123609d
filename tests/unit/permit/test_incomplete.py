"""A gang that was let in before all of it existed, and of which nobody comes any more."""

from __future__ import annotations

from extender.permit.messages import Cause, StillIncomplete
from extender.permit.states import AttemptState

from .world import GANG, a_gang_of


def test_the_waiting_binds_of_an_incomplete_gang_are_refused_at_once():
    desk = a_gang_of(2, min_member=3)
    desk.arrives("w-0")
    desk.arrives("w-1")

    desk.tell(StillIncomplete(GANG))

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.INCOMPLETE}
    assert desk.book.waiting_binds == 0


def test_an_incomplete_gang_has_no_backoff_when_the_rest_comes():
    desk = a_gang_of(1, min_member=2)
    desk.arrives("w-0")
    desk.tell(StillIncomplete(GANG))
    for uid in ("w-0", "w-1"):
        desk.world.add_pod(uid)  # with a new ticket

    desk.arrives("w-0")
    desk.arrives("w-1")

    assert desk.book.state_of(GANG) is AttemptState.VERIFYING


def test_an_incomplete_event_after_the_last_member_came_is_ignored():
    desk = a_gang_of(2)
    desk.arrives("w-0")

    desk.tell(StillIncomplete(GANG))

    assert desk.cause_of(1) is None


def test_an_incomplete_event_does_not_end_a_verification():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.arrives("w-1")

    desk.tell(StillIncomplete(GANG))

    assert desk.book.state_of(GANG) is AttemptState.VERIFYING
