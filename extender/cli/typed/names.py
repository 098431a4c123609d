"""How gangs are named on the command line: as kubectl names things, and as NAMESPACE/NAME."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from extender.cli.reach import kubeconfig
from extender.cli.reach.whereabouts import Whereabouts
from extender.errors import BadInput

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
class Named:
    """What somebody means: a gang, a pod, or, where *kind* is empty, whichever there is."""

    namespace: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def named(text: str, namespace: str, where: Whereabouts) -> Named:
    """Read what *text* names; *namespace* is what the flag says, if it does."""
    *before, name = text.split("/")
    kind = ""
    if before and before[0].lower() in (*_GROUPS, *_PODS):
        kind = "pod" if before.pop(0).lower() in _PODS else "gang"
    if len(before) > 1 or not _NAME.fullmatch(name):
        raise BadInput(f"{text!r} is not a gang; {_EXAMPLE}")
    said = checked(namespace)
    if before:
        if not _NAMESPACE.fullmatch(before[0]):
            raise BadInput(f"{text!r} is not a gang; {_EXAMPLE}")
        if said and said != before[0]:
            raise BadInput(f"{text} is in namespace {before[0]}, and --namespace says {said}")
        said = before[0]
    return Named(namespace=said or in_use(where), name=name, kind=kind)


def checked(namespace: str) -> str:
    """Give back what can be the name of a namespace."""
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise BadInput(f"--namespace {namespace!r} cannot be the name of a namespace")
    return namespace


def in_use(where: Whereabouts) -> str:
    """Give the namespace that kubectl would take."""
    return kubeconfig.namespace(where.kubeconfig, where.context)
