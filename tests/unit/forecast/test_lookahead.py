"""When a gang will start, found by planning ahead, and the reason as text."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from extender.forecast.durations import DurationHistory
from extender.forecast.estimate import Estimate
from extender.forecast.lookahead import Lookahead, WorkLimit
from extender.model.gang import Gang, GangKey
from extender.model.pod import Status
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from tests.builders import gang, node, nodes, pod, queue, shape, snapshot
from tests.steps import steps

#: 13:00 UTC.
NOW = 1_800_018_000.0
MINUTE, HOUR = 60.0, 3600.0


def running(key: str, *on: str, ran_s: float = 0.0, lasts_s: float = 0.0, **rest: Any) -> Gang:
    """Make a running gang with one member of 4 cpu on each named node."""
    each = {"began": NOW - ran_s, **rest.pop("each", {})}
    return gang(key, len(on), on=on, cpu=4, each=each, group={"lasts_s": lasts_s}, **rest)


def waiting(key: str, size: int, **rest: Any) -> Gang:
    return gang(key, size, cpu=4, created=NOW - 10, **rest)


def seen(*gangs: Gang, count: int = 2, **rest: Any) -> Snapshot:
    return snapshot(nodes(count, cpu=4), gangs, [queue("default")], now=NOW, **rest)


def ahead(
    snapshot: Snapshot, experience: DurationHistory | None = None, effort: WorkLimit | None = None
) -> Lookahead:
    plan = make_plan(snapshot, policy_parser.DEFAULT)
    return Lookahead(snapshot, plan, policy_parser.DEFAULT, experience or DurationHistory(), effort)


def estimate(snapshot: Snapshot, key: str, *earlier: tuple[str, float]) -> Estimate:
    experience = DurationHistory()
    for name, seconds in earlier:
        experience.record(GangKey(name), "default", seconds)
    told = ahead(snapshot, experience).estimate(GangKey(key))
    assert told is not None
    return told


def test_a_gang_starts_when_the_gangs_on_its_nodes_end() -> None:
    train = running("lab/train", "n1", ran_s=40 * MINUTE, lasts_s=2 * HOUR)
    report = running("ops/report", "n2", ran_s=HOUR, lasts_s=2 * HOUR)

    told = estimate(seen(train, report, waiting("lab/next", 2)), "lab/next")

    assert told.at == NOW + 80 * MINUTE
    assert told.summary == "about 14:20 UTC"
    assert told.message == (
        "about 14:20 UTC (in 1 h 20 min), after ops/report and lab/train end; they are expected"
        " to run 2 h (from their annotations)"
    )


def mixed() -> Gang:
    """Make a gang of which one member, such as a sidecar pod, has a deadline of a minute."""
    kind = shape(cpu=4)
    brief = pod("x-0", kind, on="n1", namespace="lab", began=NOW, deadline_s=MINUTE)
    endless = pod("x-1", kind, on="n2", namespace="lab", began=NOW)
    return gang("lab/x", on=["n1"], pods=[brief, endless])


NOT_WAITING = "unknown, because it does not wait for other gangs to end: "
UNKNOWN = "unknown, because lab/x declares no duration and none was learnt"


@pytest.mark.parametrize(
    ("gangs", "message"),
    [
        pytest.param(
            [
                running("lab/train", "n1", lasts_s=2 * HOUR),
                running("ops/report", "n2", lasts_s=HOUR),
                waiting("lab/next", 1),
            ],
            "about 14:00 UTC (in 1 h), after ops/report ends; it is expected to run 1 h (from its"
            " annotation)",
            id="a smaller gang starts when the first ends",
        ),
        pytest.param(
            [
                running("lab/a", "n1", lasts_s=HOUR),
                running("lab/b", "n2"),
                waiting("lab/next", 1),
            ],
            "about 14:00 UTC (in 1 h), after lab/a ends; it is expected to run 1 h (from its"
            " annotation); the end of another gang is unknown, so it may be sooner",
            id="gangs with an unknown end are counted",
        ),
        pytest.param(
            [running("lab/x", "n1", "n2", each={"deadline_s": HOUR}), waiting("lab/next", 2)],
            "about 14:00 UTC (in 1 h), after lab/x ends; it is expected to run 1 h (its deadline,"
            " so at the latest)",
            id="a deadline is the latest end",
        ),
        pytest.param([mixed(), waiting("lab/next", 2)], UNKNOWN, id="a deadline of one member"),
        pytest.param(
            [running("lab/x", "n1", "n2"), waiting("lab/next", 2)], UNKNOWN, id="no duration"
        ),
        pytest.param(
            [running("lab/x", "n1", "n2", ran_s=3 * HOUR, lasts_s=HOUR), waiting("lab/next", 2)],
            "unknown, because lab/x has run 3 h, longer than the 1 h of its annotation",
            id="a declared duration that has passed",
        ),
        pytest.param(
            [running("lab/a", "n1", lasts_s=HOUR), waiting("lab/next", 1, min_member=4)],
            f"{NOT_WAITING}fewer pods of the gang exist than minMember",
            id="below minMember",
        ),
        pytest.param(
            [running("lab/a", "n1", lasts_s=HOUR), waiting("lab/next", 9)],
            f"{NOT_WAITING}the gang would not fit even an empty cluster",
            id="too large for the cluster",
        ),
    ],
)
def test_an_estimate_says_when_and_why(gangs: list[Gang], message: str) -> None:
    assert estimate(seen(*gangs), "lab/next").message == message


def test_an_unknown_start_is_one_word_in_a_list() -> None:
    told = estimate(seen(running("lab/x", "n1", "n2"), waiting("lab/next", 2)), "lab/next")

    assert (told.at, told.summary) == (None, "unknown")


def test_gangs_ahead_run_first_for_their_declared_durations() -> None:
    train = running("lab/train", "n1", "n2", lasts_s=HOUR)
    first = waiting("lab/first", 2, group={"lasts_s": 30 * MINUTE, "created": NOW - 60})
    second = waiting("lab/second", 2)

    told = ahead(seen(train, first, second))

    assert told.estimate(GangKey("lab/first")).at == NOW + HOUR  # type: ignore[union-attr]
    assert told.estimate(GangKey("lab/second")).at == NOW + 1.5 * HOUR  # type: ignore[union-attr]


def test_the_end_of_a_gang_is_estimated_from_earlier_gangs_of_its_name() -> None:
    train = running("lab/train-7", "n1", "n2", ran_s=10 * MINUTE)
    earlier = [(f"lab/train-{number}", (30 + number) * MINUTE) for number in range(3)]

    told = estimate(seen(train, waiting("lab/next", 2)), "lab/next", *earlier)

    assert told.message == (
        "about 13:21 UTC (in 21 min), after lab/train-7 ends; it is expected to run 31 min (from"
        " the median of 3 earlier gangs of this name in this queue)"
    )


def test_of_several_gangs_of_one_name_one_ends_before_the_median() -> None:
    trains = [running(f"lab/train-{number}", f"n{number}") for number in (1, 2)]
    earlier = [(f"lab/train-{number}", number * MINUTE) for number in range(10, 90, 10)]

    told = estimate(seen(*trains, waiting("lab/next", 1)), "lab/next", *earlier)

    assert told.at == NOW + 25 * MINUTE
    assert told.message == (
        "about 13:25 UTC (in 25 min), after lab/train-2 ends; it is expected to run 25 min (from 8"
        " earlier gangs of this name in this queue, 2 of which had ended by then: it is one of"
        " several)"
    )


def test_a_gang_is_compared_with_earlier_gangs_that_ran_longer() -> None:
    train = running("lab/train-7", "n1", "n2", ran_s=31.5 * MINUTE)
    earlier = [(f"lab/train-{number}", (30 + number) * MINUTE) for number in range(3)]

    told = estimate(seen(train, waiting("lab/next", 2)), "lab/next", *earlier)

    assert told.at == NOW + 0.5 * MINUTE
    assert "the 1 of 3 earlier gangs of this name in this queue that ran longer" in told.message


def test_a_declared_duration_below_all_earlier_ones_is_not_trusted() -> None:
    short = running("lab/x-9", "n1", "n2", lasts_s=MINUTE)
    earlier = [(f"lab/x-{number}", HOUR) for number in range(5)]

    told = estimate(seen(short, waiting("lab/next", 2)), "lab/next", *earlier)

    assert told.at == NOW + HOUR


def test_a_member_that_began_later_has_its_deadline_later() -> None:
    kind = shape(cpu=4)
    pods = [
        pod(f"x-{n}", kind, on=f"n{n}", namespace="lab", began=NOW - ran, deadline_s=HOUR)
        for n, ran in ((1, 50 * MINUTE), (2, 10 * MINUTE))
    ]
    told = estimate(
        seen(gang("lab/x", on=["n1"], min_member=1, pods=pods), waiting("lab/next", 2)), "lab/next"
    )

    assert told.at == NOW + 50 * MINUTE


def test_a_gang_that_does_not_wait_has_no_estimate() -> None:
    told = ahead(seen(running("lab/a", "n1", lasts_s=HOUR), waiting("lab/next", 1)))

    assert told.estimate(GangKey("lab/a")) is None
    assert told.estimate(GangKey("lab/next")) is None  # it starts at once
    assert told.estimate(GangKey("lab/unknown")) is None


def test_terminating_pods_end_with_their_grace_period() -> None:
    leaving = gang(
        "lab/old",
        pods=[pod("old-0", shape(cpu=4), on="n1", status=Status.RELEASING, leaves_by=NOW + MINUTE)],
    )
    blocked = running("lab/b", "n2")

    told = estimate(seen(leaving, blocked, waiting("lab/next", 1)), "lab/next")

    assert told.at is None or told.at <= NOW + MINUTE


def test_a_lookahead_stops_at_its_step_limit_and_says_how_far_it_looked() -> None:
    busy = [
        running(f"lab/a{number:02}", f"n{number}", lasts_s=number * HOUR) for number in (1, 2, 3)
    ]
    told = ahead(seen(*busy, waiting("lab/next", 3), count=3), effort=WorkLimit(steps=2))

    cut = told.estimate(GangKey("lab/next"))

    assert told.steps == 2
    assert cut is not None
    assert cut.message == "not before 15:00 UTC; the estimate looks no further ahead"
    assert cut.summary == "after 15:00 UTC"


def test_a_lookahead_stops_at_its_time_limit() -> None:
    spent = iter(range(100))
    busy = [
        running(f"lab/a{number:02}", f"n{number}", lasts_s=number * HOUR) for number in (1, 2, 3)
    ]
    effort = WorkLimit(seconds=1.0, spent=lambda: float(next(spent)))
    told = ahead(seen(*busy, waiting("lab/next", 3), count=3), effort=effort)

    assert told.estimate(GangKey("lab/next")).not_before == NOW + HOUR  # type: ignore[union-attr]
    assert told.steps == 1


def test_a_lookahead_does_not_change_its_snapshot() -> None:
    snapshot = seen(running("lab/a", "n1", "n2", lasts_s=HOUR), waiting("lab/next", 2))
    used, before = snapshot.nodes.used.copy(), make_plan(snapshot, policy_parser.DEFAULT)

    ahead(snapshot).estimate(GangKey("lab/next"))

    assert (snapshot.nodes.used == used).all()
    assert make_plan(snapshot, policy_parser.DEFAULT) == before
    assert snapshot.gangs[GangKey("lab/next")].on_nodes == 0


def test_capacity_used_by_other_schedulers_never_becomes_free() -> None:
    strange = {"n2": shape(cpu=4).requests}
    state = snapshot(
        [node("n1", cpu=4), node("n2", cpu=4)],
        [running("lab/a", "n1", lasts_s=HOUR), waiting("lab/next", 2)],
        [queue("default")],
        taken=strange,
        now=NOW,
    )

    told = estimate(state, "lab/next")

    assert told.at is None
    assert "it would not start even if all gangs of this extender had ended" in told.message


def test_gangs_without_a_known_end_are_searched_once_for_all_estimates() -> None:
    started = [running(f"lab/x{number:02}", f"n{number + 1}") for number in range(50)]
    late = [waiting(f"lab/late-{number}", 1) for number in range(20)]
    run = ahead(seen(*started, *late, count=50))
    first, *others = (steps(partial(run.estimate, each.key)) for each in late)

    told = [run.estimate(each.key) for each in late]
    (words,) = {each.message for each in told if each is not None}
    assert words.startswith("unknown, because lab/x00 declares no duration and none was learnt, ")
    assert words.endswith(", and 47 more gangs likewise")
    assert max(others) < first / 5
