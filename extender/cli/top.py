"""`gang-extender top`: queues and gangs in the terminal, live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from extender.cli.ask import ask, ops_url_option
from extender.cli.show import COLOURS
from extender.errors import BadInput

Document = dict[str, Any]

#: So many lines on room that is kept; the others are counted.
_KEPT = 5
#: Those that wait come first; of the rest a screenful is enough.
_ORDER = {"invalid": 0, "waiting": 1, "admitted": 2, "running": 3}


@click.command()
@ops_url_option
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option(
    "--every-s", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds."
)
@click.option("--gangs", default=30, show_default=True, help="How many gangs to show.")
def top(ops_url: str, once: bool, every_s: float, gangs: int) -> None:
    """Show what queues deserve, use and want, and where gangs stand."""
    console = Console(highlight=False)
    first = _look(ops_url)
    if once:
        console.print(picture(first, gangs))
        return
    with suppress(KeyboardInterrupt), Live(console=console, screen=True) as live:
        for frame in frames(ops_url, gangs):
            live.update(frame)
            time.sleep(every_s)


def frames(ops_url: str, gangs: int) -> Iterator[RenderableType]:
    """Give one picture after the other; an extender that restarts does not end them."""
    while True:
        try:
            yield picture(_look(ops_url), gangs)
        except BadInput as error:
            yield Text(str(error), style="red")


def _look(ops_url: str) -> Document:
    return dict(ask(ops_url, "plan")[1])


def picture(plan: Document, gangs: int = 30) -> RenderableType:
    """Lay the plan out as two tables."""
    shown = sorted(plan["gangs"], key=_by_need)[:gangs]
    shares = [_shares(plan)] if plan["shares"] else []
    parts: list[RenderableType] = [_queues(plan), *shares, _idle(plan), _gangs(shown)]
    parts += [Text(f"scheduler {each['name']}: {each['complaint']}", "red") for each in _mute(plan)]
    hidden = len(plan["gangs"]) - len(shown)
    if hidden:
        parts.append(Text(f"and {hidden} more gangs", style="dim"))
    return Group(*parts)


def _mute(plan: Document) -> list[Document]:
    """Name the schedulers that somebody waits for in vain; of who never came and is not missed
    nothing is said."""
    missed = ("silent", "elsewhere")
    return [each for each in plan.get("schedulers", ()) if each["voice"] in missed]


def _by_need(gang: Document) -> tuple[int, str, str]:
    return _ORDER.get(gang["verdict"], 9), gang["namespace"], gang["name"]


def _queues(plan: Document) -> Table:
    table = Table(title=f"queues, cycle {plan['generation']}", title_justify="left", box=None)
    numbers = ("weight", "share", "waiting", "running")
    words = ("deserved", "used", "borrowed", "wanted")
    for column in ("queue", "weight", *words, "share", "waiting", "running"):
        justify = "right" if column in numbers else "left"
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for queue in plan["queues"]:
        mine = [gang for gang in plan["gangs"] if gang["queue"] == queue["name"]]
        table.add_row(
            queue["name"],
            str(queue["weight"]),
            *(_brief(queue[word]) for word in ("deserved", "allocated", "borrowed", "requested")),
            Text(f"{queue['share']:.0%}", style="red" if queue["overused"] else ""),
            str(sum(gang["verdict"] in ("waiting", "invalid") for gang in mine)),
            str(sum(gang["verdict"] == "running" for gang in mine)),
        )
    return table


def _shares(plan: Document) -> Table:
    table = Table(title="namespaces in queues", title_justify="left", box=None)
    for column in ("queue", "namespace", "at least", "used", "at most", "wanted"):
        table.add_column(column)
    for share in plan["shares"]:
        table.add_row(
            share["queue"],
            share["namespace"],
            *(_brief(share[word]) for word in ("at_least", "allocated", "at_most", "requested")),
        )
    return table


def _idle(plan: Document) -> Text:
    """Say what is idle, and what of it is kept for whom; nobody who waits can use the rest."""
    text = Text(f"idle: {_brief(plan['idle'])}\n")
    for each in plan["kept"][:_KEPT]:
        text.append(f"  {_brief(each['amounts'])} {each['why']}\n", style="dim")
    hidden = len(plan["kept"]) - _KEPT
    return text.append(f"  and {hidden} more\n", style="dim") if hidden > 0 else text


def _gangs(gangs: list[Document]) -> Table:
    table = Table(title="gangs", title_justify="left", box=None)
    for column in ("gang", "queue", "members", "stands", "why"):
        table.add_column(column, overflow="fold" if column == "why" else "ellipsis")
    for gang in gangs:
        table.add_row(
            f"{gang['namespace']}/{gang['name']}",
            gang["queue"],
            f"{gang['members']} of {gang['min_member']}",
            Text(gang["verdict"], style=COLOURS.get(gang["verdict"], "")),
            f"{gang['reason']}: {gang['message']}",
        )
    return table


def _brief(amounts: dict[str, str]) -> str:
    return " ".join(f"{amount} {name}" for name, amount in amounts.items() if name != "pods") or "-"
