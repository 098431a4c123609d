"""Moves that the tables forbid are refused, and what is remembered is bounded."""

from __future__ import annotations

import pytest

from extender.errors import IllegalTransition
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.permit.states import AttemptState, BindState, MoveHistory, RecentEnds

from .world import GANG, a_gang_of

W0 = PodUid("w-0")


def test_a_forbidden_move_reports_the_history_of_its_gang():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    table = driver.machine.table

    with pytest.raises(
        IllegalTransition, match=r"cannot go from WAITING to FAILED \(WAITING; WAITING\)"
    ):
        table.move_bind(table.binds[W0], BindState.FAILED)
    with pytest.raises(IllegalTransition, match="cannot go from ASSEMBLING to DONE"):
        table.move_attempt(table.attempts[GANG], AttemptState.DONE)


def test_a_recent_bind_is_remembered_for_a_minute():
    binds = RecentEnds()
    binds.remember(PodUid("w-0"), "n-1", 100.0)

    assert binds.node_of(PodUid("w-0"), 160.0) == "n-1"
    assert binds.node_of(PodUid("w-0"), 160.1) is None
    assert binds.node_of(PodUid("w-1"), 100.0) is None

    binds.remember(PodUid("w-1"), "n-2", 161.0)
    assert len(binds) == 1, "older ones are forgotten"


def test_the_number_of_remembered_binds_is_bounded():
    binds = RecentEnds(most=3)
    for index in range(10):
        binds.remember(PodUid(f"w-{index}"), "n-1", 100.0)

    assert len(binds) == 3
    assert binds.node_of(PodUid("w-9"), 100.0) == "n-1"


def test_a_history_keeps_its_last_lines():
    stories = MoveHistory()
    for number in range(200):
        stories.note(GANG, f"HELD {number}")

    told = stories.of(GANG)
    assert len(told) == 64
    assert told[-1] == "HELD 199"


def test_histories_of_the_oldest_gangs_are_forgotten():
    stories = MoveHistory(most_gangs=2)
    for name in ("a", "b", "c"):
        stories.note(GangKey(f"team/{name}"), "HELD")

    assert stories.of(GangKey("team/a")) == ()
    assert stories.of(GangKey("team/c")) == ("HELD",)
