"""The parts of the manual that are generated from simulated runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from click.testing import CliRunner

from extender.cli.main import main
from extender.planner.policy_parser import DEFAULT_TEXT
from extender.sim.result import Result
from tests.bench import bench_backfill, bench_estimates
from tests.unit.docs.tables.parts import ROOT, parts
from tests.unit.replay.runs import recorded

MARK = "simulated"
#: Times, numbers and names in the output of a replay differ between runs.
_OF_A_RUN = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|[\w-]+/[\w-]+(?=:| \()|\b\d+\b")
#: Times, ports and percentages in the output of the demo differ between runs.
_OF_A_DEMO = re.compile(
    r"^ *\d+\.\ds  |\d+( ms|%|(?= pods, \d+%)|(?=, \d+% of all memory))|:\d+/", re.MULTILINE
)


@cache
def backfill(long: str, setting: str) -> Result:
    """Run the scenario `backfill` once."""
    policy = next(p for name, of, p in bench_backfill.ROWS if (name, of) == (long, setting))
    return bench_backfill.run(long, policy)


def _backfill() -> str:
    rows = [
        bench_backfill.row(long, setting, backfill(long, setting))
        for long, setting, _ in bench_backfill.ROWS
    ]
    return "\n".join((bench_backfill.HEAD, *rows)) + "\n"


def _estimates() -> str:
    rows = [
        bench_estimates.row(name, declared=declared)
        for name in (*bench_estimates.SMALL, "ml-day")
        for declared in (False, True)
    ]
    return "\n".join((bench_estimates.HEAD, *rows)) + "\n"


def _demo() -> str:
    """Return the output of the demo without its summary."""
    ran = subprocess.run(
        [sys.executable, "-m", "extender", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    acts, _, _ = ran.stdout.partition("summary\n")
    lines = [line.rstrip() for line in acts.splitlines() if line.strip()]
    return "\n".join(("```console", "$ make demo", *lines, "```")) + "\n"


def _replay() -> str:
    with TemporaryDirectory() as folder:
        recorded(Path(folder))
        ran = CliRunner().invoke(main, ["replay", folder])
    place = "/var/lib/gang-extender/recording"
    return (
        f"```console\n$ gang-extender serve --record {place} …\n"
        f"$ gang-extender replay {place}\n{ran.stdout}```\n"
    )


def _other_policy() -> str:
    """Return the output up to the first pod with a difference."""
    policy = "without-reclaim.conf"
    with TemporaryDirectory() as folder:
        recorded(Path(folder, "recording"))
        file = Path(folder, policy)
        file.write_text(DEFAULT_TEXT.replace(" reclaim,", ""))
        words = ["replay", f"{folder}/recording", "--config", str(file)]
        lines = CliRunner().invoke(main, words).stdout.replace(str(file), policy).splitlines()
    pod = next(line for line in lines if line.startswith("  pod "))
    shown = "\n".join((*lines[:2], pod))
    return f"```console\n$ gang-extender replay recording --config {policy}\n{shown}\n```\n"


class Figure(NamedTuple):
    """A part, and what of it differs between runs."""

    write: Callable[[], str]
    varies: re.Pattern[str] | None = None

    def is_equivalent(self, one: str, other: str) -> bool:
        if self.varies is None:
            return one == other
        return self.varies.sub("", one) == self.varies.sub("", other)


FIGURES: Mapping[str, Figure] = {
    "backfill": Figure(_backfill),
    "estimates": Figure(_estimates),
    "demo": Figure(_demo, _OF_A_DEMO),
    "replay": Figure(_replay, _OF_A_RUN),
    "replay by another policy": Figure(_other_policy, _OF_A_RUN),
}


def written(name: str | None = None) -> dict[str, str]:
    """Return every part, or the one with this name; an equivalent part stays as it is."""
    shown = {each.name: each.text for each in parts(MARK)}
    texts = {}
    for each in FIGURES if name is None else (name,):
        text, old = FIGURES[each].write(), shown.get(each, "")
        texts[each] = old if FIGURES[each].is_equivalent(old, text) else text
    return texts
