"""A plan laid out for a person: queues, gangs, who has to leave."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.model.resources import CPU, MEMORY, PODS, Resources, write_amount
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, QueueFigures, Standing, Ticket, Verdict

_COLOURS = {
    Standing.RUNNING: "green",
    Standing.ADMITTED: "bold green",
    Standing.WAITING: "yellow",
    Standing.INVALID: "red",
}
#: Wide enough for a message beside its gang where nobody says how wide the paper is.
_WIDTH = 140
_BAR = 12


def page(snapshot: Snapshot, plan: Plan) -> None:
    """Print *plan*."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    console.print(layout(snapshot, plan))


def layout(snapshot: Snapshot, plan: Plan) -> RenderableType:
    """Put the parts of the page together."""
    parts: list[RenderableType] = [_head(snapshot, plan), Text()]
    if plan.queues:
        parts += [_queues(plan), Text()]
    if plan.verdicts:
        parts.append(_gangs(snapshot, plan))
    if plan.evictions:
        parts += [Text(), _evictions(plan)]
    return Group(*parts)


def _head(snapshot: Snapshot, plan: Plan) -> Text:
    counts = dict.fromkeys(Standing, 0)
    for verdict in plan.verdicts.values():
        counts[verdict.standing] += 1
    head = Text(f"{_count(len(plan.verdicts), 'gang')}", style="bold")
    head.append(f" on {_count(len(snapshot.nodes.nodes), 'node')}: ", style="not bold")
    said = [(standing, number) for standing, number in counts.items() if number]
    for place, (standing, number) in enumerate(said):
        head.append(", " if place else "", style="not bold")
        head.append(f"{number} {standing.value}", style=_COLOURS[standing])
    return head


def _queues(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("QUEUE", "WEIGHT", "DESERVES", "USES", "WANTS", "SHARE"):
        table.add_column(name, justify="right" if name == "WEIGHT" else "left", no_wrap=True)
    for figures in plan.queues.values():
        table.add_row(
            figures.name,
            str(figures.weight),
            _amounts(figures.deserved),
            _amounts(figures.allocated),
            _amounts(figures.requested),
            _share(figures),
        )
    return table


def _share(figures: QueueFigures) -> Text:
    full = min(_BAR, round(figures.share * _BAR))
    bar = Text("█" * full, style="red" if figures.overused else "cyan")
    bar.append("░" * (_BAR - full), style="dim")
    return bar.append(f" {figures.share:.0%}", style="not dim")


def _gangs(snapshot: Snapshot, plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("GANG", "QUEUE", "MEMBERS", "VERDICT", "REASON"):
        table.add_column(name, justify="right" if name == "MEMBERS" else "left", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    for key, verdict in plan.verdicts.items():
        table.add_row(
            key,
            verdict.queue,
            f"{verdict.members}/{verdict.min_member}",
            Text(verdict.standing.value, style=_COLOURS[verdict.standing]),
            verdict.reason.value,
            _why(verdict, plan.tickets.get(key), snapshot),
        )
    return table


def _why(verdict: Verdict, ticket: Ticket | None, snapshot: Snapshot) -> Text:
    why = Text(verdict.message)
    if ticket is None:
        return why
    for word, places in (("on", ticket.placements), ("later on", ticket.pipelined)):
        if places:
            why.append(f"; {word} {_by_node(list(places.values()))}", style="dim")
    return why


def _by_node(nodes: list[str]) -> str:
    """Count by node: `n1 x4, n2`; a long list is cut."""
    counts = {name: nodes.count(name) for name in sorted(set(nodes))}
    said = [f"{name} x{number}" if number > 1 else name for name, number in counts.items()]
    return ", ".join(said[:6]) + (f" and {len(said) - 6} more nodes" if len(said) > 6 else "")


def _evictions(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("MUST LEAVE", "NODE", "ACTION", "FOR"):
        table.add_column(name, no_wrap=True)
    for order in plan.evictions:
        pod = Text(f"{order.namespace}/{order.name}", style="red")
        table.add_row(pod, order.node, order.action, order.beneficiary)
    return table


def _amounts(amounts: Resources) -> str:
    """Write amounts briefly: cpu and memory first, the rest by name, nothing as a dash."""
    first = [name for name in (CPU, MEMORY) if amounts.amount(name)]
    others = sorted(n for n, a in amounts.items() if a and n not in (CPU, MEMORY, PODS))
    said = [f"{_brief(name, amounts[name])} {name}" for name in (*first, *others)]
    return ", ".join(said) or "-"


def _brief(name: str, amount: int) -> str:
    """Round what would be long: a person compares 12.5Gi, not 13421772801."""
    exact = write_amount(name, amount)
    if len(exact) <= 6:
        return exact
    if name == CPU:
        return f"{amount / 1000:.4g}"
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.4g}{suffix}"
    return exact


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
