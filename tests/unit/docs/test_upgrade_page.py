"""What docs/upgrade.md rests on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.kube.act.wake import WOKEN
from extender.kube.decode import dialects
from extender.model.dialect import VOLCANO
from tests.unit.kube import json_objects as make

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "upgrade.md").read_text()
CRDS = [
    yaml.safe_load(path.read_text()) for path in (ROOT / "manifests" / "crds").glob("*.sh.yaml")
]


def test_an_older_program_reads_newer_objects() -> None:
    group, queue = make.group("train", 2, fromTomorrow={"a": 1}), make.queue("gold", fromTomorrow=1)

    read = dialects.to_group(msgspec.convert(group, dialects.RawGroup), VOLCANO)
    assert (read.min_member, read.problem) == (2, "")
    assert not dialects.to_queue(msgspec.convert(queue, dialects.RawQueue)).problem


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd["spec"]["names"]["kind"])
def test_the_crds_have_the_one_version_that_the_page_names(crd: dict[str, object]) -> None:
    spec = crd["spec"]
    assert isinstance(spec, dict)
    (version,) = spec["versions"]

    assert version["storage"]
    assert f"`{spec['group']}/{version['name']}`" in PAGE


def test_a_setting_of_a_newer_version_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    by_flag = CliRunner().invoke(main, ["serve", "--from-tomorrow"])
    monkeypatch.setenv("GANG_EXTENDER_FROM_TOMORROW", "1")
    by_variable = CliRunner().invoke(main, ["serve"])

    assert (by_flag.exit_code, by_variable.exit_code) == (2, 2)
    assert "GANG_EXTENDER_FROM_TOMORROW is not a setting" in by_variable.output


def test_a_policy_of_a_newer_version_refuses_to_plan(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("fromTomorrow: 1\n")
    example = ROOT / "manifests" / "examples" / "what-if.yaml"
    ran = CliRunner().invoke(main, ["plan", "-f", str(example), "--config", str(policy)])

    assert ran.exit_code == 2
    assert "fromTomorrow" in ran.output


def test_the_names_of_what_is_left_in_the_cluster_are_those_of_the_code() -> None:
    for name in (WOKEN, "gang-extender.io/started-in"):
        assert f"`{name}`" in PAGE
