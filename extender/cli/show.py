"""How an answer is printed: laid out for a person, or as JSON or YAML for a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import yaml
from rich.text import Text

from extender.cli.printed.terminal import cell
from extender.text.plain import escaped, steers

#: By verdict.
COLOURS = {
    "running": "green",
    "admitted": "bold green",
    "waiting": "yellow",
    "invalid": "red",
    "finished": "dim",
}


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the flag that says how to print."""
    return _option(command, "table", "json", "yaml")


def wide_output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the same flag, with a way to print more columns."""
    return _option(command, "table", "wide", "json", "yaml")


def _option(command: Callable[..., Any], *ways: str) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(ways),
        default=ways[0],
        show_default=True,
        help="How to print it.",
    )(command)


def show(document: object, output: str, page: Callable[[], None]) -> None:
    """Print *document* in the form asked for; *page* prints it for a person."""
    if output == "json":
        click.echo(escaped(json.dumps(document, indent=2, ensure_ascii=False)))
    elif output == "yaml":
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        if steers(text):  # then in YAML's own notation
            text = yaml.safe_dump(document, sort_keys=False)
        click.echo(text, nl=False)
    else:
        page()


def coloured(verdict: object) -> Text:
    """Write a verdict in its colour."""
    return cell(verdict, style=COLOURS.get(str(verdict), ""))


def count(number: int, noun: str) -> str:
    """Say how many: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
