"""`gang-extender replay DIR`: a recording planned again, and the first decision that differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import click
from rich.text import Text

from extender.cli.options import moment
from extender.cli.output import (
    Terminal,
    count,
    output_option,
    print_document,
    print_error,
    safe_text,
)
from extender.cli.plan import page
from extender.cli.schema import document
from extender.clock import timestamp_ms
from extender.errors import InvalidInput
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.policy_file import PolicyFile
from extender.replay.compare import Difference, plan_differences
from extender.replay.recording import RecordedCycle, Recording

#: What the command ends with when a decision differs; docs/replay.md says so too.
DIFFERS = 3
#: Of the pass that differs, so many are told.
_TOLD = 10


@dataclass
class ReplayResult:
    """What came of planning it again."""

    passes: int = 0
    skipped: int = 0
    first: float | None = None
    last: float | None = None
    versions: set[str] = field(default_factory=set)
    #: The step that differs first, and how; or the one that was asked for.
    step: RecordedCycle | None = None
    again: Plan | None = None
    differing: list[Difference] = field(default_factory=list)


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--config",
    metavar="FILE",
    help="Plan by this policy file, not by the policy of the time. Sentences and figures may differ"
    " then; who starts, waits, and must leave is compared.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="Only the pass that was in force then, such as 2026-01-31T12:00:00Z, in UTC where nothing"
    " else is said; its plan is printed.",
)
@output_option
def replay(folder: str, config: str | None, at: str | None, output: str) -> None:
    """Plan a recording again, step by step, and name the first decision that differs.

    \b
        gang-extender serve --record /var/lib/gang-extender/recording
        gang-extender replay /var/lib/gang-extender/recording

    Exit code 0 when nothing differs, 3 when something does.
    """
    policy = PolicyFile(config).current() if config else None
    recording = Recording(folder)
    found = _all(recording, policy) if at is None else _one(recording, policy, at)
    written = _written(found, recording)
    print_document(document("Replay", written), output, lambda: _page(found, recording, config, at))
    for each in recording.remarks:
        print_error(f"gang-extender: {each}")
    if found.differing:
        sys.exit(DIFFERS)


def _all(recording: Recording, policy: Policy | None) -> ReplayResult:
    found = ReplayResult()
    for step in _noted(recording, found):
        _judge(step, policy, found)
        if found.differing:
            break
    if not found.passes:
        raise InvalidInput("the recording holds no pass that was written to its end")
    return found


def _one(recording: Recording, policy: Policy | None, at: str) -> ReplayResult:
    begins: float | None = None
    asked, meant, last = moment(at, "--at"), None, None
    # To the end, because a clock may have been set back; of several the nearest is meant.
    for step in recording.steps():
        begins = step.snapshot.now if begins is None else begins
        if last is not None and asked < step.snapshot.now:
            meant = _nearer(meant, last, asked)
        last = step
    meant = _nearer(meant, last, asked)
    if meant is None:
        begins_at = f"; it begins at {timestamp_ms(begins)}" if begins is not None else ""
        raise InvalidInput(f"--at: the recording holds no pass as old as {at}{begins_at}")
    found = ReplayResult()
    _note(meant, found)
    _judge(meant, policy, found)
    return found


def _nearer(
    one: RecordedCycle | None, other: RecordedCycle | None, asked: float
) -> RecordedCycle | None:
    """Give the later of two passes, *other* only if it is not too late."""
    if other is None or other.snapshot.now > asked:
        return one
    return other if one is None or one.snapshot.now <= other.snapshot.now else one


def _noted(recording: Recording, found: ReplayResult) -> Iterator[RecordedCycle]:
    for step in recording.steps():
        _note(step, found)
        yield step


def _note(step: RecordedCycle, found: ReplayResult) -> None:
    found.passes += 1
    found.skipped += step.skipped
    found.first = step.snapshot.now if found.first is None else found.first
    found.last = step.snapshot.now
    found.versions.add(step.version)


def _judge(step: RecordedCycle, policy: Policy | None, found: ReplayResult) -> None:
    found.step = step
    try:
        found.again = make_plan(step.snapshot, policy or step.policy)
        differing = plan_differences(step.plan, found.again, in_words=policy is None)
        found.differing = [*islice(differing, _TOLD + 1)]
    except InvalidInput:
        raise
    except Exception as error:
        # No cluster is like this one: somebody else wrote it.
        raise InvalidInput(
            f"{step.file}: pass {step.number} cannot be planned: {type(error).__name__}"
        ) from error


def _written(found: ReplayResult, recording: Recording) -> dict[str, Any]:
    step = found.step if found.differing else None
    return {
        "passes": found.passes,
        "skipped": found.skipped,
        "first": None if found.first is None else timestamp_ms(found.first),
        "last": None if found.last is None else timestamp_ms(found.last),
        "versions": sorted(found.versions),
        "differs_at": None if step is None else timestamp_ms(step.snapshot.now),
        "differs_in_pass": None if step is None else step.number,
        "differences": [each._asdict() for each in found.differing[:_TOLD]],
        "remarks": list(recording.remarks),
    }


def _page(found: ReplayResult, recording: Recording, config: str | None, at: str | None) -> None:
    terminal, step = Terminal(), found.step
    by = f"by {config}" if config else "by the policy of the time"
    if at is not None and step is not None and found.again is not None:
        head = f"pass {step.number}, {timestamp_ms(step.snapshot.now)}, planned again {by}"
        terminal.lay_out(safe_text(head, style="bold"), Text())
        page(step.snapshot, found.again)
        terminal.lay_out(Text())
    else:
        head = f"{count(found.passes, 'pass').replace('passs', 'passes')} in"
        head += f" {count(recording.files, 'file')}, {timestamp_ms(found.first or 0)} to"
        head += f" {timestamp_ms(found.last or 0)}, planned again {by}"
        terminal.lay_out(safe_text(head, style="bold"))
        if found.skipped:
            terminal.lay_out(
                safe_text(f"{found.skipped} more were not recorded: the disk was behind")
            )
    if not found.differing or step is None:
        terminal.lay_out(safe_text("no decision differs", style="green"))
        return
    where = f"pass {step.number} ({step.file}), {timestamp_ms(step.snapshot.now)}"
    terminal.lay_out(safe_text(f"the first that differs: {where}", style="bold red"))
    for each in found.differing[:_TOLD]:
        terminal.lay_out(safe_text(f"  {each}"))
    if len(found.differing) > _TOLD:
        terminal.lay_out(safe_text("  and more in this pass"))
