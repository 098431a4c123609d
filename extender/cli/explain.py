"""`gang-extender explain NS/GANG`: why it waits, who is ahead, what would let it start."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.cli.ask import ask, ops_url_option
from extender.cli.show import COLOURS, count, output_option, show
from extender.errors import BadInput

Document = dict[str, Any]

#: So many lines on room that is kept; the others are counted.
_SHOWN = 5


@click.command()
@click.argument("gang", metavar="NAMESPACE/GANG")
@ops_url_option
@output_option
def explain(gang: str, ops_url: str, output: str) -> None:
    """Say why a gang waits, and what would let it start.

    Exit code 1 when there is no such gang.
    """
    namespace, slash, name = gang.partition("/")
    if not slash or not namespace or not name:
        raise BadInput(f"{gang!r} is not a gang; write it like team-a/train")
    status, told = ask(ops_url, "gangs", namespace, name)
    if status == 404:
        click.echo(f"gang-extender: {told['error']}", err=True)
        sys.exit(1)
    show(told, output, lambda: Console(highlight=False, soft_wrap=True).print(page(told)))


def page(told: Document) -> RenderableType:
    """Lay an explanation out for a terminal."""
    parts: list[RenderableType] = [_head(told), _facts(told), *map(_need, told["needs"])]
    ahead = [f"{each['gang']} ({each['queue']}): {each['why']}" for each in told["ahead"]]
    if told["ahead_count"] > len(ahead):
        ahead.append(f"and {told['ahead_count'] - len(ahead)} more")
    parts += _list("ahead of it", ahead)
    parts += _list("asked to leave", [f"{v['pod']} on {v['node']}" for v in told["victims"]])
    parts += _list(
        "left alone", [f"{count(n, 'pod')}: {why}" for why, n in told["protected"].items()]
    )
    kept = [f"{_amounts(each['amounts'])}: {each['why']}" for each in told["kept"]]
    parts += _list("kept idle", [*kept[:_SHOWN], *_rest(kept)])
    parts += _list("would start with", told["would_start_with"])
    story = [f"{each['at'][11:19]}  {each['word']}: {each['text']}" for each in told["story"]]
    return Group(*parts, *_list("so far", story))


def _rest(lines: list[str]) -> list[str]:
    return [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []


def _head(told: Document) -> Text:
    text = Text()
    text.append(f"{told['namespace']}/{told['name']}", style="bold")
    text.append(f"  {told['verdict']}", style=COLOURS.get(told["verdict"], ""))
    if told["lasted_s"] is not None:
        text.append(f" for {_duration(told['lasted_s'])}", style="dim")
    return text.append(f"\n{told['reason']}: {told['message']}")


def _facts(told: Document) -> Table:
    table = Table.grid(padding=(0, 2))
    members = ", ".join(f"{n} {word}" for word, n in told["members_by_status"].items())
    table.add_row("members", f"{members or 'none'}; {told['min_member']} needed at once")
    table.add_row("priority", str(told["priority"]))
    figures = told["queue_figures"]
    table.add_row("queue", told["queue"] + (f", weight {figures['weight']}" if figures else ""))
    for word in ("deserved", "allocated", "requested", "borrowed") if figures else ():
        table.add_row(f"  {word}", _amounts(figures[word]))
    for each in told.get("schedulers", ()):
        table.add_row("scheduler", f"{each['name']}, {each['words']}")
    share = told["share_figures"]
    if share:
        table.add_row("namespace", f"{share['namespace']}, of that queue")
    for word in ("at_most", "at_least", "allocated", "requested") if share else ():
        table.add_row(f"  {word.replace('_', ' ')}", _amounts(share[word]))
    return table


def _need(need: Document) -> Text:
    members = count(need["members"], "member")
    text = Text(f"needs nodes for {members} of {_amounts(need['each'])} each; ")
    text.append(f"{need['slots']} fit now, {need['empty_slots']} on an empty cluster")
    for word, nodes in need["obstacles"].items():
        text.append(f"\n  {count(nodes, 'node')} {word}", style="dim")
    for near in need["nearest"]:
        text.append(f"\n  {near['node']} lacks {_amounts(near['lacks'])}", style="dim")
    return text


def _list(title: str, lines: list[str]) -> list[RenderableType]:
    if not lines:
        return []
    text = Text(title, style="bold")
    for line in lines:
        text.append(f"\n  {line}", style="not bold")
    return [text]


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "nothing"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
