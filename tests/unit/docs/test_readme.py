"""Whatever the README shows is run: commands, their output, manifests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def without_times(text: str) -> list[str]:
    """Strip what differs between two runs: seconds, milliseconds, ports, shares."""
    steady = re.sub(r"^ *\d+\.\ds  ", "", text, flags=re.MULTILINE)
    steady = re.sub(r"\d+( ms|%|(?= pods, \d+%)|(?=, \d+% of all memory))|:\d+/", "N", steady)
    return [line.rstrip() for line in steady.splitlines() if line.strip()]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_demo_prints_what_the_readme_shows() -> None:
    shown = next(block for block in blocks("console") if block.startswith("$ make demo\n"))
    ran = run(sys.executable, "-m", "extender", "demo", "--speed", "5")

    assert ran.returncode == 0, ran.stderr
    told, promised = (without_times(text) for text in (ran.stdout, shown.partition("\n")[2]))
    assert told[: len(promised)] == promised
    assert told[len(promised)] == "in the end"
    assert "4 acts came out as told" in told[-1]


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_knows_its_word(command: str) -> None:
    assert run("make", "--dry-run", command.split()[1]).returncode == 0


def test_make_alone_prints_its_words() -> None:
    printed = run("make").stdout

    for word in ("demo", "test", "check", "cluster", "bench", "image"):
        assert f"make {word}" in printed


def test_scheduler_config_prints_a_configuration() -> None:
    command = next(c for c in commands() if c.startswith("gang-extender scheduler-config"))
    words = command.partition(" > ")[0].split()[1:]
    ran = run(sys.executable, "-m", "extender", *words)

    assert yaml.safe_load(ran.stdout)["kind"] == "KubeSchedulerConfiguration"


def test_the_plan_of_the_example_is_what_the_readme_shows() -> None:
    shown = next(block for block in blocks("console") if "what-if" in block)
    command, _, output = shown.partition("\n")
    ran = subprocess.run(
        [sys.executable, "-m", "extender", *command.removeprefix("$ ").split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
    )

    assert [line.rstrip() for line in ran.stdout.rstrip().splitlines()] == output.splitlines()


def test_every_flag_of_serve_that_the_readme_names_exists() -> None:
    command = next(c for c in commands() if c.startswith("gang-extender serve"))
    help_text = run(sys.executable, "-m", "extender", "serve", "--help").stdout

    for flag in re.findall(r"--[a-z-]+", command):
        assert flag in help_text


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target
