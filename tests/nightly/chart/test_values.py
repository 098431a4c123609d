"""The values of the chart are documented, validated, and consistent with the project."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.settings import Settings

from . import generated
from .values import CHART, README, SCHEMA, VALUES, explained, schema

ROOT = CHART.parents[1]
MANIFESTS = CHART.parent
CHANGED = sorted(Path(__file__).parent.glob("every-value-changed/*.yaml"))
#: Helm sets it for subcharts.
GLOBAL = "global"


def properties(of: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every value in the schema *of*."""
    for name, about in of.get("properties", {}).items():
        yield path + name
        if name != "settings":
            yield from properties(about, f"{path}{name}.")


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the set values, down to the level that README documents."""
    rows = {value.path for value in explained() if not value.is_section}
    for name, value in values.items():
        if path + name in rows or not isinstance(value, dict):
            yield path + name, value
        else:
            yield from leaves(value, f"{path}{name}.")


def test_chart_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == project["version"]
    assert chart["description"] == project["description"]


def test_table_of_values_is_current() -> None:
    assert generated.table() in README.read_text(), "run: python -m tests.nightly.chart"


def test_schema_is_current() -> None:
    assert SCHEMA.read_text() == generated.schema_text(), "run: python -m tests.nightly.chart"


def test_settings_of_the_chart_exist() -> None:
    known = vars(Settings)

    assert known.keys() >= generated.OF_THE_CHART
    assert generated.CHOICES.keys() <= known.keys()


def test_every_value_is_documented_and_has_a_schema() -> None:
    rows = {value.path for value in explained()}
    known = set(properties(schema())) - {GLOBAL}

    assert {path for path, _ in leaves(yaml.safe_load(VALUES.read_text()))} <= rows
    assert rows <= known
    # Only values that are passed through to Kubernetes have members without a row.
    leaf_rows = tuple(f"{value.path}." for value in explained() if not value.is_section)
    assert [path for path in known - rows if not path.startswith(leaf_rows)] == []


def test_schema_allows_no_unknown_names() -> None:
    def check(about: Any, path: str) -> None:
        if isinstance(about, dict):
            if "properties" in about:
                assert about["additionalProperties"] is False, path
            for name, inner in about.items():
                check(inner, f"{path}/{name}")

    check(schema(), "")


def test_scheduler_names_are_the_defaults_of_the_extender() -> None:
    defaults = yaml.safe_load(VALUES.read_text())

    assert tuple(defaults["schedulerNames"]) == Settings().scheduler_name


@pytest.mark.parametrize("file", CHANGED, ids=lambda file: file.stem)
def test_every_value_changed_file_changes_every_value(file: Path) -> None:
    defaults = dict(leaves(yaml.safe_load(VALUES.read_text())))
    changed = dict(leaves(yaml.safe_load(file.read_text())))

    assert changed.keys() >= defaults.keys() - {"deployment"}
    same = {path for path in changed if changed[path] == defaults[path]}
    # A disabled part does not show its other values.
    assert {path for path in same if not path.endswith(".enabled")} <= {"deployment"}
    every = generated.settings_schema()["properties"].keys()
    assert changed["settings"].keys() == every


def test_each_deployment_has_an_every_value_changed_file() -> None:
    deployments = [yaml.safe_load(file.read_text())["deployment"] for file in CHANGED]

    assert sorted(deployments) == sorted(schema()["properties"]["deployment"]["enum"])


def test_crds_of_the_chart_are_those_of_the_manifests() -> None:
    assert (CHART / "crds").is_symlink()
    assert (CHART / "crds").resolve() == MANIFESTS / "crds"


def test_rbac_and_alerts_of_the_chart_are_the_files_of_the_overlays() -> None:
    links = {link.name: link.resolve() for link in (CHART / "files").iterdir()}

    overlays = MANIFESTS / "overlays"
    assert links == {
        "base": MANIFESTS / "base",
        "monitoring": MANIFESTS / "monitoring",
        "volcano-crds": MANIFESTS / "volcano-crds",
        "ops-auth": MANIFESTS / "ops-auth",
        "flow-control": MANIFESTS / "flow-control",
        **{name: overlays / name for name in ("second-scheduler", "default-scheduler")},
    }
    assert all((CHART / "files" / name).is_symlink() for name in links)
