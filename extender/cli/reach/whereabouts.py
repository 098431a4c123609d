"""What a person says of where the extender is, by the flags and variables that kubectl has too."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

import click

from extender.settings import COMMAND_LINE_VARIABLES, check_environment

Command: TypeAlias = Callable[..., Any]

#: Where our manifests put it.
HOME = "gang-system"
_OPS_URL, _NAMESPACE, _TOKEN_FROM = COMMAND_LINE_VARIABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """What was said; empty is what was not."""

    ops_url: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    token_from: str = ""

    @property
    def names_a_cluster(self) -> bool:
        """Whether somebody said which cluster is meant, so that no other will do."""
        return bool(self.kubeconfig or self.context or self.namespace)

    @property
    def home(self) -> str:
        """The namespace of the extender."""
        return self.namespace or HOME


def reach_options(command: Command) -> Command:
    """Give *command* the flags that say where the extender is, as one argument `where`."""

    @wraps(command)
    def with_where(
        *words: Any,
        ops_url: str,
        kubeconfig: str,
        context: str,
        extender_namespace: str,
        token_from: str,
        **rest: Any,
    ) -> Any:
        # Here too a variable with a slip of the pen would otherwise be one that was not given.
        check_environment(os.environ)
        where = Whereabouts(
            ops_url=ops_url,
            kubeconfig=kubeconfig,
            context=context,
            namespace=extender_namespace,
            token_from=token_from,
        )
        return command(*words, where=where, **rest)

    found: Command = with_where
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


_OPTIONS = (
    click.option(
        "--ops-url",
        default="",
        envvar=_OPS_URL,
        show_envvar=True,
        metavar="URL",
        help="The operations port of the extender. Without it the leading pod is found in the"
        " cluster, as kubectl would, or else http://127.0.0.1:8889 is asked.",
    ),
    click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="The kubeconfig; without it $KUBECONFIG, then ~/.kube/config.",
    ),
    click.option(
        "--context", default="", metavar="NAME", help="The context of the kubeconfig, if another."
    ),
    click.option(
        "--extender-namespace",
        default="",
        envvar=_NAMESPACE,
        show_envvar=True,
        metavar="NAMESPACE",
        help=f"Where the extender's pods are, {HOME} by default.",
    ),
    click.option(
        "--token-from",
        default="",
        envvar=_TOKEN_FROM,
        show_envvar=True,
        metavar="FILE|kubeconfig",
        help="Send the token in this file, or that of the kubeconfig: for an extender that wants to"
        " know who reads (--ops-auth). Without it none is sent.",
    ),
)
