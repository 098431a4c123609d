"""`gang-extender gangs`: where gangs stand and why, those that wait first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from extender.cli import schema
from extender.cli.connect import Target, connect, target_options
from extender.cli.options import (
    Filter,
    Seconds,
    all_namespaces_option,
    checked,
    filter_options,
    in_use,
    namespace_option,
    wanted,
)
from extender.cli.output import (
    Columns,
    Terminal,
    coloured,
    print_document,
    print_error,
    safe_text,
    sealed,
    wide_output_option,
)
from extender.cli.schema import document
from extender.errors import InvalidInput

Document = dict[str, Any]


@click.command()
@namespace_option
@all_namespaces_option
@filter_options
@target_options
@wide_output_option
def gangs(namespace: str, all_namespaces: bool, where: Target, output: str, **choice: Any) -> None:
    """List gangs, where they stand and why.

    Those of the namespace of the kubeconfig's context, of the one that is named, or of all.
    """
    chosen = "" if all_namespaces else checked(namespace) or in_use(where)
    choose = wanted(chosen, **choice)
    with connect(where) as address:
        found = choose.of(schema.plan(address)["gangs"])
    print_document(
        document("GangList", {"items": found}), output, lambda: _print(found, chosen, output)
    )


def _print(found: list[Document], namespace: str, output: str) -> None:
    if not found:
        place = f"namespace {namespace}" if namespace else "any namespace"
        print_error(f"no such gangs in {place}")
        return
    table(found, with_namespace=not namespace, is_wide=output == "wide").print(Terminal())


def table(gangs: list[Document], *, with_namespace: bool, is_wide: bool) -> Columns:
    """Lay gangs out, one on a line."""
    heads = ("NAMESPACE",) if with_namespace else ()
    more = ("PHASE", "SHARE", "NODES") if is_wide else ()
    columns = Columns(*heads, "NAME", "QUEUE", "MEMBERS", "VERDICT", "REASON", *more, "WHY")
    for gang in gangs:
        nodes = sorted({*gang["placements"].values(), *gang["pipelined"].values()})
        columns.add(
            *((gang["namespace"],) if with_namespace else ()),
            gang["name"],
            gang["queue"],
            f"{gang['members']}/{gang['min_member']}",
            coloured(gang["verdict"]),
            gang["reason"],
            *((gang["phase"], f"{gang['share']:.0%}", " ".join(nodes) or "-") if is_wide else ()),
            gang["message"],
        )
    return columns


_NUMBERS = ("WEIGHT", "SHARE", "WAITING", "RUNNING")


@click.command()
@target_options
@wide_output_option
def queues(where: Target, output: str) -> None:
    """List queues, what they deserve, use and want, and how many gangs wait in them."""
    with connect(where) as address:
        found = counted(schema.plan(address))
    listing = document("QueueList", {"items": found})
    print_document(
        listing, output, lambda: _table(found, is_wide=output == "wide").print(Terminal())
    )


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
@target_options
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
    where: Target,
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
    with connect(where) as address:
        first = _look(address, choose)
    if once or output in ("json", "yaml") or not terminal.is_terminal:
        lines = _lines(first, most, terminal, is_wide=is_wide)
        print_document(document("Picture", first), output, lambda: terminal.lay_out(*lines))
        return
    with suppress(KeyboardInterrupt), Live(console=terminal, screen=True) as live:
        for frame in frames(where, choose, most, terminal, is_wide=is_wide):
            live.update(frame)
            time.sleep(every_s)


def frames(
    where: Target,
    choose: Filter,
    gangs: int | None,
    terminal: Terminal,
    *,
    is_wide: bool = False,
) -> Iterator[RenderableType]:
    """Give one picture after the other; an extender that restarts or moves does not end them."""
    while True:
        try:
            with connect(where, quietly=True) as address:
                while True:
                    seen = _look(address, choose)
                    lines = _lines(seen, gangs, terminal, is_wide=is_wide)
                    yield Group(*map(sealed, lines))
        except InvalidInput as error:
            yield safe_text(error, style="red")


def _look(address: Any, choose: Filter) -> Document:
    """Give the plan with the gangs that are wanted."""
    plan = schema.plan(address)
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
        yield safe_text(f"scheduler {each['name']}: {each['complaint']}", style="red")
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
    yield safe_text(f"idle: {brief(plan['idle'])}")
    for each in plan["kept"][:most]:
        yield safe_text(f"  {brief(each['amounts'])} {each['why']}", style="dim")
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
