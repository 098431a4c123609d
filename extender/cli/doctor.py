"""`gang-extender doctor`: what makes no sense as it is written, with the mend."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from extender.cli.live.answers import findings
from extender.cli.reach.way import reached
from extender.cli.reach.whereabouts import Whereabouts, reach_options
from extender.cli.show import count, output_option, show

Document = dict[str, Any]


@click.command()
@reach_options
@output_option
def doctor(where: Whereabouts, output: str) -> None:
    """Name queues, namespaces and policies that make no sense as they are written.

    Exit code 0 when there are none, 1 when there are, 2 when nobody can be asked.
    """
    with reached(where) as address:
        found = findings(address)
    show(found, output, lambda: Console(highlight=False, soft_wrap=True).print(page(found)))
    sys.exit(1 if found else 0)


def page(found: list[Document]) -> Text:
    """Write a line per finding."""
    text = Text()
    for each in found:
        text.append(f"{each['kind']}/{each['name']}", style="bold")
        text.append(f"  {each['reason']}", style="red")
        text.append(f"  {each['message']}\n")
    said = f"{count(len(found), 'finding')}" if found else "nothing found: all means what it says"
    return text.append(said, style="dim")
