"""Estimates on pages, in the API and in `plan`; names of tenants are escaped there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import main
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from tests.bench.bench_estimates import row
from tests.unit.forecast.test_lookahead import HOUR, running, seen, waiting
from tests.unit.web.pages.conftest import DashboardReader

SAVED = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Pod
metadata:
  name: old
  namespace: lab
  uid: old
  creationTimestamp: "2026-01-31T12:00:00Z"
  annotations: {gang-extender.io/duration: "DURATION"}
spec:
  schedulerName: gang-scheduler
  nodeName: n1
  containers: [{name: all, resources: {requests: {cpu: "4"}}}]
status: {phase: Running, startTime: "2026-01-31T12:00:00Z"}
---
apiVersion: v1
kind: Pod
metadata:
  {name: new, namespace: lab, uid: new, creationTimestamp: "2026-01-31T12:05:00Z"}
spec:
  schedulerName: gang-scheduler
  containers: [{name: all, resources: {requests: {cpu: "4"}}}]
status: {phase: Pending}
"""


def planned(tmp_path: Path, duration: str) -> str:
    file = tmp_path / "saved.yaml"
    file.write_text(SAVED.replace("DURATION", duration))
    ran = CliRunner().invoke(
        main,
        ["plan", "-f", str(file), "--scheduler-name", "gang-scheduler"],
        env={"COLUMNS": "240"},
    )
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_a_plan_over_saved_objects_has_estimates(tmp_path: Path) -> None:
    told = planned(tmp_path, "1h30m")

    assert "WILL RUN" in told
    assert "about 13:30 UTC (in 1 h 25 min), after lab/pod:old ends" in told
    assert "it is expected to run 1 h 30 min (from its annotation)" in told


def test_an_invalid_duration_is_reported_with_the_remedy(tmp_path: Path) -> None:
    told = planned(tmp_path, "two hours")

    assert "annotation gang-extender.io/duration is 'two hours', which is not a duration" in told
    assert "unknown, because lab/pod:old declares no duration and none was learnt" in told


@pytest.fixture
def looking() -> DashboardReader:
    looker = DashboardReader()
    snapshot = seen(running("lab/<b>a", "n1", "n2", lasts_s=HOUR), waiting("lab/next", 2))
    looker.sees(snapshot, make_plan(snapshot, policy_parser.DEFAULT))
    return looker


def test_the_page_of_a_gang_shows_its_estimate_and_why(looking: DashboardReader) -> None:
    page = looking.page("/gangs/lab/next")

    assert "When it will run" in page
    assert "about 14:00 UTC (in 1 h), after lab/&lt;b&gt;a ends" in page
    assert "Not counted: gangs that come later" in page
    assert "<b>a" not in page


def test_the_list_of_gangs_shows_short_estimates(looking: DashboardReader) -> None:
    assert ">about 14:00 UTC</span>" in looking.page("/gangs")


def test_correct_declared_durations_give_estimates_exact_to_the_second() -> None:
    *_, asked, with_a_time, _, _, median, worst, _ = row("deadlock", declared=True).split(" | ")

    assert (asked, with_a_time, median, worst) == ("1", "1", "1 s", "1 s")
