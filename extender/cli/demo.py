"""`gang-extender demo`: a real extender, an embedded cluster, and a story that ends by itself."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import click
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from extender import logs
from extender.cli.demo_picture import (
    LEAST_HEIGHT,
    LEAST_WIDTH,
    ClusterView,
    Head,
    Picture,
    cluster_view,
)
from extender.cli.options import Seconds
from extender.cli.output import Columns, Terminal, count, sealed
from extender.demo.acts import ACTS, build_nodes
from extender.demo.embedded import Embedded
from extender.demo.form import GangForm, with_form
from extender.demo.story import Act, ActOutcome, ActRunner, ClaimFailed

_FRAME_S = 0.1


class DemoView(ABC):
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


class TextView(DemoView):
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


class LiveView(DemoView):
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
                live.update(self.frame(cluster_view(self._embedded)), refresh=True)

    def frame(self, sight: ClusterView) -> RenderableType:
        """Draw what is seen now."""
        seconds = time.monotonic() - self._began
        head = Head(self._title, self._act, self._acts, self._embedded.address, seconds)
        return self._picture.draw(head, sight, [each.copy() for each in self._told])


def view_for(terminal: Terminal, embedded: Embedded) -> DemoView:
    """Choose by what is looked at."""
    width, height = terminal.size
    has_room = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
    return (LiveView if terminal.is_terminal and has_room else TextView)(terminal, embedded)


@click.command()
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    metavar="N",
    type=Seconds(min=0.1, max=100),
    help="Tell it so many times as fast.",
)
@click.option("--story", "name", type=click.Choice(list(ACTS)), help="Tell this act alone.")
@click.option(
    "--keep",
    is_flag=True,
    help="Stay up afterwards, with a form on the page to submit gangs of your own.",
)
def demo(speed: float, name: str | None, keep: bool) -> None:
    """Watch gangs start whole, share, lend and never starve, without any cluster.

    \b
        gang-extender demo --speed 2
        gang-extender demo --story giant
        gang-extender demo --keep

    The extender is the real one, asked over HTTP; nodes, pods and kube-scheduler live in this
    process. The dashboard is at the address that is shown. On a terminal of 60 columns and 20
    lines there is a picture, elsewhere lines. Whatever an act says is checked against what
    happened; if it is not so, the exit code is 1.
    """
    logs.set_up("error")
    # What is refused because everything ends is no news here.
    logging.getLogger("extender").setLevel(logging.CRITICAL)
    terminal = Terminal()
    acts = [ACTS[name]] if name else list(ACTS.values())
    began = time.monotonic()
    form = GangForm() if keep else None
    with Embedded(with_form(form)) as embedded:
        build_nodes(embedded.cluster)
        narrator = view_for(terminal, embedded)
        with narrator:
            outcomes = _tell(acts, ActRunner(embedded, narrator.say, speed), narrator)
        _sum_up(terminal, outcomes, time.monotonic() - began)
        if form is not None:
            form.open(embedded.tenants)
            _stay(narrator, f"{embedded.address}{form.PATH}")


def _tell(acts: Sequence[Act], telling: ActRunner, narrator: DemoView) -> list[ActOutcome]:
    outcomes = []
    for number, act in enumerate(acts, 1):
        narrator.begin(f"act {number} of {len(acts)}: {act.title}", number, len(acts))
        outcomes.append(telling.tell(act))
    return outcomes


def _sum_up(terminal: Terminal, outcomes: Sequence[ActOutcome], seconds: float) -> None:
    """Say what was claimed and seen; an act that came out otherwise ends all of it."""
    table = Columns("act", "what was seen", head_style="bold", title="in the end")
    for outcome in outcomes:
        seen = [*outcome.claims, *([f"BROKEN: {outcome.broken}"] if outcome.broken else [])]
        for number, claim in enumerate(seen):
            table.add("" if number else outcome.act.name, claim)
    terminal.lay_out(Text())
    table.print(terminal)
    broken = [each for each in outcomes if each.broken]
    claims = sum(len(each.claims) for each in outcomes)
    if broken:
        why = "; ".join(f"{each.act.name}: {each.broken}" for each in broken)
        raise ClaimFailed(
            f"the demo did not come out as told: {why}; run it again, or report it with its output"
        )
    terminal.lay_out(
        Text(
            f"{count(len(outcomes), 'act')} came out as told in {seconds:.0f} s,"
            f" {count(claims, 'claim')} checked."
        )
    )


def _stay(narrator: DemoView, address: str) -> None:
    """Let people submit gangs until they have enough."""
    with narrator:
        narrator.begin("your turn", 0, 0)
        narrator.say(f"Submit gangs of your own at {address} and watch them here. Ctrl-C ends it.")
        threading.Event().wait()
