"""`gang-extender doctor`: every trap that is set, what it means, and the mend."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from extender.cli.connect import Target, connect, read_page, target_options
from extender.cli.kubectl import kubeconfig_exists
from extender.cli.output import Terminal, count, output_option, print_document
from extender.cli.schema import document
from extender.doctor import scheduler_config
from extender.doctor.checks import run_checks
from extender.doctor.collect import Sources, collect
from extender.doctor.facts import ClusterFacts, Problem, Severity
from extender.doctor.reader import Read
from extender.errors import InvalidInput
from extender.kube.client import ApiClient
from extender.text import clean

Document = dict[str, Any]
_FILE = click.Path(path_type=Path)
_COLOURS = {Severity.TRAP: "red", Severity.HINT: "yellow"}


@click.command()
@target_options
@click.option(
    "--scheduler-config",
    "scheduler_configs",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="A KubeSchedulerConfiguration to look at: that of the cluster's own kube-scheduler is a"
    " file of its nodes. Those that our manifests install are found. May be repeated.",
)
@click.option(
    "--ca-file",
    type=_FILE,
    metavar="FILE",
    help="A copy of the caFile of kube-scheduler, where that is not on this machine.",
)
@click.option(
    "--cert-file",
    type=_FILE,
    metavar="FILE",
    help="A copy of the certFile of kube-scheduler, where that is not on this machine.",
)
@click.option("--offline", is_flag=True, help="Look at no cluster: only at what other flags name.")
@output_option
def doctor(
    where: Target,
    scheduler_configs: tuple[Path, ...],
    ca_file: Path | None,
    cert_file: Path | None,
    offline: bool,
    output: str,
) -> None:
    """Name every trap that is set, in a live cluster and in kube-scheduler's configuration.

    Nothing is changed. Exit code 0 when all was looked at and nothing but hints was found, 1 when
    there are traps, 2 when there are none in what could be looked at, but not all could.
    """
    if offline and not (scheduler_configs or where.ops_url):
        raise InvalidInput(
            "--offline leaves nothing to look at; name --scheduler-config or --ops-url"
        )
    documents = [(path, scheduler_config.configuration(path)) for path in scheduler_configs]
    # A file by itself is looked at also where no cluster is known.
    away = offline or bool(documents and not where.names_a_cluster and not kubeconfig_exists())
    with ExitStack() as ways:
        seen = collect(
            Sources(
                access=None if away else partial(ApiClient.load, where.kubeconfig, where.context),
                namespace=where.namespace,
                configurations=documents,
                ca_file=ca_file,
                cert_file=cert_file,
                ops=None if away and not where.ops_url else partial(_way, ways, where),
            )
        )
    if not (seen.is_cluster or seen.configurations or seen.said):
        raise InvalidInput("; ".join(f"{each.what}: {each.why}" for each in seen.unseen))
    caught = run_checks(seen)
    print_document(
        diagnosis(seen, caught),
        output,
        lambda: Terminal().lay_out(page(seen, caught)),
    )
    sys.exit(exit_code(seen, caught))


def _way(ways: ExitStack, where: Target) -> tuple[Read, str]:
    address = ways.enter_context(connect(where, quietly=True))
    return partial(read_page, address), str(address)


def exit_code(seen: ClusterFacts, caught: list[Problem]) -> int:
    """Give the exit code: traps count more than what was not seen, and hints not at all."""
    if any(each.trap.severity is Severity.TRAP for each in caught):
        return 1
    return 2 if seen.unseen else 0


def diagnosis(seen: ClusterFacts, caught: list[Problem]) -> Document:
    """Give it for a program."""
    found = [
        {
            "name": each.trap.name,
            "severity": each.trap.severity.value,
            "where": each.where,
            "seen": each.seen,
            "meaning": each.trap.meaning,
            "mend": each.mend,
        }
        for each in caught
    ]
    missed = [{"what": each.what, "why": each.why} for each in seen.unseen]
    return document("Diagnosis", {"found": found, "not_looked_at": missed})


def page(seen: ClusterFacts, caught: list[Problem]) -> Text:
    """Write a paragraph for each trap, then what was not looked at."""
    text = Text()
    for each in caught:
        text.append(clean(each.trap.name), style=f"bold {_COLOURS[each.trap.severity]}")
        hint = "hint, " if each.trap.severity is Severity.HINT else ""
        text.append(f"  {hint}{clean(each.where)}\n", style="bold")
        text.append(f"    seen   {clean(each.seen)}\n")
        text.append(f"    means  {each.trap.meaning}\n")
        text.append(f"    mend   {clean(each.mend)}\n")
    for missed in seen.unseen:
        text.append("not looked at", style="bold yellow")
        text.append(f"  {clean(missed.what)}: {clean(missed.why)}\n")
    return text.append(_sum(seen, caught), style="dim")


def _sum(seen: ClusterFacts, caught: list[Problem]) -> str:
    traps = sum(each.trap.severity is Severity.TRAP for each in caught)
    said = [count(traps, "trap")] * bool(traps)
    said += [count(len(caught) - traps, "hint")] * (len(caught) > traps)
    if seen.unseen:
        return f"{', '.join(said) or 'nothing found'}, but not everything could be looked at"
    return ", ".join(said) or "nothing found: no trap that we know is set"
