"""What would become of those somebody asks about, and what changes for others, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from extender.cli.printed.columns import Columns
from extender.cli.printed.terminal import Terminal, cell
from extender.cli.show import COLOURS, count
from extender.plan.policy.options import Policy
from extender.recording.differences import Differing
from extender.whatif.compared import Foretold, PlannedMoment, asked_for, foretold

#: On a page; a document has all of them.
_SHOWN = 40


def print_compared(after: PlannedMoment, differing: list[Differing], policy: Policy) -> None:
    """Print what becomes of those who are asked about, and what changes for the others."""
    terminal = Terminal()
    asked = asked_for(after.snapshot)
    for key in asked[:_SHOWN]:
        told = foretold(after, key, policy)
        terminal.lay_out(*_asked(told) if told else ())
    if len(asked) > _SHOWN:
        terminal.lay_out(Text(f"and {count(len(asked) - _SHOWN, 'gang')} more, below"))
    if not differing:
        terminal.lay_out(Text("nothing changes for anybody else" if asked else "nothing changes"))
        terminal.lay_out(Text())
        return
    table = Columns("WHO", "WITHOUT IT", "WITH IT", title="what changes")
    for each in differing[:_SHOWN]:
        table.add(*each)
    table.print(terminal)
    if len(differing) > _SHOWN:
        rest = len(differing) - _SHOWN
        terminal.lay_out(Text(f"and {rest} more; -o json has all of them"))
    terminal.lay_out(Text())


def _asked(told: Foretold) -> Iterator[Text]:
    verdict = told.verdict
    head = cell(f"{told.gang} ", style="bold")
    colour = COLOURS.get(verdict.standing.value, "")
    head.append_text(cell(told.starts, style=f"not bold {colour}"))
    yield head.append_text(cell(f": {verdict.reason.value}: {verdict.message}", style="not bold"))
    for title, lines in told.lists:
        yield cell(f"  {title}", style="bold")
        for line in lines:
            yield cell(f"    {line}")
