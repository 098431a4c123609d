"""Nothing is alerted in an hour of ordinary churn under virtual time, and a planted fault is.

The shipped rules, with their times as they are, are judged by promtool over what was scraped.
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
    """Name the alerts that fired at any time of the hour."""
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
    said = promtool("test", "rules", folder / "test.yaml", may_fail=True)
    names = set(re.findall(r'alertname="(\w+)"', said))
    assert names or "SUCCESS" in said, said
    return names


def values_of(values: list[float | None]) -> str:
    """Write samples as promtool reads them; what is scraped no more is stale at once."""
    written, before = ["_"] * (BEFORE_S // EVERY_S), None
    for value in values:
        written.append(("stale" if before is not None else "_") if value is None else f"{value:g}")
        before = value
    return " ".join(written)


def test_no_alert_fires_in_an_hour_of_ordinary_churn(tmp_path: Path) -> None:
    series = Hour(seed=1).live()

    assert fired(tmp_path, series) == set()
    assert grew(series, "gang_extender_start_seconds_count") > 30
    assert grew(series, "gang_extender_evictions_total", 'outcome="evicted"') > 0
    assert peak(series, "gang_extender_oldest_waiting_seconds") > 60


def stops_planning(hour: Hour, tick: int) -> None:
    """Let every cycle fail from the middle of the hour on."""
    if tick == HOUR // 2 + 20:
        hour.world.system.break_cycles()  # type: ignore[attr-defined]


def stops_asking(hour: Hour, tick: int) -> None:
    """Let kube-scheduler stand still from the middle of the hour on."""
    hour.is_scheduling = tick < HOUR // 2 + 20


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        (stops_planning, "GangExtenderCycleStuck"),
        (stops_asking, "GangExtenderSchedulerSilent"),
    ],
)
def test_a_fault_planted_in_the_same_hour_is_alerted(
    tmp_path: Path, fault: Callable[[Hour, int], None], alert: str
) -> None:
    assert alert in fired(tmp_path, Hour(1, fault).live())


def grew(series: Series, name: str, label: str = "") -> float:
    """Say by how much counters grew, over all their instances."""
    found = [each for key, each in series.items() if key.startswith(f"{name}{{") and label in key]
    return sum(max(filter(None, values), default=0.0) for values in found)


def peak(series: Series, name: str) -> float:
    found = [each for key, each in series.items() if key.startswith(f"{name}{{")]
    return max(value for values in found for value in values if value is not None)
