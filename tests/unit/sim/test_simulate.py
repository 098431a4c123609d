"""`gang-extender simulate`: its output, that it is reproducible, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.cli.simulate import _shipped
from extender.sim import scenario as scenarios
from extender.sim.result import TimeSeries

MANUAL = (Path(__file__).parents[3] / "docs/what-if.md").read_text()
SMALL = """
about: A small one.
span: 10m
nodes: [{name: n, count: 2, has: {cpu: 4}}]
queues: [{name: red, weight: 2}, {name: blue}]
arrivals:
- {queue: red, name: r, count: 6, before: 2m, size: {between: [1, 4]}, each: {cpu: 1}, lasts: 1m}
- {queue: blue, name: b, count: 3, every: 30s, size: 8, each: {cpu: 1}, lasts: {median: 30s}}
- {queue: default, name: p, count: 2, plain: true, each: {cpu: 1}, lasts: 1m, priority: 5}
mishaps: [{at: 4m, lose: n-1}, {at: 5m, restore: n-1}]
"""


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def test_the_output_has_waits_and_figures_and_is_reproducible(small: str) -> None:
    first, second = simulate("-f", small), simulate("-f", small)

    assert first.exit_code == 0, first.output
    assert first.stdout_bytes == second.stdout_bytes
    assert first.stdout != simulate("-f", small, "--seed", "9").stdout
    assert "10m 00s of 2 nodes and 11 gangs" in first.stdout
    for word in ("red", "blue", "P95", "fairness gap", "utilisation, cpu", "work wasted"):
        assert word in first.stdout


#: 16 pods run for 20 s and are lost with their nodes; 4 of them run for 50 s on a new node.
LOSING = """
span: 120s
pace: 1s
nodes: [{name: n, count: 4, has: {cpu: 4}}]
arrivals:
- {queue: default, name: e, before: 0s, size: 16, least: 2, each: {cpu: 1}, lasts: 50s}
mishaps:
- {at: 20s, lose: n-0}
- {at: 20s, lose: n-1}
- {at: 20s, lose: n-2}
- {at: 20s, lose: n-3}
- {at: 40s, restore: n-3}
"""


def test_wasted_work_is_the_running_time_of_lost_pods(tmp_path: Path) -> None:
    path = tmp_path / "losing.yaml"
    path.write_text(LOSING)

    told = simulate("-f", str(path))

    assert re.search(rf"work wasted +{320 / 520:.1%}\n", told.stdout), told.stdout
    assert re.search(rf"utilisation, cpu +{520 / (16 * 120):.1%}\n", told.stdout), told.stdout


@pytest.mark.parametrize("name", _shipped())
def test_shipped_scenarios_can_be_read_and_are_in_the_manual(name: str) -> None:
    scenario = scenarios.read(_shipped()[name], name)

    assert scenarios.jobs_of(scenario)
    assert f"| `{name}` |" in MANUAL
    assert name in simulate("--help").stdout.replace("\n", "")


def test_the_ml_day_scenario_is_as_large_as_the_manual_says() -> None:
    day = scenarios.read(_shipped()["ml-day"], "ml-day")

    assert (day.span, sum(pool.count for pool in day.nodes)) == ("24h", 500)
    assert len(scenarios.jobs_of(day)) == 5000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("span: 10m", "span: soon"), "span: 'soon' is not a duration; write 90s, 5m, 2h or 1d"),
        (("span: 10m", "span: 90d"), "at most 31d"),
        (("queue: red", "queue: rad"), "the queue 'rad', which is not in queues; add it there"),
        (("weight: 2", "wieght: 2"), "unknown field `wieght` at `.queues[0]`"),
        (("cpu: 4}", "cpu: many}"), "many"),
        (("lose: n-1", "lose: n-9"), "the node 'n-9', which is not in nodes"),
        (("lose: n-1", "at: 4m"), "either lose or restore"),
        (("name: n,", "name: N!,"), "not a Kubernetes name"),
        (("{median: 30s}", "{spread: 1}"), "set exactly one of between, one-of and median"),
        (("size: 8", "size: 0"), "the size is 0; write 1 to 10000"),
        (("name: blue}", "name: red}"), "queues has 'red' twice"),
        (("count: 2, has", "count: 900000, has"), "nodes[0].count"),
        (("span: 10m", "span: [10m"), "small.yaml"),
        (("[1, 4]", "[4, 1]"), "between 4 and 1 is empty; write the smaller number first"),
        (("{between: [1, 4]}", "{one-of: [2m]}"), "'2m' is not a number of pods; write it like 8"),
        (
            ("{median: 30s}", "{median: 30s, one-of: [1m]}"),
            "set exactly one of between, one-of and median",
        ),
        (("each: {cpu: 1}", "each: {cpu: -1}"), "cpu: -1 is negative"),
        (("cpu: 4}", "cpu: -4}"), "cpu: -4 is negative"),
        (
            ("plain: true", "plain: true, size: 4"),
            "arrivals p: plain pods have no gang, so no size",
        ),
        (("plain: true", "plain: true, least: 1"), "so no size and no least; use count"),
        (
            ("every: 30s", "every: 30s, before: 5m"),
            "arrivals b: every and before exclude each other; remove one",
        ),
        (("before: 2m", "after: 3m, before: 2m"), "before 2m is earlier than after 3m"),
    ],
)
def test_an_invalid_scenario_is_one_line_with_the_remedy(
    small: str, change: tuple[str, str], said: str
) -> None:
    Path(small).write_text(SMALL.replace(*change, 1))
    told = simulate("-f", small)

    assert told.exit_code == 2
    assert told.stdout == ""
    assert said in told.stderr
    assert told.stderr.count("\n") == 1
    assert small in told.stderr


def test_arrivals_after_the_span_are_reported(small: str) -> None:
    Path(small).write_text(SMALL.replace("every: 30s", "every: 6m").replace("at: 5m", "at: 5h"))

    told = simulate("-f", small)

    assert told.exit_code == 0
    assert "of 2 nodes and 10 gangs" in told.stdout
    assert "gang-extender: arrivals: 1 of 11 gangs would arrive after the span\n" in told.stderr
    assert "gang-extender: mishaps: 1 of 2 would happen after the span\n" in told.stderr


def test_an_interval_of_zero_means_all_at_once() -> None:
    for nothing in ("0", "0s"):
        scenario = scenarios.read(SMALL.replace("every: 30s", f"every: {nothing}"), "small")
        came = [job.arrives_s for job in scenarios.jobs_of(scenario) if job.queue == "blue"]
        assert came == [0.0, 0.0, 0.0]


def test_the_description_of_a_scenario_does_not_control_the_terminal(small: str) -> None:
    Path(small).write_text(SMALL.replace("A small one.", '"\\e[2J small"'))
    told = simulate("-f", small)

    assert told.exit_code == 0, told.stderr
    assert "small" in told.stdout
    assert "\x1b" not in told.stdout


def test_an_unknown_scenario_lists_the_shipped_ones() -> None:
    told = simulate("-f", "nowhere.yaml")

    assert told.exit_code == 2
    assert "deadlock" in told.stderr


def test_a_time_series_keeps_its_mean() -> None:
    line = TimeSeries(100.0)
    line.add(0.5, 0.0, 50.0)
    line.add(1.0, 50.0, 100.0)

    assert line.mean() == pytest.approx(0.75)
    assert line.points()[0] == pytest.approx(0.5)
    assert line.points()[-1] == pytest.approx(1.0)
