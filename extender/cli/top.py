"""`gang-extender top`: queues and gangs in the terminal, live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from extender.cli.live import answers
from extender.cli.live.queues import brief, counted, share
from extender.cli.printed.columns import Columns
from extender.cli.printed.documents import document
from extender.cli.printed.terminal import Terminal, cell, sealed
from extender.cli.reach.way import reached
from extender.cli.reach.whereabouts import Whereabouts, reach_options
from extender.cli.show import coloured, show, wide_output_option
from extender.cli.typed.filters import Filter, filter_options, wanted
from extender.cli.typed.names import all_namespaces_option, checked
from extender.cli.typed.seconds import Seconds
from extender.errors import BadInput

Document = dict[str, Any]

#: So many lines on room that is kept; the others are counted.
_KEPT = 5
#: A screenful of gangs, where somebody looks at a screen.
_SCREENFUL = 30


@click.command()
@click.option(
    "-n", "--namespace", default="", metavar="NAMESPACE", help="Only gangs of this namespace."
)
@all_namespaces_option
@filter_options
@reach_options
@wide_output_option
@click.option("--once", is_flag=True, help="Print one picture and end, as in a pipe.")
@click.option("--every-s", default=1.0, show_default=True, type=Seconds(min=0.1), help="Seconds.")
@click.option(
    "--gangs",
    type=click.IntRange(min=0),
    help=f"How many gangs to show; {_SCREENFUL} on a screen, all in a pipe.",
)
def top(
    namespace: str,
    all_namespaces: bool,
    where: Whereabouts,
    output: str,
    once: bool,
    every_s: float,
    gangs: int | None,
    **choice: Any,
) -> None:
    """Show what queues deserve, use and want, and where gangs stand.

    Gangs of every namespace, unless one is named. Into a pipe one picture is printed, with all of
    them. -o wide leaves out nothing of what is kept for whom.
    """
    choose = wanted("" if all_namespaces else checked(namespace), **choice)
    terminal, is_wide = Terminal(), output == "wide"
    most = gangs if gangs is not None or not terminal.is_terminal else _SCREENFUL
    with reached(where) as address:
        first = _look(address, choose)
    if once or output in ("json", "yaml") or not terminal.is_terminal:
        lines = _lines(first, most, terminal, is_wide=is_wide)
        show(document("Picture", first), output, lambda: terminal.lay_out(*lines))
        return
    with suppress(KeyboardInterrupt), Live(console=terminal, screen=True) as live:
        for frame in frames(where, choose, most, terminal, is_wide=is_wide):
            live.update(frame)
            time.sleep(every_s)


def frames(
    where: Whereabouts,
    choose: Filter,
    gangs: int | None,
    terminal: Terminal,
    *,
    is_wide: bool = False,
) -> Iterator[RenderableType]:
    """Give one picture after the other; an extender that restarts or moves does not end them."""
    while True:
        try:
            with reached(where, quietly=True) as address:
                while True:
                    seen = _look(address, choose)
                    lines = _lines(seen, gangs, terminal, is_wide=is_wide)
                    yield Group(*map(sealed, lines))
        except BadInput as error:
            yield cell(error, style="red")


def _look(address: Any, choose: Filter) -> Document:
    """Give the plan with the gangs that are wanted."""
    plan = answers.plan(address)
    return {**plan, "queues": counted(plan), "gangs": choose.of(plan["gangs"])}


def _lines(
    plan: Document, gangs: int | None, terminal: Terminal, *, is_wide: bool
) -> Iterator[Text]:
    """Lay the plan out as tables."""
    width = terminal.columns
    yield from _queues(plan).lines(terminal, width)
    yield Text()
    if plan["shares"]:
        yield from _shares(plan).lines(terminal, width)
        yield Text()
    yield from _idle(plan, len(plan["kept"]) if is_wide else _KEPT)
    yield Text()
    yield from _gangs(plan["gangs"][:gangs]).lines(terminal, width)
    for each in _mute(plan):
        yield cell(f"scheduler {each['name']}: {each['complaint']}", style="red")
    hidden = len(plan["gangs"]) - len(plan["gangs"][:gangs])
    if hidden:
        yield Text(f"and {hidden} more gangs", style="dim")


def _mute(plan: Document) -> list[Document]:
    """Name the schedulers that somebody waits for in vain."""
    missed = ("silent", "elsewhere")
    return [each for each in plan.get("schedulers", ()) if each["voice"] in missed]


def _queues(plan: Document) -> Columns:
    numbers = ("weight", "share", "waiting", "running")
    words = ("deserved", "used", "borrowed", "wanted")
    table = Columns(
        *("queue", "weight", *words, "share", "waiting", "running"),
        numbers=numbers,
        head_style="bold",
        title=f"queues, cycle {plan['generation']}",
    )
    for queue in plan["queues"]:
        table.add(
            queue["name"],
            queue["weight"],
            *(brief(queue[word]) for word in ("deserved", "allocated", "borrowed", "requested")),
            share(queue),
            queue["waiting"],
            queue["running"],
        )
    return table


def _shares(plan: Document) -> Columns:
    table = Columns(
        *("queue", "namespace", "at least", "used", "at most", "wanted"),
        head_style="bold",
        title="namespaces in queues",
    )
    for each in plan["shares"]:
        table.add(
            each["queue"],
            each["namespace"],
            *(brief(each[word]) for word in ("at_least", "allocated", "at_most", "requested")),
        )
    return table


def _idle(plan: Document, most: int) -> Iterator[Text]:
    """Say what is idle, and what of it is kept for whom; nobody who waits can use the rest."""
    yield cell(f"idle: {brief(plan['idle'])}")
    for each in plan["kept"][:most]:
        yield cell(f"  {brief(each['amounts'])} {each['why']}", style="dim")
    hidden = len(plan["kept"]) - most
    if hidden > 0:
        yield Text(f"  and {hidden} more", style="dim")


def _gangs(gangs: list[Document]) -> Columns:
    table = Columns("gang", "queue", "members", "stands", "why", head_style="bold", title="gangs")
    for gang in gangs:
        table.add(
            f"{gang['namespace']}/{gang['name']}",
            gang["queue"],
            f"{gang['members']} of {gang['min_member']}",
            coloured(gang["verdict"]),
            f"{gang['reason']}: {gang['message']}",
        )
    return table
