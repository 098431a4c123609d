"""Which transitions of a gang are logged."""

from __future__ import annotations

import pytest

from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.plan import GangStatus, Verdict
from extender.status.history import Change
from extender.status.transitions import transition
from tests.builders import NOW
from tests.scene import gang, verdict

WAITS = verdict("a/train", Reason.INSUFFICIENT_CAPACITY, members=3, min_member=2)
RUNS = verdict("a/train", members=3, min_member=2)
OVER = verdict("a/train", Reason.COMPLETED, members=3, min_member=2)


def sentence(after: Verdict, before: Verdict | None, *, created: float = NOW, **rest: bool) -> str:
    found = transition(Change(after, before, 5.0, **rest), gang("train", created=created), NOW - 10)
    return found.sentence if found is not None else ""


def test_a_transition_includes_size_queue_and_wait() -> None:
    found = transition(Change(RUNS, WAITS, 12.34567), gang("train"), NOW)

    assert found is not None
    assert found.facts == {
        "gang": "a/train",
        "queue": "left",
        "members": 3,
        "min_member": 2,
        "waited_s": 12.346,
    }


def test_a_transition_includes_how_the_members_ended() -> None:
    found = transition(Change(OVER, RUNS, 60.0), gang("train", 3, status=Status.FAILED), NOW)

    assert found is not None
    assert found.facts["ran_s"] == 60.0
    assert (found.facts["succeeded"], found.facts["failed"]) == (0, 3)


def test_a_gang_that_runs_when_first_seen_has_started_if_it_is_younger_than_the_process() -> None:
    assert sentence(RUNS, None) == "gang started"
    assert sentence(OVER, None) == "gang ended"
    assert sentence(RUNS, None, created=NOW - 99) == ""
    assert sentence(OVER, None, created=NOW - 99) == ""


def test_waiting_for_another_reason_is_not_a_transition() -> None:
    behind = verdict("a/train", Reason.BEHIND_IN_ORDER)
    invalid = verdict("a/train", Reason.QUEUE_NOT_FOUND, GangStatus.INVALID)

    assert [sentence(behind, WAITS), sentence(invalid, WAITS), sentence(WAITS, None)] == [""] * 3


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (RUNS, {"outcome": "deleted", "ran_s": 5.0}),
        (
            WAITS,
            {
                "outcome": "deleted while it waited",
                "reason": "InsufficientCapacity",
                "waited_s": 5.0,
            },
        ),
    ],
    ids=["running", "waiting"],
)
def test_a_gang_that_is_deleted_has_ended(last: Verdict, told: dict[str, object]) -> None:
    found = transition(Change(last, last, 5.0, is_gone=True), None, NOW)

    assert found is not None
    assert (found.sentence, told.items() <= found.facts.items()) == ("gang ended", True)


def test_a_gang_that_had_ended_has_no_transition_when_it_is_deleted() -> None:
    assert sentence(OVER, OVER, is_gone=True) == ""


def test_ordinary_pods_have_no_transitions() -> None:
    alone = verdict("a/pod:web")

    assert sentence(alone, None) == ""
    assert sentence(alone, alone, is_gone=True) == ""
