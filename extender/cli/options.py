"""Options that commands share: filters of gangs, object names, namespaces, times."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
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
from extender.settings import NAMESPACE_NAME
from extender.web.documents import Gang

Command: TypeAlias = Callable[..., Any]
#: Waiting gangs come first.
_ORDER = {"invalid": 0, "waiting": 1, "admitted": 2, "running": 3, "finished": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filters of gangs; an empty one admits everything."""

    namespace: str = ""
    queues: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    verdicts: frozenset[str] = frozenset()

    def of(self, gangs: Iterable[Gang]) -> list[Gang]:
        """Return the gangs that match, waiting ones first."""
        return sorted(filter(self._matches, gangs), key=_sort_key)

    def _matches(self, gang: Gang) -> bool:
        return (
            (not self.namespace or gang.namespace == self.namespace)
            and (not self.queues or gang.queue in self.queues)
            and (not self.reasons or gang.reason in self.reasons)
            and (not self.verdicts or gang.verdict in self.verdicts)
        )


def filter_options(command: Command) -> Command:
    """Add the flags that filter gangs to *command*: `queues`, `reasons` and `verdicts`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gang_filter(
    namespace: str,
    queues: Sequence[str],
    reasons: Sequence[str],
    verdicts: Sequence[str],
) -> Filter:
    """Return the filter of these flags."""
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
    hint = f"; did you mean {known[near[0]]}" if near else "; docs/reference/reasons.md has all"
    raise InvalidInput(f"--reason {text!r} is not a reason{hint}")


def _reasons(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [
        CompletionItem(reason.value, help=reason.meaning)
        for reason in Reason
        if reason.value.lower().startswith(typed.lower())
    ]


def _sort_key(gang: Gang) -> tuple[int, str, str]:
    return _ORDER.get(gang.verdict, 9), gang.namespace, gang.name


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
        help="Only gangs with this verdict. May be repeated.",
    ),
)


_GROUPS = ("podgroup", "podgroups", "pg", "podgroup.scheduling.volcano.sh", "gang")
_PODS = ("pod", "pods", "po")
_EXAMPLE = "write it like train, podgroup/train or team-a/train"
#: What the API server accepts as a name; names of implicit PodGroups have a colon.
_NAME = re.compile("[a-z0-9A-Z]([-.:a-z0-9A-Z]{0,312}[a-z0-9A-Z])?")
namespace_option: Callable[..., Any] = click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAMESPACE",
    help="The namespace of the gang; by default that of the kubeconfig's context.",
)
all_namespaces_option: Callable[..., Any] = click.option(
    "-A", "--all-namespaces", is_flag=True, help="Gangs of every namespace."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """The name of a gang or a pod; of either where *kind* is empty."""

    namespace: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def object_name(text: str, namespace: str, where: Target) -> ObjectName:
    """Parse *text* as the name of a gang or a pod; *namespace* is the value of --namespace."""
    *before, name = text.split("/")
    kind = ""
    if before and before[0].lower() in (*_GROUPS, *_PODS):
        kind = "pod" if before.pop(0).lower() in _PODS else "gang"
    if len(before) > 1 or not _NAME.fullmatch(name):
        raise InvalidInput(f"{text!r} is not a gang; {_EXAMPLE}")
    given = checked_namespace(namespace)
    if before:
        if not NAMESPACE_NAME.fullmatch(before[0]):
            raise InvalidInput(f"{text!r} is not a gang; {_EXAMPLE}")
        if given and given != before[0]:
            raise InvalidInput(f"{text} is in namespace {before[0]}, and --namespace is {given}")
        given = before[0]
    return ObjectName(namespace=given or target_namespace(where), name=name, kind=kind)


def checked_namespace(namespace: str) -> str:
    """Return *namespace* if it is a valid name; raise otherwise."""
    if namespace and not NAMESPACE_NAME.fullmatch(namespace):
        raise InvalidInput(f"--namespace {namespace!r} cannot be the name of a namespace")
    return namespace


def target_namespace(where: Target) -> str:
    """Return the current namespace of kubectl."""
    return current_namespace(where.kubeconfig, where.context)


def parse_time(text: str, flag: str) -> float:
    """Parse a time into seconds since the epoch; without a time zone it is UTC."""
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{flag}: {text!r} is not a time; write 2026-01-31T12:00:00Z") from error


class Seconds(click.FloatRange):
    """A range of finite seconds; `nan` is a float too, but not a duration."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail with the expected form."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return float(number)
