"""`gang-extender doctor`: every problem found, what it means, and the remedy."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from rich.text import Text

from extender.cli import schema
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

_FILE = click.Path(path_type=Path)
_COLOURS = {Severity.PROBLEM: "red", Severity.HINT: "yellow"}


@click.command()
@target_options
@click.option(
    "--scheduler-config",
    "scheduler_configs",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="A KubeSchedulerConfiguration to check: that of the cluster's own kube-scheduler is a"
    " file of its nodes. Those of our manifests are found. May be repeated.",
)
@click.option(
    "--ca-file",
    type=_FILE,
    metavar="FILE",
    help="A copy of kube-scheduler's caFile, where that is not on this machine.",
)
@click.option(
    "--cert-file",
    type=_FILE,
    metavar="FILE",
    help="A copy of kube-scheduler's certFile, where that is not on this machine.",
)
@click.option("--offline", is_flag=True, help="Check only what other flags name, and no cluster.")
@output_option
def doctor(
    where: Target,
    scheduler_configs: tuple[Path, ...],
    ca_file: Path | None,
    cert_file: Path | None,
    offline: bool,
    output: str,
) -> None:
    """Find every known misconfiguration of a live cluster and of kube-scheduler's configuration.

    Nothing is changed. Exit code 0 when everything was checked and only hints were found, 1 when
    there are problems, 2 when there are none in what could be checked, but not all could.
    """
    if offline and not (scheduler_configs or where.ops_url):
        raise InvalidInput(
            "--offline leaves nothing to check; name --scheduler-config or --ops-url"
        )
    documents = [(path, scheduler_config.configuration(path)) for path in scheduler_configs]
    # A file by itself is checked also where there is no cluster.
    no_cluster = offline or bool(
        documents and not where.names_a_cluster and not kubeconfig_exists()
    )
    with ExitStack() as stack:
        facts = collect(
            Sources(
                access=None
                if no_cluster
                else partial(ApiClient.load, where.kubeconfig, where.context),
                namespace=where.namespace,
                configurations=documents,
                ca_file=ca_file,
                cert_file=cert_file,
                ops=None if no_cluster and not where.ops_url else partial(_connect, stack, where),
            )
        )
    if not (facts.is_cluster or facts.configurations or facts.readiness):
        raise InvalidInput("; ".join(f"{each.what}: {each.why}" for each in facts.not_checked))
    problems = run_checks(facts)
    print_document(
        document(diagnosis(facts, problems)),
        output,
        lambda: Terminal().lay_out(page(facts, problems)),
    )
    sys.exit(exit_code(facts, problems))


def _connect(stack: ExitStack, where: Target) -> tuple[Read, str]:
    address = stack.enter_context(connect(where, quietly=True))
    return partial(read_page, address), str(address)


def exit_code(facts: ClusterFacts, problems: list[Problem]) -> int:
    """Return the exit code: problems count more than what was not checked; hints do not count."""
    if any(each.check.severity is Severity.PROBLEM for each in problems):
        return 1
    return 2 if facts.not_checked else 0


def diagnosis(facts: ClusterFacts, problems: list[Problem]) -> schema.Diagnosis:
    """Return the result as a document."""
    found = [
        schema.Problem(
            name=each.check.name,
            severity=each.check.severity.value,
            where=each.where,
            seen=each.seen,
            meaning=each.check.meaning,
            mend=each.mend,
        )
        for each in problems
    ]
    return schema.Diagnosis(found, [schema.NotChecked(*each) for each in facts.not_checked])


def page(facts: ClusterFacts, problems: list[Problem]) -> Text:
    """Return a paragraph for each problem, then what was not checked."""
    text = Text()
    for each in problems:
        text.append(clean(each.check.name), style=f"bold {_COLOURS[each.check.severity]}")
        hint = "hint, " if each.check.severity is Severity.HINT else ""
        text.append(f"  {hint}{clean(each.where)}\n", style="bold")
        text.append(f"    seen   {clean(each.seen)}\n")
        text.append(f"    means  {each.check.meaning}\n")
        text.append(f"    mend   {clean(each.mend)}\n")
    for not_checked in facts.not_checked:
        text.append("not checked", style="bold yellow")
        text.append(f"  {clean(not_checked.what)}: {clean(not_checked.why)}\n")
    return text.append(_summary(facts, problems), style="dim")


def _summary(facts: ClusterFacts, found: list[Problem]) -> str:
    problems = sum(each.check.severity is Severity.PROBLEM for each in found)
    words = [count(problems, "problem")] * bool(problems)
    words += [count(len(found) - problems, "hint")] * (len(found) > problems)
    if facts.not_checked:
        return f"{', '.join(words) or 'nothing found'}, but not everything could be checked"
    return ", ".join(words) or "no problem found"
