"""`gang-extender gangs`, `queues` and `top`: gangs and queues as tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from extender.cli import schema
from extender.cli.connect import Address, Target, connect, target_options
from extender.cli.options import (
    Filter,
    Seconds,
    all_namespaces_option,
    checked_namespace,
    filter_options,
    gang_filter,
    namespace_option,
    target_namespace,
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
from extender.cli.schema import CountedQueue, GangList, Picture, QueueList, document
from extender.errors import InvalidInput
from extender.web import documents


@click.command()
@namespace_option
@all_namespaces_option
@filter_options
@target_options
@wide_output_option
def gangs(namespace: str, all_namespaces: bool, where: Target, output: str, **choice: Any) -> None:
    """List gangs with their verdicts and reasons, waiting ones first.

    Gangs of the kubeconfig's current namespace, of the one that is named, or of all.
    """
    only_namespace = (
        "" if all_namespaces else checked_namespace(namespace) or target_namespace(where)
    )
    matching = gang_filter(only_namespace, **choice)
    with connect(where) as address:
        found = matching.of(schema.plan(address).gangs)
    print_document(document(GangList(found)), output, lambda: _print(found, only_namespace, output))


def _print(found: list[documents.Gang], namespace: str, output: str) -> None:
    if not found:
        place = f"namespace {namespace}" if namespace else "any namespace"
        print_error(f"no such gangs in {place}")
        return
    table(found, with_namespace=not namespace, is_wide=output == "wide").print(Terminal())


def table(gangs: list[documents.Gang], *, with_namespace: bool, is_wide: bool) -> Columns:
    """Return a table with a line per gang."""
    headers = ("NAMESPACE",) if with_namespace else ()
    wide_columns = ("PHASE", "SHARE", "NODES") if is_wide else ()
    columns = Columns(
        *headers, "NAME", "QUEUE", "MEMBERS", "VERDICT", "REASON", *wide_columns, "WHY"
    )
    for gang in gangs:
        nodes = sorted({*gang.placements.values(), *gang.pipelined.values()})
        columns.add(
            *((gang.namespace,) if with_namespace else ()),
            gang.name,
            gang.queue,
            f"{gang.members}/{gang.min_member}",
            coloured(gang.verdict),
            gang.reason,
            *((gang.phase, f"{gang.share:.0%}", " ".join(nodes) or "-") if is_wide else ()),
            gang.message,
        )
    return columns


_NUMBERS = ("WEIGHT", "SHARE", "WAITING", "RUNNING")
_HEADERS = ("NAME", *_NUMBERS, "DESERVED", "USED", "WANTED")


@click.command()
@target_options
@wide_output_option
def queues(where: Target, output: str) -> None:
    """List queues, what they deserve, use and request, and how many gangs wait in them."""
    with connect(where) as address:
        found = counted(schema.plan(address))
    print_document(
        document(QueueList(found)),
        output,
        lambda: _table(found, is_wide=output == "wide").print(Terminal()),
    )


def counted(plan: documents.Plan) -> list[CountedQueue]:
    """Return the queues of *plan*, each with the number of its waiting and running gangs."""
    found = []
    for queue in plan.queues:
        verdicts = [gang.verdict for gang in plan.gangs if gang.queue == queue.name]
        waiting = sum(verdict in ("waiting", "invalid") for verdict in verdicts)
        running = verdicts.count("running")
        found.append(CountedQueue(**asdict(queue), waiting=waiting, running=running))
    return found


def _table(queues: list[CountedQueue], *, is_wide: bool) -> Columns:
    wide_columns = ("BORROWED", "OWN") if is_wide else ()
    columns = Columns(*_HEADERS, *wide_columns, numbers=_NUMBERS)
    for queue in queues:
        wide_amounts = (queue.borrowed, queue.own) if is_wide else ()
        columns.add(
            queue.name,
            queue.weight,
            share(queue),
            queue.waiting,
            queue.running,
            *map(brief, (queue.deserved, queue.allocated, queue.requested, *wide_amounts)),
        )
    return columns


def share(queue: documents.Queue) -> Text:
    """Return the part of its deserved amounts that a queue uses, in red when it uses all."""
    return Text(f"{queue.share:.0%}", style="red" if queue.overused else "")


def brief(amounts: documents.Amounts) -> str:
    """Return amounts without pods; a dash for none."""
    return " ".join(f"{amount} {name}" for name, amount in amounts.items() if name != "pods") or "-"


#: The limit of lines on capacity kept for others; the rest is counted.
_MAX_KEPT = 5
#: The default number of gangs on a terminal.
_SCREENFUL = 30


@click.command()
@click.option(
    "-n", "--namespace", default="", metavar="NAMESPACE", help="Only gangs of this namespace."
)
@all_namespaces_option
@filter_options
@target_options
@wide_output_option
@click.option("--once", is_flag=True, help="Print once and exit, as in a pipe.")
@click.option(
    "--every-s", default=1.0, show_default=True, type=Seconds(min=0.1), help="Refresh interval."
)
@click.option(
    "--gangs",
    type=click.IntRange(min=0),
    help=f"The number of gangs to show; {_SCREENFUL} on a terminal, all in a pipe.",
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
    """Show what queues deserve, use and request, and the verdicts of gangs, refreshed.

    Gangs of every namespace, unless one is named. Into a pipe all of them are printed once. -o wide
    also lists all capacity that is kept for others.
    """
    matching = gang_filter("" if all_namespaces else checked_namespace(namespace), **choice)
    terminal, is_wide = Terminal(), output == "wide"
    limit = gangs if gangs is not None or not terminal.is_terminal else _SCREENFUL
    with connect(where) as address:
        first = _filtered_plan(address, matching)
    if once or output in ("json", "yaml") or not terminal.is_terminal:
        lines = _lines(first, limit, terminal, is_wide=is_wide)
        print_document(document(first), output, lambda: terminal.lay_out(*lines))
        return
    with suppress(KeyboardInterrupt), Live(console=terminal, screen=True) as live:
        for frame in frames(where, matching, limit, terminal, is_wide=is_wide):
            live.update(frame)
            time.sleep(every_s)


def frames(
    where: Target,
    matching: Filter,
    gangs: int | None,
    terminal: Terminal,
    *,
    is_wide: bool = False,
) -> Iterator[RenderableType]:
    """Yield one frame after the other, also when the extender restarts or moves."""
    while True:
        try:
            with connect(where, quietly=True) as address:
                while True:
                    plan = _filtered_plan(address, matching)
                    lines = _lines(plan, gangs, terminal, is_wide=is_wide)
                    yield Group(*map(sealed, lines))
        except InvalidInput as error:
            yield safe_text(error, style="red")


def _filtered_plan(address: Address, matching: Filter) -> Picture:
    """Return the plan with the gangs that the filter admits."""
    plan = schema.plan(address)
    return Picture(**{**asdict(plan), "queues": counted(plan), "gangs": matching.of(plan.gangs)})


def _lines(
    plan: Picture, gangs: int | None, terminal: Terminal, *, is_wide: bool
) -> Iterator[Text]:
    """Return the plan as lines of tables."""
    width = terminal.columns
    yield from _queues(plan).lines(terminal, width)
    yield Text()
    if plan.shares:
        yield from _shares(plan).lines(terminal, width)
        yield Text()
    yield from _idle(plan, len(plan.held) if is_wide else _MAX_KEPT)
    yield Text()
    yield from _gangs(plan.gangs[:gangs]).lines(terminal, width)
    for each in _unresponsive(plan):
        yield safe_text(f"scheduler {each.name}: {each.problem}", style="red")
    hidden = len(plan.gangs) - len(plan.gangs[:gangs])
    if hidden:
        yield Text(f"and {hidden} more gangs", style="dim")


def _unresponsive(plan: Picture) -> list[documents.Scheduler]:
    """Return the schedulers that pods wait for and that do not respond here."""
    states = ("silent", "elsewhere")
    return [each for each in plan.schedulers if each.liveness in states]


def _queues(plan: Picture) -> Columns:
    numbers = ("weight", "share", "waiting", "running")
    fields = ("deserved", "used", "borrowed", "wanted")
    table = Columns(
        *("queue", "weight", *fields, "share", "waiting", "running"),
        numbers=numbers,
        head_style="bold",
        title=f"queues, cycle {plan.generation}",
    )
    for queue in plan.queues:
        table.add(
            queue.name,
            queue.weight,
            *map(brief, (queue.deserved, queue.allocated, queue.borrowed, queue.requested)),
            share(queue),
            queue.waiting,
            queue.running,
        )
    return table


def _shares(plan: Picture) -> Columns:
    table = Columns(
        *("queue", "namespace", "at least", "used", "at most", "wanted"),
        head_style="bold",
        title="namespaces in queues",
    )
    for each in plan.shares:
        table.add(
            each.queue,
            each.namespace,
            *map(brief, (each.at_least, each.allocated, each.at_most, each.requested)),
        )
    return table


def _idle(plan: Picture, limit: int) -> Iterator[Text]:
    """Yield the idle capacity, and what of it is kept for others; other gangs can use the rest."""
    yield safe_text(f"idle: {brief(plan.idle)}")
    for each in plan.held[:limit]:
        yield safe_text(f"  {brief(each.amounts)} {each.why}", style="dim")
    hidden = len(plan.held) - limit
    if hidden > 0:
        yield Text(f"  and {hidden} more", style="dim")


def _gangs(gangs: list[documents.Gang]) -> Columns:
    table = Columns("gang", "queue", "members", "verdict", "why", head_style="bold", title="gangs")
    for gang in gangs:
        table.add(
            f"{gang.namespace}/{gang.name}",
            gang.queue,
            f"{gang.members} of {gang.min_member}",
            coloured(gang.verdict),
            f"{gang.reason}: {gang.message}",
        )
    return table
