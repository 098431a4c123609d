"""Shell completion: commands and flags by click, names by an extender that answers quickly.

`gang-extender completion bash` prints the script for a shell. kubectl runs the command
`kubectl_complete-gang` beside it, by the protocol of its own completion.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from extender.cli.connect import Target, connect
from extender.cli.kubectl import current_namespace
from extender.web.documents import Plan

#: A person waits for a completion; an object of click's context may set another limit.
_MAX_WAIT_S = 2.0
#: kubectl's directive: no more completions, and no file names.
_NO_FILES = 4
#: Names of objects and, with a colon, of implicit PodGroups.
_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, gangs and queues.

    \b
        source <(gang-extender completion bash)
        gang-extender completion zsh > "${fpath[1]}/_gang-extender"
        gang-extender completion fish > ~/.config/fish/completions/gang-extender.fish

    `kubectl gang` is completed by kubectl's own completion without further setup.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all three
    root = context.find_root().command
    made: ShellComplete = kind(root, {}, "gang-extender", "_GANG_EXTENDER_COMPLETE")
    click.echo(made.source())


def gang_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the gangs of the given or current namespace; with a slash, those of all."""
    where, namespace = _target(context), context.params.get("namespace") or ""

    def names(plan: Plan) -> list[str]:
        if "/" in typed:
            return [f"{gang.namespace}/{gang.name}" for gang in plan.gangs]
        used = namespace or current_namespace(where.kubeconfig, where.context)
        return [gang.name for gang in plan.gangs if gang.namespace == used]

    return _matching(typed, _in_time(context, names))


def queue_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the queues."""
    return _matching(typed, _in_time(context, lambda plan: [each.name for each in plan.queues]))


def _target(context: click.Context) -> Target:
    names = ("ops_url", "kubeconfig", "context", "token_from")
    given = {name: context.params.get(name) or "" for name in names}
    return Target(namespace=context.params.get("extender_namespace") or "", **given)


def _in_time(context: click.Context, names: Callable[[Plan], list[str]]) -> list[str]:
    """Query the extender for a short time; on any failure complete nothing, silently."""
    found: list[str] = []

    def query() -> None:
        from extender.cli.schema import plan

        try:
            with connect(_target(context), quietly=True) as address:
                found.extend(names(plan(address)))
        except Exception:
            # An error message would only disturb the command line that is being typed.
            return

    thread = threading.Thread(target=query, daemon=True)
    thread.start()
    thread.join(context.find_object(float) or _MAX_WAIT_S)
    return [*found]


def _matching(typed: str, names: list[str]) -> list[CompletionItem]:
    # A string that is not a Kubernetes name could be an injection into the shell.
    valid = (name for name in set(names) if _NAME.fullmatch(name))
    return [CompletionItem(name) for name in sorted(valid) if name.startswith(typed)]


def for_kubectl() -> None:
    """Complete the words after `kubectl gang`; the last one is incomplete."""
    from extender.cli.main import main

    *before, typed = sys.argv[1:] or [""]
    completer = ShellComplete(main, {}, "kubectl gang", "_KUBECTL_GANG_COMPLETE")
    try:
        found: list[Any] = completer.get_completions(before, typed)
    except Exception:
        found = []
    for item in found:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_NO_FILES}")
