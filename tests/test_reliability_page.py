"""What docs/reliability.md names is there: every rule, every turn, every command, every test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cluster.__main__ import arguments
from tests.cluster.chaos import READY_S
from tests.cluster.chaos_script import LANES
from tests.faults.breaches import Bounds
from tests.faults.verdict import RULES
from tests.written import TESTS, named

PAGE = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text()
COMMANDS = sorted(set(re.findall(r"`python -m tests\.cluster ([^`]+)`", PAGE)))


def test_the_page_names_every_rule_of_the_verdict() -> None:
    table = PAGE.partition("| rule |")[2].partition("\n\n")[0]

    assert tuple(re.findall(r"^\| ([a-z][^|]+) \| ", table, re.M)) == RULES


def test_the_page_names_every_turn_of_every_lane() -> None:
    table = PAGE.partition("| lane | turns |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| (\w+) \| ([^|]+) \|$", table, re.M))

    assert shown == {lane.name: ", ".join(lane.kinds) for lane in LANES}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_can_be_typed(command: str) -> None:
    arguments().parse_args(shlex.split(command))


def test_every_test_that_the_page_names_exists() -> None:
    assert len(named(PAGE)) > 20
    assert named(PAGE) - TESTS == set()


@pytest.mark.parametrize("head", ["| what broke | why |", "| point | what broke |"])
def test_whatever_broke_has_a_test(head: str) -> None:
    _, *rows = PAGE.partition(head)[2].partition("\n\n")[0].splitlines()[1:]

    assert len(rows) > 5
    for row in rows:
        assert named(row) or "`tests/" in row, row


def test_the_times_of_the_page_are_those_that_are_judged() -> None:
    assert f"for more than {Bounds().whole_s:g} seconds" in PAGE
    assert f"ready again within {READY_S:g} seconds" in PAGE
    assert Bounds().lag_s == 3
    assert '"Before" is three seconds' in PAGE
