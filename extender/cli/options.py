"""Which gangs somebody wants to see: of a namespace, of a queue, for a reason."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from extender.cli.completion import queue_names
from extender.cli.connect import Target
from extender.cli.kubectl import current_namespace
from extender.errors import InvalidInput
from extender.model.reason import Reason
from extender.planner.plan import GangStatus

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
    raise InvalidInput(f"--reason {text!r} is not a reason{hint}")


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
        help="Only gangs with this reason, such as InsufficientCapacity. May be repeated.",
    ),
    click.option(
        "--verdict",
        "verdicts",
        multiple=True,
        type=click.Choice([each.value for each in GangStatus]),
        help="Only gangs that stand so. May be repeated.",
    ),
)


_GROUPS = ("podgroup", "podgroups", "pg", "podgroup.scheduling.volcano.sh", "gang")
_PODS = ("pod", "pods", "po")
_EXAMPLE = "write it like train, podgroup/train or team-a/train"
#: What the API server takes for a name; those of pods that make a gang have a colon.
_NAME = re.compile("[a-z0-9A-Z]([-.:a-z0-9A-Z]{0,312}[a-z0-9A-Z])?")
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
namespace_option: Callable[..., Any] = click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAMESPACE",
    help="Of the gang; without it that of the kubeconfig's context.",
)
all_namespaces_option: Callable[..., Any] = click.option(
    "-A", "--all-namespaces", is_flag=True, help="Of every namespace."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """What somebody means: a gang, a pod, or, where *kind* is empty, whichever there is."""

    namespace: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def object_name(text: str, namespace: str, where: Target) -> ObjectName:
    """Read what *text* names; *namespace* is what the flag says, if it does."""
    *before, name = text.split("/")
    kind = ""
    if before and before[0].lower() in (*_GROUPS, *_PODS):
        kind = "pod" if before.pop(0).lower() in _PODS else "gang"
    if len(before) > 1 or not _NAME.fullmatch(name):
        raise InvalidInput(f"{text!r} is not a gang; {_EXAMPLE}")
    said = checked(namespace)
    if before:
        if not _NAMESPACE.fullmatch(before[0]):
            raise InvalidInput(f"{text!r} is not a gang; {_EXAMPLE}")
        if said and said != before[0]:
            raise InvalidInput(f"{text} is in namespace {before[0]}, and --namespace says {said}")
        said = before[0]
    return ObjectName(namespace=said or in_use(where), name=name, kind=kind)


def checked(namespace: str) -> str:
    """Give back what can be the name of a namespace."""
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise InvalidInput(f"--namespace {namespace!r} cannot be the name of a namespace")
    return namespace


def in_use(where: Target) -> str:
    """Give the namespace that kubectl would take."""
    return current_namespace(where.kubeconfig, where.context)


def moment(text: str, flag: str) -> float:
    """Give the seconds since the epoch, whatever the time zone of this machine is."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{flag}: {text!r} is not a time; write 2026-01-31T12:00:00Z") from error


class Seconds(click.FloatRange):
    """A range of seconds; `nan` is a float too, but no time."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Give the number, or say what it should have been."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return float(number)
