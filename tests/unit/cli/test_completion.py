"""Completion for shells and kubectl: commands, flags, and names of existing gangs and pods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from extender.cli import completion
from extender.cli.completion import SHELLS
from extender.cli.main import main
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.plan import QueueFigures
from extender.status.history import GangHistory
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.cli.wrong_servers import WRONG_SERVERS, serving

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def two_gangs(history: GangHistory) -> None:
    gangs = [gang(name, status=Status.PENDING) for name in ("train", "tune")]
    said = [verdict(f"a/{name}", Reason.INSUFFICIENT_CAPACITY) for name in ("train", "tune")]
    queues = {name: QueueFigures(name=name, weight=1) for name in ("left", "right")}
    history.note(snapshot(*gangs), plan(*said, queues=queues))


def completed(*words: str, patience_s: float = 60.0) -> list[str]:
    *before, typed = words
    shell = ShellComplete(main, {"obj": patience_s}, "gang-extender", "_X")
    found = shell.get_completions(before, typed)
    return [item.value for item in found]


def test_commands_are_completed() -> None:
    assert completed("ex") == ["explain"]
    assert completed("") == [*main.commands]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["explain", "-n", "a", "t"], ["train", "tune"]),
        (["explain", "-n", "a", "tr"], ["train"]),
        (["explain", "a/tu"], ["a/tune"]),
        (["explain", "t"], []),
        (["gangs", "--queue", ""], ["left", "right"]),
        (["top", "--queue", "r"], ["right"]),
    ],
)
def test_names_are_completed_from_the_running_extender(
    ops_url: str, monkeypatch: pytest.MonkeyPatch, words: list[str], names: list[str]
) -> None:
    monkeypatch.setenv("GANG_EXTENDER_OPS_URL", ops_url)

    assert completed(*words) == names


def test_reasons_and_verdicts_are_completed_without_an_extender() -> None:
    assert completed("gangs", "--reason", "notenoughm") == ["NotEnoughMembers"]
    assert "waiting" in completed("gangs", "--verdict", "w")


@pytest.mark.parametrize("server", ["a page", "silence"])
def test_a_server_that_cannot_answer_completes_nothing_and_prints_nothing(
    server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(WRONG_SERVERS[server][0]) as port:
        monkeypatch.setenv("GANG_EXTENDER_OPS_URL", f"http://127.0.0.1:{port}")

        patience_s = 0.2 if server == "silence" else 60.0
        assert completed("explain", "t", patience_s=patience_s) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_completion_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert f"_GANG_EXTENDER_COMPLETE={shell}_complete" in result.stdout


def test_bash_completes_with_the_sourced_script(tmp_path: Path) -> None:
    command = tmp_path / "gang-extender"
    command.write_text(f"#!{sys.executable}\nfrom extender.cli.main import main\nmain()\n")
    command.chmod(0o755)
    typed = (
        "source <(gang-extender completion bash)\n"
        "COMP_WORDS=(gang-extender ex) COMP_CWORD=1\n"
        "_gang_extender_completion gang-extender\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    ran = subprocess.run(
        ["bash", "-c", typed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )

    assert (ran.stdout, ran.stderr) == ("explain\n", "")


def test_kubectl_gets_commands_with_descriptions_and_no_file_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-gang", "expl"])
    completion.for_kubectl()

    assert capsys.readouterr().out.splitlines() == [
        "explain\tExplain why a gang waits, and what would...",
        ":4",
    ]
