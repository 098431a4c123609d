"""Rows under heads, at any width: side by side, else the last column wrapped, else stacked.

Nothing is ever cut: a name that is cut is another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from extender.cli.printed.terminal import Terminal, cell

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
        self._rows.append([cell(each) for each in cells])

    def print(self, terminal: Terminal) -> None:
        """Print all of it."""
        terminal.lay_out(*self.lines(terminal, terminal.columns))

    def lines(self, console: Console, width: int | None) -> Iterator[Text]:
        """Give the lines for a terminal of *width* columns; None is without end."""
        if self._title:
            yield cell(self._title, style="italic")
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
