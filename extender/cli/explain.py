"""`gang-extender explain GANG`: why it waits, who is ahead, what would let it start."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
from rich.text import Text

from extender.cli.completion import gang_names
from extender.cli.connect import Target, connect, target_options
from extender.cli.options import namespace_option, object_name
from extender.cli.output import (
    Columns,
    Terminal,
    coloured,
    count,
    print_document,
    print_error,
    safe_text,
    wide_output_option,
)
from extender.cli.schema import document, explanation

Document = dict[str, Any]

#: So many lines on room that is kept; the others are counted.
_SHOWN = 5
#: So often, a second apart, what is still being worked out is asked for.
_ASKED_AGAIN = 30


@click.command()
@click.argument("gang", metavar="GANG", shell_complete=gang_names)
@namespace_option
@target_options
@wide_output_option
def explain(gang: str, namespace: str, where: Target, output: str) -> None:
    """Say why a gang waits, and what would let it start.

    GANG is the name of a PodGroup or of a pod, also written podgroup/NAME, pod/NAME or
    NAMESPACE/NAME. Without a namespace it is that of the kubeconfig's context, as for kubectl.

    Exit code 1 when there is no such gang.
    """
    meant = object_name(gang, namespace, where)
    with connect(where) as address:
        told = explanation(address, meant)
        # Where thousands wait, what would let one of them start is not known at once.
        for _ in range(_ASKED_AGAIN):
            if told is None or not told.get("is_trying"):
                break
            time.sleep(1)
            told = explanation(address, meant)
    if told is None:
        what = {"gang": "there is no gang", "pod": "there is no pod of ours"}
        said = what.get(meant.kind, "there is no gang and no pod of ours by the name")
        listing = f"`gang-extender gangs -n {meant.namespace}` lists what there is"
        print_error(f"gang-extender: {said} {meant}; {listing}")
        sys.exit(1)
    print_document(
        document("Explanation", told),
        output,
        lambda: print_explanation(told, Terminal(), is_wide=output == "wide"),
    )


def print_explanation(told: Document, terminal: Terminal, *, is_wide: bool = False) -> None:
    """Print an explanation."""
    for part in page(told, is_wide=is_wide):
        if isinstance(part, Columns):
            part.print(terminal)
        else:
            terminal.lay_out(part)


def page(told: Document, *, is_wide: bool = False) -> list[Text | Columns]:
    """Lay an explanation out for a terminal; a wide one leaves nothing out."""
    parts: list[Text | Columns] = [_head(told), _facts(told), *map(_need, told["needs"])]
    if (others := told.get("needs_count", 0) - len(told["needs"])) > 0:
        parts.append(Text(f"needs nodes for members of {count(others, 'more size')}"))
    ahead = [f"{each['gang']} ({each['queue']}): {each['why']}" for each in told["ahead"]]
    if told["ahead_count"] > len(ahead):
        ahead.append(f"and {told['ahead_count'] - len(ahead)} more")
    parts += _list("ahead of it", ahead)
    parts += _list("asked to leave", [f"{v['pod']} on {v['node']}" for v in told["victims"]])
    parts += _list(
        "left alone", [f"{count(n, 'pod')}: {why}" for why, n in told["protected"].items()]
    )
    kept = [f"{_amounts(each['amounts'])}: {each['why']}" for each in told["kept"]]
    parts += _list("kept idle", kept if is_wide else [*kept[:_SHOWN], *_rest(kept)])
    parts += _list("will run", _estimate(told.get("estimate")))
    parts += _list("would start with", told["would_start_with"])
    story = [f"{each['at'][11:19]}  {each['word']}: {each['text']}" for each in told["story"]]
    return [*parts, *_list("so far", story)]


def _estimate(estimate: Document | None) -> list[str]:
    """Say when it starts, and what that does not count; an older extender says nothing."""
    if not estimate:
        return []
    return [estimate["words"], f"not counted: {estimate['not_counted']}"]


def _rest(lines: list[str]) -> list[str]:
    return [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []


def _head(told: Document) -> Text:
    text = Text()
    text.append_text(safe_text(f"{told['namespace']}/{told['name']}", style="bold"))
    text.append("  ").append_text(coloured(told["verdict"]))
    if told["lasted_s"] is not None:
        # Who is admitted has stopped waiting as far as we can do anything about it. An extender
        # that does not tell the reason's own time counts from the admission.
        waited = told["verdict"] == "admitted" and "reason_lasted_s" in told
        word = "after" if waited else "for"
        text.append(f" {word} {_duration(told['lasted_s'])}", style="dim")
    text.append("\n").append_text(safe_text(told["reason"]))
    lasted_s, reason_s = told["lasted_s"], told.get("reason_lasted_s")
    if reason_s is not None and _duration(reason_s) != _duration(lasted_s):
        text.append(f" for {_duration(reason_s)}", style="dim")
    return text.append_text(safe_text(f": {told['message']}"))


def _facts(told: Document) -> Columns:
    table = Columns()
    members = ", ".join(f"{n} {word}" for word, n in told["members_by_status"].items())
    table.add("members", f"{members or 'none'}; {told['min_member']} needed at once")
    table.add("priority", str(told["priority"]))
    figures = told["queue_figures"]
    table.add("queue", told["queue"] + (f", weight {figures['weight']}" if figures else ""))
    for word in ("deserved", "allocated", "requested", "borrowed") if figures else ():
        table.add(f"  {word}", _amounts(figures[word]))
    for each in told.get("schedulers", ()):
        table.add("scheduler", f"{each['name']}, {each['words']}")
    share = told["share_figures"]
    if share:
        table.add("namespace", f"{share['namespace']}, of that queue")
    for word in ("at_most", "at_least", "allocated", "requested") if share else ():
        table.add(f"  {word.replace('_', ' ')}", _amounts(share[word]))
    return table


def _need(need: Document) -> Text:
    members = count(need["members"], "member")
    text = safe_text(f"needs nodes for {members} of {_amounts(need['each'])} each; ")
    text.append(f"{need['slots']} fit now, {need['empty_slots']} on an empty cluster")
    for word, nodes in need["obstacles"].items():
        text.append("\n").append_text(safe_text(f"  {count(nodes, 'node')} {word}", style="dim"))
    for near in need["nearest"]:
        lacks = f"  {near['node']} lacks {_amounts(near['lacks'])}"
        text.append("\n").append_text(safe_text(lacks, style="dim"))
    return text


def _list(title: str, lines: list[str]) -> list[Text | Columns]:
    if not lines:
        return []
    text = Text(title, style="bold")
    for line in lines:
        text.append("\n").append_text(safe_text(f"  {line}", style="not bold"))
    return [text]


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "nothing"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
