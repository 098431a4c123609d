"""The time a gang took to start is observed once, from its creation."""

from __future__ import annotations

from extender.metrics import Metrics
from extender.model.gang import Gang
from extender.model.reason import Reason
from extender.planner.plan import QueueFigures, Verdict
from extender.status import transitions
from extender.status.history import GangHistory
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict

QUEUES = {"left": QueueFigures(name="left", weight=1)}
WAITS = gang("train", [pod("train-0", created=NOW)])
RUNS = gang("train", [pod("train-0", on="n", created=NOW)])
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
    passes = [(0, WAITS, NO_ROOM), (20, WAITS, ADMITTED), (21, RUNS, RUNNING), (22, RUNS, RUNNING)]

    assert observed(*passes) == [1, 21]


def test_a_gang_that_was_created_and_ran_between_two_cycles_is_counted() -> None:
    assert observed((-1, None, None), (2, RUNS, RUNNING)) == [1, 2]


def test_a_gang_that_ran_before_the_first_cycle_is_not_counted() -> None:
    assert observed((500, RUNS, RUNNING)) == [0, 0]
    assert observed((500, None, None), (501, RUNS, RUNNING)) == [0, 0]


def test_a_gang_that_started_while_another_replica_led_is_not_counted() -> None:
    assert observed((0, WAITS, NO_ROOM), (transitions.GAP_S + 1, RUNS, RUNNING)) == [0, 0]


def test_a_recreated_gang_is_counted_from_its_new_pods() -> None:
    anew = gang("train", [pod("train-0", on="n", created=NOW + 900)])
    passes = [(900, WAITS, NO_ROOM), (905, anew, RUNNING)]

    assert observed(*passes) == [1, 5]


def test_ordinary_pods_and_queues_that_are_gone_are_not_counted() -> None:
    shadow = gang("pod:web", [pod("web", on="n", created=NOW)], dialect="")
    homeless = verdict("a/train", queue="gone")

    assert observed((-1, None, None), (2, shadow, verdict("a/pod:web"))) == [0, 0]
    assert observed((-1, None, None), (2, RUNS, homeless)) == [0, 0]
