"""What docs/replay.md shows and counts is what `replay` prints and the recorder goes by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.cli.foreseen.replay import DIFFERS, replay
from extender.errors import BadConfiguration
from extender.plan.policy.policies import DEFAULT_TEXT
from extender.recording import layout, recorder
from extender.settings import Settings
from tests.unit.replay.runs import recorded
from tests.unit.replay.test_replay import replayed

PAGE = (Path(__file__).parents[3] / "docs" / "replay.md").read_text()
#: Of how much, when and about whom it speaks is not the same in two runs.
_WHICH = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|[\w-]+/[\w-]+(?=:| \()|recording-\d+\.gxr|\b\d+\b")


def shown(command: str) -> str:
    """What the page shows below a command."""
    (found,) = re.findall(rf"\$ gang-extender {re.escape(command)}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def form(output: str) -> str:
    return _WHICH.sub("…", output)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "recording"
    recorded(folder)
    return folder


def test_a_replay_looks_like_the_one_on_the_page(run: Path) -> None:
    result = replayed(run)

    assert form(result.stdout) == form(shown("replay /var/lib/gang-extender/recording"))


def test_so_does_one_under_another_policy(run: Path, tmp_path: Path) -> None:
    policy = tmp_path / "without-reclaim.conf"
    policy.write_text(DEFAULT_TEXT.replace(" reclaim,", ""))

    lines = replayed(run, "--config", policy).stdout.replace(str(policy), policy.name).splitlines()

    on_page = shown("replay recording --config without-reclaim.conf").splitlines()
    assert [*map(form, lines[:2])] == [*map(form, on_page[:2])]
    # What else differs is a matter of the run.
    assert {*map(form, on_page)} <= {*map(form, lines)}


def test_the_page_has_every_flag_and_no_other() -> None:
    told = set(re.findall(r"^\| `(--?\w+)", PAGE, re.MULTILINE))
    known = {name for each in replay.params if each.opts[0].startswith("-") for name in each.opts}

    assert told <= known
    assert {each.opts[0] for each in replay.params if each.opts[0].startswith("-")} - told == set()


def test_the_exit_codes_are_those_on_the_page(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text(DEFAULT_TEXT.replace(" reclaim,", ""))
    codes = [replayed(run), replayed(run, "--config", other), replayed(tmp_path / "none")]

    same, differs, unreadable = (each.exit_code for each in codes)
    assert differs == DIFFERS
    assert (
        f"The exit code is {same} when nothing differs, {differs} when something does,"
        f" {unreadable} when the recording cannot be read."
    ) in PAGE


def test_its_bounds_are_those_on_the_page() -> None:
    least = 8
    with pytest.raises(BadConfiguration):
        Settings(record_mib=least - 1)
    Settings(record_mib=least)
    default = Settings().record_mib

    assert f"`--record-mib` MiB at most ({default} by default, {least} at least)" in PAGE
    assert ("in files of an eighth of that" in PAGE) == (layout.FILES == 8)
    assert ("behind by more than four passes" in PAGE) == (recorder._WAITING == 4)
    a_pass, a_file = layout.MOST_IN_A_PASS >> 20, layout.MOST_IN_A_FILE >> 20
    assert f"One pass is read up to {a_pass} MiB and one file up to {a_file} MiB" in PAGE
