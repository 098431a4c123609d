"""Who tells the story: lines, one below the other, or a picture that lives."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from extender.cli.printed.terminal import Terminal, sealed
from extender.cli.staged.picture import LEAST_HEIGHT, LEAST_WIDTH, Head, Picture
from extender.cli.staged.sight import Sight, look
from extender.embedded.running import Embedded

_FRAME_S = 0.1


class Narrator(ABC):
    """Tells from `with` to the end of the block; may be used again."""

    def __init__(self, terminal: Terminal, embedded: Embedded) -> None:
        self._terminal = terminal
        self._embedded = embedded
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._terminal.file.flush()

    @abstractmethod
    def begin(self, title: str, number: int, of: int) -> None:
        """Begin an act."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Say what happened."""

    def _at(self) -> Text:
        return Text(f"{time.monotonic() - self._began:5.1f}s  ", style="dim")


class Lines(Narrator):
    """For pipes, logs and terminals too small for a picture."""

    def __init__(self, terminal: Terminal, embedded: Embedded) -> None:
        super().__init__(terminal, embedded)
        terminal.lay_out(Text(f"The dashboard is at {embedded.address} while this runs."))

    def begin(self, title: str, number: int, of: int) -> None:
        """Print its title."""
        self._terminal.lay_out(Text(title, style="bold"))

    def say(self, sentence: str) -> None:
        """Print it with its time, at once even into a pipe."""
        self._terminal.lay_out(self._at().append(sentence, style="not dim"))
        self._terminal.file.flush()


class Painter(Narrator):
    """For people: a thread of its own looks and draws."""

    def __init__(self, terminal: Terminal, embedded: Embedded) -> None:
        super().__init__(terminal, embedded)
        self._picture = Picture(terminal)
        self._told: list[Text] = []
        self._title, self._act, self._acts = "", 0, 0
        self._over = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._over.clear()
        self._live = Live(console=self._terminal, screen=True, auto_refresh=False)
        self._live.start()
        self._thread = threading.Thread(target=self._paint, args=(self._live,), name="painter")
        self._thread.daemon = True
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._live is not None:
            self._live.stop()

    def begin(self, title: str, number: int, of: int) -> None:
        """Show which act it is, and forget what was said in the one before."""
        self._title, self._act, self._acts = title, number, of
        self._told = []

    def say(self, sentence: str) -> None:
        """Show it below what was said before."""
        self._told = [*self._told, sealed(self._at().append(sentence, style="not dim"))]

    def _paint(self, live: Live) -> None:
        while not self._over.wait(_FRAME_S):
            # A look that fails is followed by the next one; the story itself judges what is wrong.
            with suppress(Exception):
                live.update(self.frame(look(self._embedded)), refresh=True)

    def frame(self, sight: Sight) -> RenderableType:
        """Draw what is seen now."""
        seconds = time.monotonic() - self._began
        head = Head(self._title, self._act, self._acts, self._embedded.address, seconds)
        return self._picture.draw(head, sight, [each.copy() for each in self._told])


def narrator_for(terminal: Terminal, embedded: Embedded) -> Narrator:
    """Choose by what is looked at."""
    width, height = terminal.size
    has_room = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
    return (Painter if terminal.is_terminal and has_room else Lines)(terminal, embedded)
