"""Every alert says who should act and how, asks for what there is, and has its runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from extender.model.reason import Happening, Reason

from .exports import samples
from .expressions import named
from .rules import ALERTS, MONITORING, Alert, alerts, hastened

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
BASE = "https://github.com/gang-extender/gang-extender/blob/main/docs/operations.md#"

each_alert = pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)


def runbook(alert: Alert) -> str:
    """Give the section of the manual about *alert*; empty when there is none."""
    below = OPERATIONS.read_text().partition(f"\n### {alert.name}\n")[2]
    return re.split(r"^#{2,3} ", below, maxsplit=1, flags=re.MULTILINE)[0]


@each_alert
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(alert: Alert) -> None:
    assert alert.labels["severity"] in ("critical", "warning")
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert alert.annotations["summary"].endswith(".")
    assert alert.annotations["runbook_url"] == BASE + alert.name.lower()


@each_alert
def test_an_alert_asks_for_series_and_labels_that_are_exported(alert: Alert) -> None:
    known = samples()
    asked = named(alert.expression)

    assert asked
    for name, labels in asked.items():
        assert labels <= known[name], f"{name} has no {labels - known[name]}"


def test_a_label_that_prometheus_has_for_itself_is_told_by_the_name_that_it_gives_ours() -> None:
    of_targets = {"namespace", "pod", "job", "instance", "service", "endpoint", "container"}
    (name,) = [name for name, labels in samples().items() if labels & of_targets]

    assert samples()[name] == {"namespace"}
    assert f"`{name}` the label is `exported_namespace`" in OPERATIONS.read_text()


@each_alert
def test_what_an_alert_tells_of_its_labels_is_left_of_them(alert: Alert) -> None:
    told = set(re.findall(r"\$labels\.(\w+)", alert.annotations["description"]))
    groups = re.findall(r"\bby \(([^)]*)\)", alert.expression)

    for group in groups:
        assert told <= {label.strip() for label in group.split(",")}, group


@each_alert
def test_the_runbook_of_an_alert_says_what_it_means_what_to_look_at_and_what_to_do(
    alert: Alert,
) -> None:
    text = runbook(alert)

    for word in ("Means", "Look at", "Do"):
        assert f"**{word}:**" in text, f"{alert.name} lacks {word}"


@each_alert
def test_what_the_runbook_names_exists(alert: Alert) -> None:
    text = runbook(alert)
    known = samples()
    words = {each.value for each in (*Reason, *Happening)}

    for name in re.findall(r"\b(?:gang_extender|volcano|process)_[a-z_]+", text):
        assert name in known or f"{name}_count" in known, name
    for word in re.findall(r"reasons?(?: are)? `(\w+)`", text):
        assert word in words, word
    for command in re.findall(r"`gang-extender ([a-z-]+)", text):
        assert command in ("doctor", "explain", "top", "plan", "scheduler-config", "certificates")


def test_every_runbook_is_about_an_alert_there_is() -> None:
    headings = re.findall(r"^### (GangExtender\w+)$", OPERATIONS.read_text(), re.MULTILINE)

    assert headings == [alert.name for alert in alerts()]


def test_hastened_rules_differ_in_their_times_alone() -> None:
    (group,) = hastened(60)["groups"]
    by_name = {rule["alert"]: rule for rule in group["rules"]}

    assert by_name["GangExtenderGangStarved"]["expr"].endswith("> 30")
    assert by_name["GangExtenderGangStarved"]["for"] == "5000ms"
    assert "[60000ms]" in by_name["GangExtenderEvictionsRefused"]["expr"]
    assert by_name["GangExtenderPolicyRefused"]["expr"] == "gang_extender_policy_refused == 1"
    for rule in group["rules"]:
        assert re.search(r"\d[mhd]\b|\* \d", rule["expr"]) is None, rule["expr"]


def test_an_alert_that_counts_bursts_waits_for_nothing_and_all_others_outlast_an_update() -> None:
    at_once = [alert.name for alert in alerts() if not alert.held]

    assert at_once == ["GangExtenderPartialCommit"]
    assert "prometheus" not in ALERTS.name


def test_the_scrape_configuration_of_the_manual_finds_the_service_of_the_manifests() -> None:
    block = OPERATIONS.read_text().partition("<!-- scrape-config -->\n```yaml\n")[2]
    (job,) = yaml.safe_load(block.partition("```")[0])["scrape_configs"]
    service = yaml.safe_load((MONITORING.parent / "base" / "metrics-service.yaml").read_text())
    monitor = yaml.safe_load((MONITORING / "service-monitor.yaml").read_text())
    labels = service["metadata"]["labels"]

    assert job["relabel_configs"][0]["regex"] == service["metadata"]["name"]
    assert job["job_name"] == labels[monitor["spec"]["jobLabel"]]
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
