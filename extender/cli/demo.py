"""`gang-extender demo`: an embedded cluster, real HTTP hooks, a story that ends by itself."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from extender import logs
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
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()

    def say(sentence: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:5.1f}s[/]  {sentence}")
        time.sleep(pace)

    with Embedded() as embedded:
        scheduler = SimScheduler(embedded.cluster, embedded.url)
        scheduler.start()
        story = Story(embedded.cluster, embedded.verdict, say)
        story.tell()
        console.print(_table(story.seats()))
        scheduler.stop()


def _table(seats: dict[str, list[str]]) -> Table:
    table = Table(title="at the end", title_justify="left", box=None, pad_edge=False)
    table.add_column("node")
    table.add_column("cpus", justify="right")
    table.add_column("runs")
    for node, pods in seats.items():
        table.add_row(node, f"{len(pods)}/{CPUS}", " ".join(sorted(pods)))
    return table
