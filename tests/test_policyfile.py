"""The policy file while we run."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.errors import BadConfiguration
from extender.plan.policy import policies
from extender.policyfile import PolicyFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text('actions: "allocate"\n')
    return path


def test_without_a_file_the_built_in_policy_is_in_force() -> None:
    assert PolicyFile().current() is policies.DEFAULT


def test_a_changed_file_is_in_force_at_once(file: Path) -> None:
    policies = PolicyFile(str(file))
    assert policies.current().actions == ("allocate",)

    file.write_text('actions: "enqueue, allocate"\n')

    assert policies.current().actions == ("enqueue", "allocate")


def test_a_bad_change_keeps_the_old_policy_and_says_why_until_it_is_mended(file: Path) -> None:
    policies = PolicyFile(str(file))

    file.write_text('actions: "alocate"\n')
    assert policies.current().actions == ("allocate",)
    assert "alocate" in policies.problem

    file.write_text('actions: "backfill"\n')
    assert policies.current().actions == ("backfill",)
    assert policies.problem == ""


def test_what_has_no_effect_in_the_file_is_a_finding_and_a_note(file: Path) -> None:
    file.write_text(
        "{compatibility: volcano, tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]}"
    )
    policies = PolicyFile(str(file))

    (found,) = policies.findings()
    assert (found.kind, found.name, found.reason) == ("Policy", str(file), "WithoutEffect")
    assert "plugin gang has no argument 'x'" in found.message
    assert policies.notes() == [f"policy: {found.message}"]


def test_a_file_that_is_refused_while_we_run_is_a_finding_until_it_is_mended(file: Path) -> None:
    policies = PolicyFile(str(file))
    file.write_text("tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]")
    policies.current()

    assert [each.reason for each in policies.findings()] == ["Refused"]
    file.write_text("tiers: [{plugins: [{name: gang}]}]")
    policies.current()
    assert policies.findings() == ()


def test_a_file_that_vanishes_keeps_the_old_policy(file: Path) -> None:
    policies = PolicyFile(str(file))
    file.unlink()

    assert policies.current().actions == ("allocate",)
    assert "cannot be read" in policies.problem


def test_a_bad_or_missing_file_at_the_start_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text("actions: [")

    for path in (file, tmp_path / "none.yaml"):
        with pytest.raises(BadConfiguration, match=path.name):
            PolicyFile(str(path))
