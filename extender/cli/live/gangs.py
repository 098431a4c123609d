"""`gang-extender gangs`: where gangs stand and why, those that wait first."""

from __future__ import annotations

from typing import Any

import click

from extender.cli.live import answers
from extender.cli.printed.columns import Columns
from extender.cli.printed.documents import document
from extender.cli.printed.terminal import Terminal, tell
from extender.cli.reach.way import reached
from extender.cli.reach.whereabouts import Whereabouts, reach_options
from extender.cli.show import coloured, show, wide_output_option
from extender.cli.typed.filters import filter_options, wanted
from extender.cli.typed.names import all_namespaces_option, checked, in_use, namespace_option

Document = dict[str, Any]


@click.command()
@namespace_option
@all_namespaces_option
@filter_options
@reach_options
@wide_output_option
def gangs(
    namespace: str, all_namespaces: bool, where: Whereabouts, output: str, **choice: Any
) -> None:
    """List gangs, where they stand and why.

    Those of the namespace of the kubeconfig's context, of the one that is named, or of all.
    """
    chosen = "" if all_namespaces else checked(namespace) or in_use(where)
    choose = wanted(chosen, **choice)
    with reached(where) as address:
        found = choose.of(answers.plan(address)["gangs"])
    show(document("GangList", {"items": found}), output, lambda: _print(found, chosen, output))


def _print(found: list[Document], namespace: str, output: str) -> None:
    if not found:
        place = f"namespace {namespace}" if namespace else "any namespace"
        tell(f"no such gangs in {place}")
        return
    table(found, with_namespace=not namespace, is_wide=output == "wide").print(Terminal())


def table(gangs: list[Document], *, with_namespace: bool, is_wide: bool) -> Columns:
    """Lay gangs out, one on a line."""
    heads = ("NAMESPACE",) if with_namespace else ()
    more = ("PHASE", "SHARE", "NODES") if is_wide else ()
    columns = Columns(*heads, "NAME", "QUEUE", "MEMBERS", "VERDICT", "REASON", *more, "WHY")
    for gang in gangs:
        nodes = sorted({*gang["placements"].values(), *gang["pipelined"].values()})
        columns.add(
            *((gang["namespace"],) if with_namespace else ()),
            gang["name"],
            gang["queue"],
            f"{gang['members']}/{gang['min_member']}",
            coloured(gang["verdict"]),
            gang["reason"],
            *((gang["phase"], f"{gang['share']:.0%}", " ".join(nodes) or "-") if is_wide else ()),
            gang["message"],
        )
    return columns
