"""The self-check finds what it is there to find; moves that the tables forbid are refused."""

from __future__ import annotations

import pytest

from extender.errors import IllegalTransition
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.permit.messages import CallId
from extender.permit.states import AttemptState, BindState

from . import soundness
from .world import GANG, Desk, a_gang_of

W0 = PodUid("w-0")


@pytest.fixture
def desk() -> Desk:
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    return desk


def test_a_consistent_table_passes_the_check(desk):
    soundness.check(desk.book)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda table: table.calls.pop(CallId(1)), "nobody knows of"),
        (lambda table: table.binds[W0].calls.clear(), "held for no call"),
        (lambda table: table.attempts[GANG].binds.pop(W0), "held for no gang"),
        (lambda table: table.binds.pop(W0), "not on the table"),
        (lambda table: setattr(table.binds[W0], "state", BindState.BOUND), "is over"),
        (lambda table: setattr(table.binds[W0], "state", BindState.NEW), "never parked"),
        (lambda table: setattr(table.binds[W0], "state", BindState.BINDING), "only held"),
        (
            lambda table: setattr(table.attempts[GANG], "state", AttemptState.COMMITTING),
            "waits for nothing that was sent",
        ),
        (lambda table: setattr(table.attempts[GANG], "state", AttemptState.DONE), "is over"),
        (
            lambda table: table.attempts.update({GangKey("a/b"): table.attempts[GANG]}),
            "another name",
        ),
        (lambda table: table.siblings.pop(W0), "sibling"),
    ],
)
def test_an_inconsistent_table_fails_the_check(desk, spoil, complaint):
    spoil(desk.book._table)

    with pytest.raises(IllegalTransition, match=complaint):
        soundness.check(desk.book)


def test_a_table_over_its_bound_fails_the_check(desk):
    desk.book._table.max_binds = 1

    with pytest.raises(IllegalTransition, match="more holds"):
        soundness.check(desk.book)


def test_a_forbidden_move_reports_the_history_of_its_gang(desk):
    table = desk.book._table

    with pytest.raises(
        IllegalTransition, match=r"cannot go from WAITING to FAILED \(WAITING; WAITING\)"
    ):
        table.move_bind(table.binds[W0], BindState.FAILED)
    with pytest.raises(IllegalTransition, match="cannot go from ASSEMBLING to DONE"):
        table.move_attempt(table.attempts[GANG], AttemptState.DONE)
