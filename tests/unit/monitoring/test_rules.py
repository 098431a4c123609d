"""Every alert has a severity and a runbook, and uses exported metrics."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from extender.model.reason import Happening, Reason

from .exports import samples
from .expressions import named
from .rules import MONITORING, Alert, accelerated, alerts

OPERATIONS = Path(__file__).parents[3] / "docs" / "operate.md"
BASE = "https://github.com/gang-extender/gang-extender/blob/main/docs/operate.md#"

ALERTS_SHIPPED = alerts()


def runbook(alert: Alert) -> str:
    """Return the section of the manual about *alert*; empty when there is none."""
    below = OPERATIONS.read_text().partition(f"\n### {alert.name}\n")[2]
    return re.split(r"^#{2,3} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def test_an_alert_has_severity_summary_description_and_runbook() -> None:
    for alert in ALERTS_SHIPPED:
        assert alert.labels["severity"] in ("critical", "warning"), alert.name
        assert alert.annotations.keys() == {"summary", "description", "runbook_url"}, alert.name
        assert alert.annotations["summary"].endswith("."), alert.name
        assert alert.annotations["runbook_url"] == BASE + alert.name.lower()


def test_an_alert_uses_exported_metrics_and_labels() -> None:
    known = samples()

    for alert in ALERTS_SHIPPED:
        asked = named(alert.expression)
        assert asked, alert.name
        for name, labels in asked.items():
            assert labels <= known[name], f"{alert.name}: {name} has no {labels - known[name]}"


def test_the_label_that_prometheus_renames_is_documented_by_its_new_name() -> None:
    of_targets = {"namespace", "pod", "job", "instance", "service", "endpoint", "container"}
    (name,) = [name for name, labels in samples().items() if labels & of_targets]

    assert samples()[name] == {"namespace"}
    assert f"`{name}` the label is `exported_namespace`" in OPERATIONS.read_text()


def test_an_alert_description_uses_only_labels_that_aggregation_keeps() -> None:
    for alert in ALERTS_SHIPPED:
        told = set(re.findall(r"\$labels\.(\w+)", alert.annotations["description"]))
        for group in re.findall(r"\bby \(([^)]*)\)", alert.expression):
            assert told <= {label.strip() for label in group.split(",")}, alert.name


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    headings = re.findall(r"^### (GangExtender\w+)$", OPERATIONS.read_text(), re.MULTILINE)

    assert headings == [alert.name for alert in ALERTS_SHIPPED]
    for alert in ALERTS_SHIPPED:
        for word in ("Means", "Look at", "Do"):
            assert f"**{word}:**" in runbook(alert), f"{alert.name} lacks {word}"


def test_metrics_reasons_and_flags_in_a_runbook_exist() -> None:
    known = samples()
    words = {each.value for each in (*Reason, *Happening)}

    for alert in ALERTS_SHIPPED:
        text = runbook(alert)
        for name in re.findall(r"\b(?:gang_extender|volcano|process)_[a-z_]+", text):
            assert name in known or f"{name}_count" in known, f"{alert.name}: {name}"
        for word in re.findall(r"reasons?(?: are)? `(\w+)`", text):
            assert word in words, f"{alert.name}: {word}"


def test_accelerated_rules_differ_only_in_their_times() -> None:
    (group,) = accelerated(60)["groups"]
    by_name = {rule["alert"]: rule for rule in group["rules"]}

    assert by_name["GangExtenderGangStarved"]["expr"].endswith("> 30")
    assert by_name["GangExtenderGangStarved"]["for"] == "5000ms"
    assert "[60000ms]" in by_name["GangExtenderEvictionsRefused"]["expr"]
    assert by_name["GangExtenderPolicyRefused"]["expr"] == "gang_extender_policy_refused == 1"
    for rule in group["rules"]:
        assert re.search(r"\d[mhd]\b|\* \d", rule["expr"]) is None, rule["expr"]


def test_only_the_alert_that_counts_bursts_fires_without_delay() -> None:
    at_once = [alert.name for alert in alerts() if not alert.held]

    assert at_once == ["GangExtenderPartialCommit"]


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
