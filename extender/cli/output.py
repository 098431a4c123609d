"""Prints results: as text and tables for people, as JSON or YAML for programs."""

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

#: The exit code that a shell shows for a command that SIGPIPE ended.
CLOSED_PIPE = 128 + 13
#: Wider than any line we print: a pipe has no width.
_PIPE_WIDTH = 1_000_000
#: The longest error sentence.
_MAX_CHARS = 1000


class Terminal(Console):
    """Console on standard output: as wide as the terminal, unlimited in a pipe."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        super().__init__(
            highlight=False,
            markup=False,
            emoji=False,
            # Colours are for people; ignore variables that force them (FORCE_COLOR) in a pipe.
            force_terminal=is_terminal,
            width=None if is_terminal else _PIPE_WIDTH,
            no_color=None if is_terminal else True,
        )
        #: The width in columns; None where it is unlimited.
        self.columns = self.width if is_terminal else None

    def on_broken_pipe(self) -> None:
        """End silently: the reader of the pipe needs no more."""
        end_of_pipe()

    def lay_out(self, *parts: RenderableType) -> None:
        """Print each part on lines of its own, without wrapping."""
        for part in parts:
            self.print(sealed(part) if isinstance(part, Text) else part, soft_wrap=True)


def end_of_pipe() -> None:
    """End the command, and discard all further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(CLOSED_PIPE)


def print_error(sentence: str) -> None:
    """Print a sentence on one line of standard error, shortened where it is too long."""
    line = clean(sentence)
    if len(line) > _MAX_CHARS:
        # The cause comes first and the remedy last; the quoted input stands between them.
        line = f"{line[: _MAX_CHARS // 2]} … {line[-_MAX_CHARS // 2 :]}"
    click.echo(line, err=True)


def sealed(text: Text) -> Text:
    """Remove control characters from *text*, including those of its parts."""
    text.plain = "\n".join(map(clean, text.plain.split("\n")))
    return text


def safe_text(content: object, style: str = "") -> Text:
    """Return untrusted *content* as text without control characters or markup."""
    return content if isinstance(content, Text) else Text(clean(content), style=style)


#: The colour of each verdict.
COLOURS = {
    "running": "green",
    "admitted": "bold green",
    "waiting": "yellow",
    "invalid": "red",
    "finished": "dim",
}


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag of the output format to *command*."""
    return _option(command, "table", "json", "yaml")


def wide_output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same flag to *command*, with a format of more columns."""
    return _option(command, "table", "wide", "json", "yaml")


def _option(command: Callable[..., Any], *formats: str) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print it.",
    )(command)


def print_document(document: object, output: str, page: Callable[[], None]) -> None:
    """Print *document* as JSON or YAML, or call *page* to print it for a person."""
    if output == "json":
        click.echo(escaped(json.dumps(document, indent=2, ensure_ascii=False)))
    elif output == "yaml":
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        if steers(text):  # then escape all but ASCII
            text = yaml.safe_dump(document, sort_keys=False)
        click.echo(text, nl=False)
    else:
        page()


def coloured(verdict: object) -> Text:
    """Return a verdict in its colour."""
    return safe_text(verdict, style=COLOURS.get(str(verdict), ""))


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_GAP = "  "
#: Below this width the last column is hard to read, and rows are stacked instead.
_MIN_COLUMN = 24
#: The indent of the lines of a stacked row.
_INDENT = "  "


class Columns:
    """A table; its header may be left out where rows need none."""

    def __init__(
        self, *headers: str, numbers: Iterable[str] = (), head_style: str = "dim", title: str = ""
    ) -> None:
        self._headers = headers
        self._numbers = frozenset(numbers)
        self._style = head_style
        self._title = title
        self._rows: list[list[Text]] = []

    def add(self, *cells: object) -> None:
        """Append a row."""
        self._rows.append([safe_text(each) for each in cells])

    def print(self, terminal: Terminal) -> None:
        """Print the table."""
        terminal.lay_out(*self.lines(terminal, terminal.columns))

    def lines(self, console: Console, width: int | None) -> Iterator[Text]:
        """Return the lines for a terminal of *width* columns; None is unlimited."""
        if self._title:
            yield safe_text(self._title, style="italic")
        headers = (
            [[Text(header, style=self._style) for header in self._headers]] if self._headers else []
        )
        table = [*headers, *self._rows]
        if not table:
            return
        widths = [max(each.cell_len for each in column) for column in zip(*table, strict=True)]
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        if width is None or before + widths[-1] <= width:
            yield from (self._line(row, widths) for row in table)
        elif width - before >= _MIN_COLUMN or (not headers and width - before >= _MIN_COLUMN // 2):
            for row in table:
                yield from self._wrapped(row, widths, width - before, console)
        else:
            for row in self._rows:
                yield from self._stacked(row, width, console)

    def _line(self, row: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text()
        for index, (each, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - each.cell_len)
            if self._is_number(index):
                line.append(blank).append_text(each)
            else:
                line.append_text(each).append(blank)
            line.append(_GAP)
        line.rstrip()
        return line

    def _wrapped(
        self, row: Sequence[Text], widths: Sequence[int], width: int, console: Console
    ) -> Iterator[Text]:
        first, *more = wrap(row[-1], width, console)
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        yield self._line([*row[:-1], first], [*widths[:-1], 0 if more else widths[-1]])
        for line in more:
            yield Text(" " * before).append_text(line)

    def _stacked(self, row: Sequence[Text], width: int, console: Console) -> Iterator[Text]:
        yield from _hanging(Text(), row[0], width, console)
        for index, each in enumerate(row[1:], 1):
            header = f"{self._headers[index]} " if self._headers else ""
            yield from _hanging(Text(f"{_INDENT}{header}", style="dim"), each, width, console)

    def _is_number(self, index: int) -> bool:
        return bool(self._headers) and self._headers[index] in self._numbers


def wrap(text: Text, width: int, console: Console) -> list[Text]:
    """Wrap *text* between words, and long words anywhere; return at least one line."""
    lines = text.wrap(console, max(1, width), overflow="fold")
    for line in lines:
        line.rstrip()
    return [*lines] or [Text()]


def _hanging(header: Text, text: Text, width: int, console: Console) -> Iterator[Text]:
    """Yield *text* after *header*, wrapped with a hanging indent."""
    indent = 2 * _INDENT
    first, *more = wrap(text, width - max(header.cell_len, len(indent)), console)
    yield header.append_text(first)
    for line in more:
        yield Text(indent).append_text(line)
