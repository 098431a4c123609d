"""`gang-extender replay DIR`: plan a recording again and print the first different decision."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from itertools import islice

import click
from rich.text import Text

from extender.cli import schema
from extender.cli.options import parse_time
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

#: The exit code when a decision differs; docs/what-if.md has it too.
DIFFERS = 3
#: The limit of printed differences of a cycle.
_MAX_PRINTED = 10


@dataclass
class ReplayResult:
    """The result of planning a recording again."""

    passes: int = 0
    skipped: int = 0
    first: float | None = None
    last: float | None = None
    versions: set[str] = field(default_factory=set)
    #: The first cycle that differs, and how; or the one that was requested.
    step: RecordedCycle | None = None
    again: Plan | None = None
    differing: list[Difference] = field(default_factory=list)


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--config",
    metavar="FILE",
    help="Plan by this policy file, not by the recorded policy. Messages and figures may then"
    " differ; only which gangs start and wait, and which pods are evicted, is compared.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="Only the cycle in force at that time, such as 2026-01-31T12:00:00Z, in UTC without a time"
    " zone; its plan is printed.",
)
@output_option
def replay(folder: str, config: str | None, at: str | None, output: str) -> None:
    """Plan a recording again, cycle by cycle, and print the first decision that differs.

    \b
        gang-extender serve --record /var/lib/gang-extender/recording
        gang-extender replay /var/lib/gang-extender/recording

    Exit code 0 when nothing differs, 3 when something does.
    """
    policy = PolicyFile(config).current() if config else None
    recording = Recording(folder)
    result = _replay_all(recording, policy) if at is None else _replay_one(recording, policy, at)
    print_document(
        document(_as_document(result, recording)),
        output,
        lambda: _page(result, recording, config, at),
    )
    for each in recording.remarks:
        print_error(f"gang-extender: {each}")
    if result.differing:
        sys.exit(DIFFERS)


def _replay_all(recording: Recording, policy: Policy | None) -> ReplayResult:
    result = ReplayResult()
    for step in recording.cycles():
        _count(step, result)
        _replay_cycle(step, policy, result)
        if result.differing:
            break
    if not result.passes:
        raise InvalidInput("the recording has no complete cycle")
    return result


def _replay_one(recording: Recording, policy: Policy | None, at: str) -> ReplayResult:
    begins: float | None = None
    requested, chosen, last = parse_time(at, "--at"), None, None
    # Read to the end, because a clock may have been set back; the nearest cycle is chosen.
    for step in recording.cycles():
        begins = step.snapshot.now if begins is None else begins
        if last is not None and requested < step.snapshot.now:
            chosen = _later(chosen, last, requested)
        last = step
    chosen = _later(chosen, last, requested)
    if chosen is None:
        begins_at = f"; it begins at {timestamp_ms(begins)}" if begins is not None else ""
        raise InvalidInput(f"--at: the recording has no cycle as old as {at}{begins_at}")
    result = ReplayResult()
    _count(chosen, result)
    _replay_cycle(chosen, policy, result)
    return result


def _later(
    one: RecordedCycle | None, other: RecordedCycle | None, requested: float
) -> RecordedCycle | None:
    """Return the later of two cycles, *other* only if it is not after *requested*."""
    if other is None or other.snapshot.now > requested:
        return one
    return other if one is None or one.snapshot.now <= other.snapshot.now else one


def _count(step: RecordedCycle, result: ReplayResult) -> None:
    result.passes += 1
    result.skipped += step.skipped
    result.first = step.snapshot.now if result.first is None else result.first
    result.last = step.snapshot.now
    result.versions.add(step.version)


def _replay_cycle(step: RecordedCycle, policy: Policy | None, result: ReplayResult) -> None:
    result.step = step
    try:
        result.again = make_plan(step.snapshot, policy or step.policy)
        differing = plan_differences(step.plan, result.again, in_words=policy is None)
        result.differing = [*islice(differing, _MAX_PRINTED + 1)]
    except InvalidInput:
        raise
    except Exception as error:
        # No real cluster is like this one: another program wrote it.
        raise InvalidInput(
            f"{step.file}: cycle {step.number} cannot be planned: {type(error).__name__}"
        ) from error


def _as_document(result: ReplayResult, recording: Recording) -> schema.Replay:
    step = result.step if result.differing else None
    return schema.Replay(
        cycles=result.passes,
        skipped=result.skipped,
        first=None if result.first is None else timestamp_ms(result.first),
        last=None if result.last is None else timestamp_ms(result.last),
        versions=sorted(result.versions),
        differs_at=None if step is None else timestamp_ms(step.snapshot.now),
        differs_in_cycle=None if step is None else step.number,
        differences=[schema.Difference(*each) for each in result.differing[:_MAX_PRINTED]],
        remarks=list(recording.remarks),
    )


def _page(result: ReplayResult, recording: Recording, config: str | None, at: str | None) -> None:
    terminal, step = Terminal(), result.step
    by = f"by {config}" if config else "by the recorded policy"
    if at is not None and step is not None and result.again is not None:
        head = f"cycle {step.number}, {timestamp_ms(step.snapshot.now)}, planned again {by}"
        terminal.lay_out(safe_text(head, style="bold"), Text())
        page(step.snapshot, result.again)
        terminal.lay_out(Text())
    else:
        head = f"{count(result.passes, 'cycle')} in"
        head += f" {count(recording.files, 'file')}, {timestamp_ms(result.first or 0)} to"
        head += f" {timestamp_ms(result.last or 0)}, planned again {by}"
        terminal.lay_out(safe_text(head, style="bold"))
        if result.skipped:
            terminal.lay_out(
                safe_text(f"{result.skipped} more were not recorded: the disk was too slow")
            )
    if not result.differing or step is None:
        terminal.lay_out(safe_text("no decision differs", style="green"))
        return
    where = f"cycle {step.number} ({step.file}), {timestamp_ms(step.snapshot.now)}"
    terminal.lay_out(safe_text(f"the first that differs: {where}", style="bold red"))
    for each in result.differing[:_MAX_PRINTED]:
        terminal.lay_out(safe_text(f"  {each}"))
    if len(result.differing) > _MAX_PRINTED:
        terminal.lay_out(safe_text("  and more in this cycle"))
