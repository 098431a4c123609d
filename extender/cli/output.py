"""How an answer is printed: laid out for a person, or as JSON or YAML for a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click
import yaml
from rich.console import Console, RenderableType
from rich.text import Text

from extender.text import clean, escaped, steers

#: What a shell says of a command that a closed pipe has ended.
CLOSED_PIPE = 128 + 13
#: Wider than any line of ours: a pipe has no width.
_ENDLESS = 1_000_000
#: Of a sentence.
_LONGEST = 1000


class Terminal(Console):
    """Prints to standard output: as wide as the terminal is, and without limit into a pipe."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        super().__init__(
            highlight=False,
            markup=False,
            emoji=False,
            # Colours are for eyes; a variable that forces them (FORCE_COLOR) fools only a person.
            force_terminal=is_terminal,
            width=None if is_terminal else _ENDLESS,
            no_color=None if is_terminal else True,
        )
        #: How many columns there are; None where it does not matter.
        self.columns = self.width if is_terminal else None

    def on_broken_pipe(self) -> None:
        """End silently: whoever read us has read enough."""
        end_of_pipe()

    def lay_out(self, *parts: RenderableType) -> None:
        """Print each part on lines of its own, as it is."""
        for part in parts:
            self.print(sealed(part) if isinstance(part, Text) else part, soft_wrap=True)


def end_of_pipe() -> None:
    """End the command, and let nothing of it complain that there is no reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(CLOSED_PIPE)


def print_error(sentence: str) -> None:
    """Say something beside what was asked for, on one line that somebody would read."""
    told = clean(sentence)
    if len(told) > _LONGEST:
        # What is wrong is said first, and how to mend it last; what is quoted stands between.
        told = f"{told[: _LONGEST // 2]} … {told[-_LONGEST // 2 :]}"
    click.echo(told, err=True)


def sealed(text: Text) -> Text:
    """Give *text* without what would steer a terminal, whoever put its pieces together."""
    text.plain = "\n".join(map(clean, text.plain.split("\n")))
    return text


def safe_text(content: object, style: str = "") -> Text:
    """Make a piece of a line of whatever comes from a cluster; brackets mean nothing in it."""
    return content if isinstance(content, Text) else Text(clean(content), style=style)


#: By verdict.
COLOURS = {
    "running": "green",
    "admitted": "bold green",
    "waiting": "yellow",
    "invalid": "red",
    "finished": "dim",
}


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the flag that says how to print."""
    return _option(command, "table", "json", "yaml")


def wide_output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the same flag, with a way to print more columns."""
    return _option(command, "table", "wide", "json", "yaml")


def _option(command: Callable[..., Any], *ways: str) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(ways),
        default=ways[0],
        show_default=True,
        help="How to print it.",
    )(command)


def print_document(document: object, output: str, page: Callable[[], None]) -> None:
    """Print *document* in the form asked for; *page* prints it for a person."""
    if output == "json":
        click.echo(escaped(json.dumps(document, indent=2, ensure_ascii=False)))
    elif output == "yaml":
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        if steers(text):  # then in YAML's own notation
            text = yaml.safe_dump(document, sort_keys=False)
        click.echo(text, nl=False)
    else:
        page()


def coloured(verdict: object) -> Text:
    """Write a verdict in its colour."""
    return safe_text(verdict, style=COLOURS.get(str(verdict), ""))


def count(number: int, noun: str) -> str:
    """Say how many: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_GAP = "  "
#: A last column that is narrower than that is hard to read; then rows are stacked.
_READABLE = 24
#: Where a line of a stacked row begins.
_INDENT = "  "


class Columns:
    """Rows of equally many cells. Heads may be left out, and then rows speak for themselves."""

    def __init__(
        self, *heads: str, numbers: Iterable[str] = (), head_style: str = "dim", title: str = ""
    ) -> None:
        self._heads = heads
        self._numbers = frozenset(numbers)
        self._style = head_style
        self._title = title
        self._rows: list[list[Text]] = []

    def add(self, *cells: object) -> None:
        """Put a row below the others."""
        self._rows.append([safe_text(each) for each in cells])

    def print(self, terminal: Terminal) -> None:
        """Print all of it."""
        terminal.lay_out(*self.lines(terminal, terminal.columns))

    def lines(self, console: Console, width: int | None) -> Iterator[Text]:
        """Give the lines for a terminal of *width* columns; None is without end."""
        if self._title:
            yield safe_text(self._title, style="italic")
        heads = [[Text(head, style=self._style) for head in self._heads]] if self._heads else []
        table = [*heads, *self._rows]
        if not table:
            return
        widths = [max(each.cell_len for each in column) for column in zip(*table, strict=True)]
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        if width is None or before + widths[-1] <= width:
            yield from (self._line(row, widths) for row in table)
        elif width - before >= _READABLE or (not heads and width - before >= _READABLE // 2):
            for row in table:
                yield from self._wrapped(row, widths, width - before, console)
        else:
            for row in self._rows:
                yield from self._stacked(row, width, console)

    def _line(self, row: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text()
        for place, (each, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - each.cell_len)
            if self._is_number(place):
                line.append(blank).append_text(each)
            else:
                line.append_text(each).append(blank)
            line.append(_GAP)
        line.rstrip()
        return line

    def _wrapped(
        self, row: Sequence[Text], widths: Sequence[int], room: int, console: Console
    ) -> Iterator[Text]:
        first, *more = wrap(row[-1], room, console)
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        yield self._line([*row[:-1], first], [*widths[:-1], 0 if more else widths[-1]])
        for line in more:
            yield Text(" " * before).append_text(line)

    def _stacked(self, row: Sequence[Text], width: int, console: Console) -> Iterator[Text]:
        yield from _hanging(Text(), row[0], width, console)
        for place, each in enumerate(row[1:], 1):
            head = f"{self._heads[place]} " if self._heads else ""
            yield from _hanging(Text(f"{_INDENT}{head}", style="dim"), each, width, console)

    def _is_number(self, place: int) -> bool:
        return bool(self._heads) and self._heads[place] in self._numbers


def wrap(text: Text, width: int, console: Console) -> list[Text]:
    """Break *text* between words, and long words anywhere; always one line at least."""
    lines = text.wrap(console, max(1, width), overflow="fold")
    for line in lines:
        line.rstrip()
    return [*lines] or [Text()]


def _hanging(head: Text, text: Text, width: int, console: Console) -> Iterator[Text]:
    """Give *text* after *head*, and what does not fit on lines that begin further in."""
    indent = 2 * _INDENT
    first, *more = wrap(text, width - max(head.cell_len, len(indent)), console)
    yield head.append_text(first)
    for line in more:
        yield Text(indent).append_text(line)
