"""`gang-extender plan -f FILE`: one cycle over saved objects."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import click
import yaml

from extender.cli import objects
from extender.cli.plan_page import page
from extender.errors import BadConfiguration, BadInput
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from extender.plan.policy.options import Policy
from extender.settings import Settings
from extender.web import api

_WAYS = click.Choice(["table", "json", "yaml"])


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Objects as `kubectl get -o yaml` or `-o json` prints them; - is standard input."
    " May be repeated.",
)
@click.option("--config", metavar="FILE", help="The policy file; without it the default policy.")
@click.option(
    "-o", "--output", type=_WAYS, default="table", show_default=True, help="How to print it."
)
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    default=Settings().scheduler_name,
    show_default=True,
    help="Pods of these schedulers are planned; all others only use up room. May be repeated.",
)
@click.option("--now", metavar="TIME", help="When it is; by default when the newest object came.")
def plan(
    files: tuple[str, ...],
    config: str | None,
    output: str,
    schedulers: tuple[str, ...],
    now: str | None,
) -> None:
    """Plan one cycle over saved objects and print what would happen.

    \b
        kubectl get nodes,pods,podgroups,queues -A -o yaml | gang-extender plan -f -
    """
    policy = _policy(config)
    found = objects.read(files, frozenset(schedulers))
    snapshot = found.snapshot(_time(now) if now else None)
    decided = make_plan(snapshot, policy)
    document = api.plan(decided, snapshot)
    del document["generation"]  # a number of the live product that says nothing here
    if output == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif output == "yaml":
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        page(snapshot, decided)
    _tell_passed_over(found.passed_over)


def _policy(path: str | None) -> Policy:
    if path is None:
        return policies.DEFAULT
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path}: is not text in UTF-8") from error
    return policies.parse(text, path)


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError as error:
        raise BadInput(f"--now: {text!r} is not a time; write 2026-01-31T12:00:00Z") from error


def _tell_passed_over(kinds: Counter[str]) -> None:
    if kinds:
        said = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        click.echo(f"passed over: {said}", err=True)
