"""Which transitions of a gang are logged, and how long it took to start."""

from __future__ import annotations

import pytest

from extender.metrics import Metrics
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.plan import GangStatus, QueueFigures, Verdict
from extender.status import transitions
from extender.status.history import Change, GangHistory
from extender.status.transitions import transition
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict

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


def test_waiting_again_is_a_transition_and_waiting_for_another_reason_is_not() -> None:
    behind = verdict("a/train", Reason.BEHIND_IN_ORDER)
    invalid = verdict("a/train", Reason.QUEUE_NOT_FOUND, GangStatus.INVALID)

    assert sentence(WAITS, RUNS) == "gang waits again"
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


QUEUES = {"left": QueueFigures(name="left", weight=1)}
NEW_WAITS = gang("train", [pod("train-0", created=NOW)])
NEW_RUNS = gang("train", [pod("train-0", on="n", created=NOW)])
NO_ROOM = verdict("a/train", Reason.INSUFFICIENT_CAPACITY)
ADMITTED = verdict("a/train", Reason.ADMITTED)
RUNNING = verdict("a/train")


def observed(*passes: tuple[float, Gang | None, Verdict | None]) -> list[float]:
    """Return count and sum of the histogram, after cycles at so many seconds after `NOW`."""
    metrics, history = Metrics(), GangHistory()
    for at, seen, said in passes:
        before = history.last
        now = snapshot(*([seen] if seen else []), now=NOW + at)
        decided = plan(*([said] if said else []), queues=QUEUES)
        transitions.observe(metrics, before, now, decided, history.note(now, decided))
    samples = {
        sample.name.rpartition("_")[2]: sample.value
        for family in metrics.start_seconds.collect()
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    return [samples.get("count", 0.0), samples.get("sum", 0.0)]


def test_a_gang_that_waited_is_counted_once_from_its_creation() -> None:
    passes = [
        (0, NEW_WAITS, NO_ROOM),
        (20, NEW_WAITS, ADMITTED),
        (21, NEW_RUNS, RUNNING),
        (22, NEW_RUNS, RUNNING),
    ]

    assert observed(*passes) == [1, 21]


def test_a_gang_that_was_created_and_ran_between_two_cycles_is_counted() -> None:
    assert observed((-1, None, None), (2, NEW_RUNS, RUNNING)) == [1, 2]


def test_a_gang_that_ran_before_the_first_cycle_is_not_counted() -> None:
    assert observed((500, NEW_RUNS, RUNNING)) == [0, 0]
    assert observed((500, None, None), (501, NEW_RUNS, RUNNING)) == [0, 0]


def test_a_gang_that_started_while_another_replica_led_is_not_counted() -> None:
    assert observed((0, NEW_WAITS, NO_ROOM), (transitions.GAP_S + 1, NEW_RUNS, RUNNING)) == [0, 0]


def test_a_recreated_gang_is_counted_from_its_new_pods() -> None:
    anew = gang("train", [pod("train-0", on="n", created=NOW + 900)])
    passes = [(900, NEW_WAITS, NO_ROOM), (905, anew, RUNNING)]

    assert observed(*passes) == [1, 5]


def test_ordinary_pods_and_queues_that_are_gone_are_not_counted() -> None:
    shadow = gang("pod:web", [pod("web", on="n", created=NOW)], dialect="")
    homeless = verdict("a/train", queue="gone")

    assert observed((-1, None, None), (2, shadow, verdict("a/pod:web"))) == [0, 0]
    assert observed((-1, None, None), (2, NEW_RUNS, homeless)) == [0, 0]
