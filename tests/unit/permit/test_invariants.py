"""The consistency check finds every fault, and moves that the tables forbid are refused."""

from __future__ import annotations

import pytest

from extender.errors import IllegalTransition
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.permit.messages import CallId
from extender.permit.states import AttemptState, BindState

from . import soundness
from .world import GANG, MachineDriver, a_gang_of

W0 = PodUid("w-0")


@pytest.fixture
def driver() -> MachineDriver:
    driver = a_gang_of(3)
    driver.arrives("w-0")
    driver.arrives("w-1")
    return driver


def test_a_consistent_table_passes_the_check(driver):
    soundness.check(driver.machine)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda table: table.calls.pop(CallId(1)), "an unknown call"),
        (lambda table: table.binds[W0].calls.clear(), "waits for no call"),
        (lambda table: table.attempts[GANG].binds.pop(W0), "waits for no gang"),
        (lambda table: table.binds.pop(W0), "not on the table"),
        (lambda table: setattr(table.binds[W0], "state", BindState.BOUND), "is over"),
        (lambda table: setattr(table.binds[W0], "state", BindState.NEW), "never parked"),
        (
            lambda table: setattr(table.binds[W0], "state", BindState.BINDING),
            "not all its binds wait",
        ),
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
def test_an_inconsistent_table_fails_the_check(driver, spoil, complaint):
    spoil(driver.machine.table)

    with pytest.raises(IllegalTransition, match=complaint):
        soundness.check(driver.machine)


def test_a_table_over_its_bound_fails_the_check(driver):
    driver.machine.table.max_binds = 1

    with pytest.raises(IllegalTransition, match="more holds"):
        soundness.check(driver.machine)


def test_a_forbidden_move_reports_the_history_of_its_gang(driver):
    table = driver.machine.table

    with pytest.raises(
        IllegalTransition, match=r"cannot go from WAITING to FAILED \(WAITING; WAITING\)"
    ):
        table.move_bind(table.binds[W0], BindState.FAILED)
    with pytest.raises(IllegalTransition, match="cannot go from ASSEMBLING to DONE"):
        table.move_attempt(table.attempts[GANG], AttemptState.DONE)
