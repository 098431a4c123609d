"""The bounded memory of the state machine: recent binds and histories."""

from __future__ import annotations

from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.permit.states import MoveHistory, RecentEnds

from .world import GANG


def test_a_recent_bind_is_remembered_for_a_minute():
    binds = RecentEnds()
    binds.remember(PodUid("w-0"), "n-1", 100.0)

    assert binds.node_of(PodUid("w-0"), 160.0) == "n-1"
    assert binds.node_of(PodUid("w-0"), 160.1) is None
    assert binds.node_of(PodUid("w-1"), 100.0) is None


def test_old_binds_are_forgotten_when_new_ones_are_added():
    binds = RecentEnds()
    binds.remember(PodUid("w-0"), "n-1", 100.0)
    binds.remember(PodUid("w-1"), "n-1", 161.0)

    assert len(binds) == 1


def test_a_bind_that_is_repeated_is_as_new_as_its_last_time():
    binds = RecentEnds()
    binds.remember(PodUid("w-0"), "n-1", 100.0)
    binds.remember(PodUid("w-1"), "n-1", 150.0)
    binds.remember(PodUid("w-0"), "n-2", 155.0)
    binds.remember(PodUid("w-2"), "n-1", 211.0)

    assert binds.node_of(PodUid("w-0"), 211.0) == "n-2"
    assert binds.node_of(PodUid("w-1"), 211.0) is None


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


def test_ordinary_pods_have_no_history():
    stories = MoveHistory()
    stories.note(None, "BOUND")

    assert stories.of(GANG) == ()
