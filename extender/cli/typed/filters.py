"""Which gangs somebody wants to see: of a namespace, of a queue, for a reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from extender.cli.live.completion import queue_names
from extender.errors import BadInput
from extender.model.reason import Reason
from extender.plan.decision import Standing

Document = dict[str, Any]
Command: TypeAlias = Callable[..., Any]

#: Those that wait come first.
_ORDER = {"invalid": 0, "waiting": 1, "admitted": 2, "running": 3, "finished": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What is wanted; empty is everything."""

    namespace: str = ""
    queues: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    verdicts: frozenset[str] = frozenset()

    def of(self, gangs: Sequence[Document]) -> list[Document]:
        """Give those that are wanted, the ones that wait first."""
        return sorted(filter(self._wants, gangs), key=_by_need)

    def _wants(self, gang: Document) -> bool:
        return (
            (not self.namespace or gang["namespace"] == self.namespace)
            and (not self.queues or gang["queue"] in self.queues)
            and (not self.reasons or gang["reason"] in self.reasons)
            and (not self.verdicts or gang["verdict"] in self.verdicts)
        )


def filter_options(command: Command) -> Command:
    """Give *command* the flags that choose gangs: `queues`, `reasons` and `verdicts`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted(
    namespace: str,
    queues: Sequence[str],
    reasons: Sequence[str],
    verdicts: Sequence[str],
) -> Filter:
    """Read what the flags say."""
    return Filter(
        namespace=namespace,
        queues=frozenset(queues),
        reasons=frozenset(map(_reason, reasons)),
        verdicts=frozenset(verdicts),
    )


def _reason(text: str) -> str:
    known: dict[str, str] = {reason.value.lower(): reason.value for reason in Reason}
    if text.lower() in known:
        return known[text.lower()]
    near = difflib.get_close_matches(text.lower(), known, n=1)
    hint = f"; did you mean {known[near[0]]}" if near else "; docs/reasons.md has all"
    raise BadInput(f"--reason {text!r} is not a reason{hint}")


def _reasons(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [
        CompletionItem(reason.value, help=reason.meaning)
        for reason in Reason
        if reason.value.lower().startswith(typed.lower())
    ]


def _by_need(gang: Document) -> tuple[int, str, str]:
    return _ORDER.get(gang["verdict"], 9), gang["namespace"], gang["name"]


_OPTIONS = (
    click.option(
        "--queue",
        "queues",
        multiple=True,
        metavar="QUEUE",
        shell_complete=queue_names,
        help="Only gangs of this queue. May be repeated.",
    ),
    click.option(
        "--reason",
        "reasons",
        multiple=True,
        metavar="REASON",
        shell_complete=_reasons,
        help="Only gangs that stand so for this reason, such as NotEnoughRoom. May be repeated.",
    ),
    click.option(
        "--verdict",
        "verdicts",
        multiple=True,
        type=click.Choice([each.value for each in Standing]),
        help="Only gangs that stand so. May be repeated.",
    ),
)
