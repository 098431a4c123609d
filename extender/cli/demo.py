"""`gang-extender demo`: a real extender, an embedded cluster, and a few acts with checks."""

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
    MIN_HEIGHT,
    MIN_WIDTH,
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
    """Shows the demo inside a `with` block; may be entered again."""

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
        """Show the begin of an act."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Show a sentence about what happened."""

    def _at(self) -> Text:
        return Text(f"{time.monotonic() - self._began:5.1f}s  ", style="dim")


class TextView(DemoView):
    """Prints lines, for pipes, logs and small terminals."""

    def __init__(self, terminal: Terminal, embedded: Embedded) -> None:
        super().__init__(terminal, embedded)
        terminal.lay_out(Text(f"The dashboard is at {embedded.address} while this runs."))

    def begin(self, title: str, number: int, of: int) -> None:
        """Print the title."""
        self._terminal.lay_out(Text(title, style="bold"))

    def say(self, sentence: str) -> None:
        """Print the sentence with its time, flushed also into a pipe."""
        self._terminal.lay_out(self._at().append(sentence, style="not dim"))
        self._terminal.file.flush()


class LiveView(DemoView):
    """Draws the cluster on a terminal, in a thread of its own."""

    def __init__(self, terminal: Terminal, embedded: Embedded) -> None:
        super().__init__(terminal, embedded)
        self._picture = Picture(terminal)
        self._sentences: list[Text] = []
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
        """Show the title, and clear the sentences of the act before."""
        self._title, self._act, self._acts = title, number, of
        self._sentences = []

    def say(self, sentence: str) -> None:
        """Append the sentence."""
        self._sentences = [*self._sentences, sealed(self._at().append(sentence, style="not dim"))]

    def _paint(self, live: Live) -> None:
        while not self._over.wait(_FRAME_S):
            # A frame that fails is followed by the next; the acts check what happens.
            with suppress(Exception):
                live.update(self.frame(cluster_view(self._embedded)), refresh=True)

    def frame(self, view: ClusterView) -> RenderableType:
        """Return a frame of the cluster as it is now."""
        seconds = time.monotonic() - self._began
        head = Head(self._title, self._act, self._acts, self._embedded.address, seconds)
        return self._picture.draw(head, view, [each.copy() for each in self._sentences])


def view_for(terminal: Terminal, embedded: Embedded) -> DemoView:
    """Return the view that fits the terminal."""
    width, height = terminal.size
    is_large_enough = width >= MIN_WIDTH and height >= MIN_HEIGHT
    return (LiveView if terminal.is_terminal and is_large_enough else TextView)(terminal, embedded)


@click.command()
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    metavar="N",
    type=Seconds(min=0.1, max=100),
    help="Run N times as fast.",
)
@click.option("--story", "name", type=click.Choice(list(ACTS)), help="Run only this act.")
@click.option(
    "--keep",
    is_flag=True,
    help="Keep running afterwards, with a form on the page to submit gangs of your own.",
)
def demo(speed: float, name: str | None, keep: bool) -> None:
    """Watch gangs start whole, share, lend and never starve, without any cluster.

    \b
        gang-extender demo --speed 2
        gang-extender demo --story giant
        gang-extender demo --keep

    The extender is the real one, called over HTTP; nodes, pods and kube-scheduler are simulated
    in this process. It prints the address of the dashboard. On a terminal of 60 columns and 20
    lines it draws a picture, elsewhere it prints lines. Every claim of an act is checked; if one
    fails, the exit code is 1.
    """
    logs.set_up("error")
    # Refusals during the shutdown need no log.
    logging.getLogger("extender").setLevel(logging.CRITICAL)
    terminal = Terminal()
    acts = [ACTS[name]] if name else list(ACTS.values())
    began = time.monotonic()
    form = GangForm() if keep else None
    with Embedded(with_form(form)) as embedded:
        build_nodes(embedded.api)
        view = view_for(terminal, embedded)
        with view:
            outcomes = _run_acts(acts, ActRunner(embedded, view.say, speed), view)
        _print_summary(terminal, outcomes, time.monotonic() - began)
        if form is not None:
            form.open(embedded)
            _wait_for_submissions(view, f"{embedded.address}{form.PATH}")


def _run_acts(acts: Sequence[Act], runner: ActRunner, view: DemoView) -> list[ActOutcome]:
    outcomes = []
    for number, act in enumerate(acts, 1):
        view.begin(f"act {number} of {len(acts)}: {act.title}", number, len(acts))
        outcomes.append(runner.run(act))
    return outcomes


def _print_summary(terminal: Terminal, outcomes: Sequence[ActOutcome], seconds: float) -> None:
    """Print the claims that were checked; raise if an act failed."""
    table = Columns("act", "checked", head_style="bold", title="summary")
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
            f"a claim of the demo failed: {why}; run it again, or report it with its output"
        )
    terminal.lay_out(
        Text(
            f"{count(len(outcomes), 'act')} finished in {seconds:.0f} s,"
            f" {count(claims, 'claim')} checked."
        )
    )


def _wait_for_submissions(view: DemoView, address: str) -> None:
    """Let people submit gangs until they interrupt it."""
    with view:
        view.begin("your turn", 0, 0)
        view.say(f"Submit gangs of your own at {address} and watch them here. Ctrl-C ends it.")
        threading.Event().wait()
