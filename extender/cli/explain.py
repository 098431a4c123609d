"""`gang-extender explain GANG`: why it waits, what is ahead of it, what would let it start."""

from __future__ import annotations

import sys
import time

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
from extender.cli.schema import document, explanation, gang_of_owner
from extender.web import documents

#: The limit of lines on capacity kept for others; the rest is counted.
_SHOWN = 5
#: How often to ask again, a second apart, for remedies that are still being computed.
_MAX_RETRIES = 30


@click.command()
@click.argument("gang", metavar="GANG", shell_complete=gang_names)
@namespace_option
@target_options
@wide_output_option
def explain(gang: str, namespace: str, where: Target, output: str) -> None:
    """Explain why a gang waits, and what would let it start.

    GANG is the name of a PodGroup, a pod or a Job, also written podgroup/NAME, pod/NAME or
    NAMESPACE/NAME. The default namespace is that of the kubeconfig's context, as for kubectl.

    Exit code 1 when there is no such gang.
    """
    target = object_name(gang, namespace, where)
    with connect(where) as address:
        answer = explanation(address, target)
        if answer is None and target.kind != "pod" and (found := gang_of_owner(address, target)):
            target = found
            answer = explanation(address, target)
        # Where thousands of gangs wait, the remedies of one take a while to compute.
        for _ in range(_MAX_RETRIES):
            if answer is None or not answer.is_trying:
                break
            time.sleep(1)
            answer = explanation(address, target)
    if answer is None:
        messages = {"gang": "there is no gang", "pod": "there is no pod of our schedulers"}
        sentence = messages.get(target.kind, "there is no gang and no pod of our schedulers named")
        listing = f"`gang-extender gangs -n {target.namespace}` lists all gangs"
        print_error(f"gang-extender: {sentence} {target}; {listing}")
        sys.exit(1)
    print_document(
        document(answer),
        output,
        lambda: print_explanation(answer, Terminal(), is_wide=output == "wide"),
    )


def print_explanation(
    answer: documents.Explanation, terminal: Terminal, *, is_wide: bool = False
) -> None:
    """Print an explanation for a person."""
    for part in page(answer, is_wide=is_wide):
        if isinstance(part, Columns):
            part.print(terminal)
        else:
            terminal.lay_out(part)


def page(answer: documents.Explanation, *, is_wide: bool = False) -> list[Text | Columns]:
    """Return an explanation as text and tables; a wide one has all lines."""
    parts: list[Text | Columns] = [_head(answer), _facts(answer), *map(_need, answer.needs)]
    if (others := answer.needs_count - len(answer.needs)) > 0:
        parts.append(Text(f"needs nodes for members of {count(others, 'more size')}"))
    ahead = [f"{each.gang} ({each.queue}): {each.why}" for each in answer.ahead]
    if answer.ahead_count > len(ahead):
        ahead.append(f"and {answer.ahead_count - len(ahead)} more")
    parts += _list("ahead of it", ahead)
    parts += _list("to be evicted", [f"{v.pod} on {v.node}" for v in answer.victims])
    parts += _list(
        "protected", [f"{count(n, 'pod')}: {why}" for why, n in answer.protected.items()]
    )
    kept = [f"{_amounts(each.amounts)}: {each.why}" for each in answer.held]
    parts += _list("kept idle", kept if is_wide else [*kept[:_SHOWN], *_rest(kept)])
    parts += _list("will run", _estimate(answer.estimate))
    parts += _list("would start with", answer.would_start_with)
    story = [f"{each.at[11:19]}  {each.reason}: {each.message}" for each in answer.history]
    return [*parts, *_list("so far", story)]


def _estimate(estimate: documents.Estimate | None) -> list[str]:
    """Return when it starts, and what that does not count; older extenders send none."""
    return [estimate.message, f"not counted: {estimate.not_counted}"] if estimate else []


def _rest(lines: list[str]) -> list[str]:
    return [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []


def _head(answer: documents.Explanation) -> Text:
    text = Text()
    text.append_text(safe_text(f"{answer.namespace}/{answer.name}", style="bold"))
    text.append("  ").append_text(coloured(answer.verdict))
    if answer.lasted_s is not None:
        # An admitted gang waits no more as far as we can influence it. An extender that does not
        # send the time of the reason counts from the admission.
        waited = answer.verdict == "admitted" and answer.reason_lasted_s is not None
        preposition = "after" if waited else "for"
        text.append(f" {preposition} {_duration(answer.lasted_s)}", style="dim")
    text.append("\n").append_text(safe_text(answer.reason))
    lasted_s, reason_s = answer.lasted_s, answer.reason_lasted_s
    if reason_s is not None and (lasted_s is None or _duration(reason_s) != _duration(lasted_s)):
        text.append(f" for {_duration(reason_s)}", style="dim")
    return text.append_text(safe_text(f": {answer.message}"))


def _facts(answer: documents.Explanation) -> Columns:
    table = Columns()
    members = ", ".join(f"{n} {status}" for status, n in answer.members_by_status.items())
    table.add("members", f"{members or 'none'}; {answer.min_member} needed at once")
    table.add("priority", str(answer.priority))
    figures = answer.queue_figures
    table.add("queue", answer.queue + (f", weight {figures.weight}" if figures else ""))
    for name in ("deserved", "allocated", "requested", "borrowed") if figures else ():
        table.add(f"  {name}", _amounts(getattr(figures, name)))
    for each in answer.schedulers:
        table.add("scheduler", f"{each.name}, {each.message}")
    share = answer.share_figures
    if share:
        table.add("namespace", f"{share.namespace}, of that queue")
    for name in ("at_most", "at_least", "allocated", "requested") if share else ():
        table.add(f"  {name.replace('_', ' ')}", _amounts(getattr(share, name)))
    return table


def _need(need: documents.Need) -> Text:
    members = count(need.members, "member")
    text = safe_text(f"needs nodes for {members} of {_amounts(need.each)} each; ")
    text.append(f"{need.slots} fit now, {need.empty_slots} on an empty cluster")
    for obstacle, nodes in need.obstacles.items():
        text.append("\n").append_text(
            safe_text(f"  {count(nodes, 'node')} {obstacle}", style="dim")
        )
    for near in need.nearest:
        lacks = f"  {near.node} lacks {_amounts(near.lacks)}"
        text.append("\n").append_text(safe_text(lacks, style="dim"))
    return text


def _list(title: str, lines: list[str]) -> list[Text | Columns]:
    if not lines:
        return []
    text = Text(title, style="bold")
    for line in lines:
        text.append("\n").append_text(safe_text(f"  {line}", style="not bold"))
    return [text]


def _amounts(amounts: documents.Amounts) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "nothing"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
