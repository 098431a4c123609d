"""What a shell completes: words and flags by click, names by whoever can be asked at once.

`gang-extender completion bash` prints what a shell needs. kubectl asks the command
`kubectl_complete-gang` beside it, in the way of its own completion.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from extender.cli.connect import Address, Target, connect
from extender.cli.kubectl import current_namespace

#: A person waits for it with a finger on the key; the object of click's context may say otherwise.
_PATIENCE_S = 2.0
#: kubectl's: that is all, and no file is meant.
_NO_FILES = 4
#: Names of objects and, with a colon, of gangs without one.
_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what lets a shell complete our words, and names of gangs and queues.

    \b
        source <(gang-extender completion bash)
        gang-extender completion zsh > "${fpath[1]}/_gang-extender"
        gang-extender completion fish > ~/.config/fish/completions/gang-extender.fish

    `kubectl gang` is completed by kubectl's own completion, with nothing more to do.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all three
    root = context.find_root().command
    made: ShellComplete = kind(root, {}, "gang-extender", "_GANG_EXTENDER_COMPLETE")
    click.echo(made.source())


def gang_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the gangs of the namespace that is meant; with a slash, those of any."""
    where, namespace = _whereabouts(context), context.params.get("namespace") or ""

    def names(address: Address) -> list[str]:
        from extender.cli.schema import plan

        gangs = plan(address)["gangs"]
        if "/" in typed:
            return [f"{gang['namespace']}/{gang['name']}" for gang in gangs]
        used = namespace or current_namespace(where.kubeconfig, where.context)
        return [gang["name"] for gang in gangs if gang["namespace"] == used]

    return _matching(typed, _in_time(context, where, names))


def queue_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Give the queues."""

    def names(address: Address) -> list[str]:
        from extender.cli.schema import plan

        return [queue["name"] for queue in plan(address)["queues"]]

    return _matching(typed, _in_time(context, _whereabouts(context), names))


def _whereabouts(context: click.Context) -> Target:
    names = ("ops_url", "kubeconfig", "context", "token_from")
    said = {name: context.params.get(name) or "" for name in names}
    return Target(namespace=context.params.get("extender_namespace") or "", **said)


def _in_time(
    context: click.Context, where: Target, names: Callable[[Address], list[str]]
) -> list[str]:
    """Ask, but not for long; whoever cannot answer completes nothing and says nothing."""
    found: list[str] = []

    def look() -> None:
        try:
            with connect(where, quietly=True) as address:
                found.extend(names(address))
        except Exception:
            # A line of an error in the midst of what a person types helps nobody.
            return

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    asking.join(context.find_object(float) or _PATIENCE_S)
    return [*found]


def _matching(typed: str, names: list[str]) -> list[CompletionItem]:
    # What is not a name as Kubernetes has them would be typed into somebody's shell.
    ours = (name for name in set(names) if _NAME.fullmatch(name))
    return [CompletionItem(name) for name in sorted(ours) if name.startswith(typed)]


def for_kubectl() -> None:
    """Complete the words after `kubectl gang`, the last of which is being typed."""
    from extender.cli.main import main

    *before, typed = sys.argv[1:] or [""]
    asked = ShellComplete(main, {}, "kubectl gang", "_KUBECTL_GANG_COMPLETE")
    try:
        found: list[Any] = asked.get_completions(before, typed)
    except Exception:
        found = []
    for item in found:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_NO_FILES}")
