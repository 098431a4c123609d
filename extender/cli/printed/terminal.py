"""The terminal or the pipe that is printed to: how wide it is, and what it must not be sent."""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console, RenderableType
from rich.text import Text

from extender.text.plain import clean

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


def tell(sentence: str) -> None:
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


def cell(content: object, style: str = "") -> Text:
    """Make a piece of a line of whatever comes from a cluster; brackets mean nothing in it."""
    return content if isinstance(content, Text) else Text(clean(content), style=style)
