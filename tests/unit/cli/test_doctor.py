"""`gang-extender doctor`: a paragraph for every problem, and what could not be checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.findings.finding import Finding

FOUND = Finding("Queue", "team", "ParentMissing", "queue team is below queue x; create it")
Findings = list[Sequence[Finding] | None]
GOOD = Path(__file__).parents[3] / "manifests/overlays/second-scheduler/scheduler-config.yaml"
CLOSED_PORT = "http://127.0.0.1:1"


def doctor(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words], env={"COLUMNS": "160"})


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Write a configuration with two problems and a hint."""
    document = yaml.safe_load(GOOD.read_text())
    document["extenders"][1]["ignorable"] = True
    del document["extenders"][1]["httpTimeout"]
    document["extenders"][0]["ignorable"] = True
    file = tmp_path / "scheduler-config.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_finding_of_the_extender_is_printed_with_its_remedy(
    ops_url: str, findings: Findings
) -> None:
    findings[0] = [FOUND]

    result = doctor("--offline", "--ops-url", ops_url)

    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "ParentMissing  Queue/team",
        "    seen   queue team is below queue x",
        "    means  an object or a setting is invalid",
        "    mend   create it",
        "1 problem",
    ]


def test_a_problem_in_a_file_is_found_without_a_cluster(bad: Path) -> None:
    result = doctor("--scheduler-config", str(bad))

    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == f"IgnorableBind  {bad}, extenders[1]"
    assert "    mend   write `httpTimeout: 45s` into extenders[1]" in lines
    assert f"IgnorableFilter  hint, {bad}, extenders[0]" in lines
    assert lines[-1] == "2 problems, 1 hint"


def test_text_of_tenants_does_not_control_the_terminal(ops_url: str, findings: Findings) -> None:
    findings[0] = [Finding("Queue", "a\x1b[2J", "ParentMissing", "no [b]x[/b]\nqueue; mend \x07")]

    result = doctor("--offline", "--ops-url", ops_url)

    assert not {"\x1b", "\x07"} & {*result.output}
    assert len(result.output.splitlines()) == 5
    assert "no [b]x[/b]" in result.output


def test_the_report_can_be_printed_as_json(bad: Path) -> None:
    result = doctor("--offline", "--scheduler-config", str(bad), "-o", "json")

    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["apiVersion"], told["kind"]) == ("gang-extender.io/v1", "Diagnosis")
    assert told["not_checked"] == []
    assert [(each["name"], each["severity"]) for each in told["found"]] == [
        ("IgnorableBind", "problem"),
        ("BindTimeoutMissing", "problem"),
        ("IgnorableFilter", "hint"),
    ]
    assert {*told["found"][0]} == {"name", "severity", "where", "seen", "meaning", "mend"}


def test_hints_alone_exit_with_zero(tmp_path: Path) -> None:
    document = yaml.safe_load(GOOD.read_text())
    document["extenders"][0]["ignorable"] = True
    (tmp_path / "file").write_text(yaml.safe_dump(document))

    result = doctor("--scheduler-config", str(tmp_path / "file"))

    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "1 hint"


def test_no_problem_exits_with_zero(ops_url: str, findings: Findings) -> None:
    findings[0] = []

    result = doctor("--offline", "--ops-url", ops_url, "--scheduler-config", str(GOOD))

    assert (result.exit_code, result.output) == (0, "no problem found\n")


def test_the_printed_configuration_of_the_default_scheduler_has_no_problem(tmp_path: Path) -> None:
    words = ["scheduler-config", "--deployment", "default-scheduler", "--url", "https://10.0.0.7:1"]
    (tmp_path / "file").write_text(CliRunner().invoke(main, words).output)

    assert doctor("--offline", "--scheduler-config", str(tmp_path / "file")).exit_code == 0


def test_an_incomplete_check_exits_with_two(ops_url: str, findings: Findings) -> None:
    findings[0] = []

    result = doctor("--ops-url", ops_url)

    assert result.exit_code == 2
    assert result.output.splitlines() == [
        "not checked  the cluster: kubeconfig ~/.kube/config does not exist; name one with"
        " --kubeconfig or KUBECONFIG",
        "nothing found, but not everything could be checked",
    ]


def test_a_problem_takes_precedence_over_an_incomplete_check(bad: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("")
    words = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--ops-url", CLOSED_PORT)

    result = doctor("--scheduler-config", str(bad), *words)

    assert result.exit_code == 1
    assert "not checked  the cluster: kubeconfig " in result.output
    assert (
        f"not checked  readiness of the extender: no extender answers at {CLOSED_PORT}"
        in result.output
    )
    assert result.output.endswith("2 problems, 1 hint, but not everything could be checked\n")


def test_before_the_first_plan_the_check_is_incomplete(ops_url: str) -> None:
    result = doctor("--offline", "--ops-url", ops_url)

    assert result.exit_code == 2
    assert "the first plan is being made" in result.output


def test_an_unreachable_extender_is_one_line_and_exit_code_two() -> None:
    result = doctor("--ops-url", CLOSED_PORT)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "the cluster: kubeconfig ~/.kube/config does not exist" in result.stderr
    assert f"no extender answers at {CLOSED_PORT}" in result.stderr


def test_offline_without_any_input_is_refused() -> None:
    result = doctor("--offline")

    assert result.exit_code == 2
    assert "name --scheduler-config or --ops-url" in result.output
