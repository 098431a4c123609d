"""`gang-extender queues`: what queues deserve, use and want."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from extender.cli.live import answers
from extender.cli.printed.columns import Columns
from extender.cli.printed.documents import document
from extender.cli.printed.terminal import Terminal
from extender.cli.reach.way import reached
from extender.cli.reach.whereabouts import Whereabouts, reach_options
from extender.cli.show import show, wide_output_option

Document = dict[str, Any]

_NUMBERS = ("WEIGHT", "SHARE", "WAITING", "RUNNING")


@click.command()
@reach_options
@wide_output_option
def queues(where: Whereabouts, output: str) -> None:
    """List queues, what they deserve, use and want, and how many gangs wait in them."""
    with reached(where) as address:
        found = counted(answers.plan(address))
    listing = document("QueueList", {"items": found})
    show(listing, output, lambda: _table(found, is_wide=output == "wide").print(Terminal()))


def counted(plan: Document) -> list[Document]:
    """Give the queues of *plan*, each with how many of its gangs wait and run."""
    found = []
    for queue in plan["queues"]:
        mine = [gang["verdict"] for gang in plan["gangs"] if gang["queue"] == queue["name"]]
        waiting = sum(verdict in ("waiting", "invalid") for verdict in mine)
        found.append({**queue, "waiting": waiting, "running": mine.count("running")})
    return found


def _table(queues: list[Document], *, is_wide: bool) -> Columns:
    more = ("BORROWED", "OWN") if is_wide else ()
    columns = Columns(
        *("NAME", "WEIGHT", "SHARE", "WAITING", "RUNNING", "DESERVED", "USED", "WANTED", *more),
        numbers=_NUMBERS,
    )
    for queue in queues:
        words = ("deserved", "allocated", "requested", *(("borrowed", "own") if is_wide else ()))
        columns.add(
            queue["name"],
            queue["weight"],
            share(queue),
            queue["waiting"],
            queue["running"],
            *(brief(queue[word]) for word in words),
        )
    return columns


def share(queue: Document) -> Text:
    """Write how much of its due a queue uses, in red when it is all of it."""
    return Text(f"{queue['share']:.0%}", style="red" if queue["overused"] else "")


def brief(amounts: dict[str, str]) -> str:
    """Write amounts without those of pods; nothing is a dash."""
    return " ".join(f"{amount} {name}" for name, amount in amounts.items() if name != "pods") or "-"
