"""`gang-extender doctor`: a line for everything that makes no sense."""

from __future__ import annotations

import json
from collections.abc import Sequence

from click.testing import CliRunner, Result

from extender.audit.finding import Finding
from extender.cli.main import main

FOUND = Finding("Queue", "team", "ParentMissing", "queue team is below queue x; create it")
Findings = list[Sequence[Finding] | None]


def doctor(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words], env={"COLUMNS": "160"})


def test_every_finding_is_a_line_and_the_exit_code_says_that_there_are_some(
    ops_url: str, findings: Findings
) -> None:
    findings[0] = [FOUND]

    result = doctor("--ops-url", ops_url)

    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "Queue/team  ParentMissing  queue team is below queue x; create it",
        "1 finding",
    ]


def test_programs_read_the_same_as_json(ops_url: str, findings: Findings) -> None:
    findings[0] = [FOUND]

    result = doctor("--ops-url", ops_url, "-o", "json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"kind": "Queue", "name": "team", "reason": "ParentMissing", "message": FOUND.message}
    ]


def test_a_cluster_in_which_all_makes_sense_is_exit_code_zero(
    ops_url: str, findings: Findings
) -> None:
    findings[0] = []

    result = doctor("--ops-url", ops_url)

    assert result.exit_code == 0
    assert result.output == "nothing found: all means what it says\n"


def test_before_anybody_has_looked_nothing_is_called_well(ops_url: str) -> None:
    result = doctor("--ops-url", ops_url)

    assert result.exit_code == 2
    assert "the first plan is being made" in result.output


def test_an_extender_that_does_not_answer_is_exit_code_two() -> None:
    result = doctor("--ops-url", "http://127.0.0.1:1")

    assert result.exit_code == 2
    assert "no extender answers at http://127.0.0.1:1" in result.output
