"""No alert fires in an ordinary hour of virtual time; planted faults fire theirs.

promtool evaluates the shipped rules, with their real times, over the scraped samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cluster.binaries import require
from tests.nightly.alerts.hour import BEFORE_S, EVERY_S, HOUR, Hour, Series
from tests.unit.monitoring import rules

from .prometheus import promtool


@pytest.fixture(scope="module", autouse=True)
def binaries() -> None:
    require("promtool")


def fired(folder: Path, series: Series) -> set[str]:
    """Return the alerts that fired at any time of the hour."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules.shipped()))
    used = set(re.findall(r"gang_extender_\w+", rules.ALERTS.read_text()))
    end_s = BEFORE_S + (HOUR - 1) * EVERY_S
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{EVERY_S}s",
        "tests": [
            {
                "interval": f"{EVERY_S}s",
                "input_series": [
                    {"series": name, "values": values_of(values)}
                    for name, values in series.items()
                    if name.partition("{")[0] in used
                ],
                "promql_expr_test": [
                    {
                        "expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{end_s}s])',
                        "eval_time": f"{end_s}s",
                        "exp_samples": [],
                    }
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    output = promtool("test", "rules", folder / "test.yaml", may_fail=True)
    names = set(re.findall(r'alertname="(\w+)"', output))
    assert names or "SUCCESS" in output, output
    return names


def values_of(values: list[float | None]) -> str:
    """Return samples in promtool's notation; a missing one is stale at once."""
    written, before = ["_"] * (BEFORE_S // EVERY_S), None
    for value in values:
        written.append(("stale" if before is not None else "_") if value is None else f"{value:g}")
        before = value
    return " ".join(written)


def test_no_alert_fires_in_an_ordinary_hour(tmp_path: Path) -> None:
    series = Hour(seed=1).run()

    assert fired(tmp_path, series) == set()
    assert grew(series, "gang_extender_start_seconds_count") > 30
    assert grew(series, "gang_extender_evictions_total", 'outcome="evicted"') > 0
    assert peak(series, "gang_extender_oldest_waiting_seconds") > 60


def stops_planning(hour: Hour, tick: int) -> None:
    """Let every cycle fail in the second half of the hour."""
    if tick == HOUR // 2 + 20:
        hour.world.system.break_cycles()  # type: ignore[attr-defined]


def stops_scheduling(hour: Hour, tick: int) -> None:
    """Stop kube-scheduler in the second half of the hour."""
    hour.is_scheduling = tick < HOUR // 2 + 20


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        (stops_planning, "GangExtenderCycleStuck"),
        (stops_scheduling, "GangExtenderSchedulerSilent"),
    ],
)
def test_planted_fault_fires_its_alert(
    tmp_path: Path, fault: Callable[[Hour, int], None], alert: str
) -> None:
    assert alert in fired(tmp_path, Hour(1, fault).run())


def grew(series: Series, name: str, label: str = "") -> float:
    """Return by how much counters grew, over all instances."""
    found = [each for key, each in series.items() if key.startswith(f"{name}{{") and label in key]
    return sum(max(filter(None, values), default=0.0) for values in found)


def peak(series: Series, name: str) -> float:
    found = [each for key, each in series.items() if key.startswith(f"{name}{{")]
    return max(value for values in found for value in values if value is not None)
