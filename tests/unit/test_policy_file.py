"""The policy file at runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.errors import InvalidConfiguration
from extender.planner import policy_parser
from extender.policy_file import PolicyFile
from tests.unit.text.yaml_bombs import BOMBS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text('actions: "allocate"\n')
    return path


def test_without_a_file_the_built_in_policy_is_in_force() -> None:
    assert PolicyFile().current() is policy_parser.DEFAULT


def test_a_changed_policy_file_is_in_force_at_once(file: Path) -> None:
    policies = PolicyFile(str(file))
    assert policies.current().actions == ("allocate",)

    file.write_text('actions: "enqueue, allocate"\n')

    assert policies.current().actions == ("enqueue", "allocate")


def test_an_invalid_change_keeps_the_old_policy_and_says_why_until_it_is_fixed(file: Path) -> None:
    policies = PolicyFile(str(file))

    file.write_text('actions: "alocate"\n')
    assert policies.current().actions == ("allocate",)
    assert "alocate" in policies.problem

    file.write_text('actions: "backfill"\n')
    assert policies.current().actions == ("backfill",)
    assert policies.problem == ""


def test_an_ignored_argument_in_the_file_is_a_finding_and_a_note(file: Path) -> None:
    file.write_text(
        "{compatibility: volcano, tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]}"
    )
    policies = PolicyFile(str(file))

    (found,) = policies.findings()
    assert (found.kind, found.name, found.reason) == ("Policy", str(file), "IgnoredField")
    assert "plugin gang has no argument 'x'" in found.message
    assert policies.notes() == [f"policy: {found.message}"]


def test_a_file_refused_at_runtime_is_a_finding_until_it_is_fixed(file: Path) -> None:
    policies = PolicyFile(str(file))
    file.write_text("tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]")
    policies.current()

    assert [each.reason for each in policies.findings()] == ["Refused"]
    file.write_text("tiers: [{plugins: [{name: gang}]}]")
    policies.current()
    assert policies.findings() == ()


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_file_that_expands_without_limit_keeps_the_old_policy_and_the_problem(
    file: Path, text: str
) -> None:
    policies = PolicyFile(str(file))
    file.write_text(text)

    assert policies.current().actions == ("allocate",)
    assert policies.current().actions == ("allocate",)
    assert policies.problem.startswith(f"{file}: ")
    assert len(policies.problem) < 1000
    assert [each.reason for each in policies.findings()] == ["Refused"]


@pytest.mark.parametrize(
    "text",
    [
        f"actions: [0x{'f' * 5000}]",
        f"actions: 0x{'f' * 5000}",
        f"0x{'f' * 5000}: 1",
        f"tiers: [{{plugins: [{{name: gang, arguments: {{0x{'f' * 5000}: 1}}}}]}}]",
        f"starvation: {{gangs: 0x{'f' * 5000}}}",
        f"plugins: [0x{'f' * 5000}]",
        f"actions: {'x' * 300_000}",
    ],
)
def test_overlong_numbers_and_words_are_refused_in_a_short_sentence(file: Path, text: str) -> None:
    policies = PolicyFile(str(file))
    file.write_text(text)

    assert policies.current().actions == ("allocate",)
    assert policies.current().actions == ("allocate",)
    assert policies.problem.startswith(f"{file}: ")
    assert len(policies.problem) < 1000


def test_an_external_plugin_that_fails_on_its_arguments_keeps_the_old_policy(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = PolicyFile(str(file))

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("extender.planner.plugins.registry.make", fails)
    file.write_text("tiers: [{plugins: [{name: gang}]}]")

    assert policies.current().actions == ("allocate",)
    assert policies.current().actions == ("allocate",)
    assert "cannot be understood (ZeroDivisionError)" in policies.problem


@pytest.mark.parametrize("left", ["", "\n", "# nothing\n", "---\n"])
def test_an_empty_file_does_not_bring_back_the_built_in_policy(file: Path, left: str) -> None:
    policies, text = PolicyFile(str(file)), file.read_text()

    file.write_text(left)  # as a writer in place or a full disk leaves it

    assert policies.current().actions == ("allocate",)
    assert policies.problem == (
        f"{file}: is empty; write the policy into it, or start without --config for the"
        " built-in one"
    )
    file.write_text(text)
    assert policies.current().actions == ("allocate",)
    assert policies.problem == ""


def test_a_restored_file_clears_the_problem(file: Path) -> None:
    policies, text = PolicyFile(str(file)), file.read_text()
    file.unlink()
    policies.current()
    file.write_text(text)

    assert policies.current().actions == ("allocate",)
    assert policies.problem == ""


def test_a_deleted_file_keeps_the_old_policy(file: Path) -> None:
    policies = PolicyFile(str(file))
    file.unlink()

    assert policies.current().actions == ("allocate",)
    assert "cannot be read" in policies.problem


def test_an_invalid_or_missing_file_at_the_start_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text("actions: [")
    (tmp_path / "empty.yaml").touch()

    for path in (file, tmp_path / "none.yaml", tmp_path / "empty.yaml"):
        with pytest.raises(InvalidConfiguration, match=path.name):
            PolicyFile(str(path))
