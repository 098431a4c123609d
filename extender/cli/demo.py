"""`gang-extender demo`: an embedded cluster, real HTTP hooks, a story that ends by itself."""

from __future__ import annotations

import time

import click
from rich.text import Text

from extender import logs
from extender.cli.printed.columns import Columns
from extender.cli.printed.terminal import Terminal
from extender.cli.typed.seconds import Seconds
from extender.embedded import Embedded
from extender.sim.scheduler import SimScheduler
from extender.sim.story import CPUS, Story


@click.command()
@click.option(
    "--pace",
    default=1.0,
    show_default=True,
    type=Seconds(min=0, max=3600),
    help="Seconds to read a sentence before the next.",
)
def demo(pace: float) -> None:
    """Watch a gang being held and then started, without any cluster."""
    logs.set_up("error")
    terminal = Terminal()
    started = time.monotonic()

    def say(sentence: str) -> None:
        told = Text(f"{time.monotonic() - started:5.1f}s  ", style="dim")
        terminal.lay_out(told.append(sentence, style="not dim"))
        time.sleep(pace)

    with Embedded() as embedded:
        scheduler = SimScheduler(embedded.cluster, embedded.url)
        scheduler.start()
        story = Story(embedded.cluster, embedded.verdict, say)
        story.tell()
        _table(story.seats()).print(terminal)
        scheduler.stop()


def _table(seats: dict[str, list[str]]) -> Columns:
    table = Columns("node", "cpus", "runs", numbers=("cpus",), title="at the end")
    for node, pods in seats.items():
        table.add(node, f"{len(pods)}/{CPUS}", " ".join(sorted(pods)))
    return table
