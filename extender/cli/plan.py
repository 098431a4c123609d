"""`gang-extender plan -f FILE`: one cycle over saved objects, and who would start or leave."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import click
from rich.text import Text

from extender.audit.everything import audit
from extender.cache.assignment import QueuePolicy
from extender.cli.foreseen.whatif import Question, answered, whatif_options
from extender.cli.printed.columns import Columns
from extender.cli.printed.documents import document
from extender.cli.printed.terminal import Terminal, cell, tell
from extender.cli.reach.whereabouts import Whereabouts, reach_options
from extender.cli.saved.missing import missing
from extender.cli.serve import setting_option
from extender.cli.show import COLOURS, coloured, count, output_option, show
from extender.cli.typed.moments import moment
from extender.forecast.estimate import Estimate
from extender.forecast.forecaster import Forecaster
from extender.model.resources import CPU, MEMORY, PODS, Resources, write_amount
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, QueueFigures, Standing, Ticket, Verdict
from extender.policyfile import PolicyFile
from extender.settings import Settings, label_pairs
from extender.web import api
from extender.whatif.compared import by_node
from extender.whatif.supposed import Supposed
from extender.whatif.weighed import Reading

_BAR = 12
#: Of our own processor time, for estimates: somebody waits for the answer, and nobody else is here.
_LOOK_AHEAD_S = 10.0


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="Objects as `kubectl get -o yaml` or `-o json` prints them, or a folder of such files; -"
    " is standard input. May be repeated.",
)
@click.option("--config", metavar="FILE", help="The policy file; without it the default policy.")
@output_option
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    default=Settings().scheduler_name,
    show_default=True,
    help="Pods of these schedulers are planned; all others only use up room. May be repeated.",
)
@setting_option("node_selector")
@setting_option("exempt_namespace")
@setting_option("default_queue")
@setting_option("namespaces_are_queues")
@setting_option("unlisted_namespaces")
@setting_option("budgets_are_gangs")
@whatif_options
@reach_options
@click.option(
    "--now", metavar="TIME", help="When it is, in UTC; by default when the newest object came."
)
def plan(
    files: tuple[str, ...],
    config: str | None,
    output: str,
    schedulers: tuple[str, ...],
    node_selector: tuple[str, ...],
    exempt_namespace: tuple[str, ...],
    budgets_are_gangs: bool,
    now: str | None,
    live: bool,
    withs: tuple[str, ...],
    withouts: tuple[str, ...],
    where: Whereabouts,
    **queue_settings: Any,
) -> None:
    """Plan one cycle over saved objects, or a live cluster, and print what would happen.

    \b
        kubectl get -A -o yaml > saved.yaml \\
          nodes,pods,podgroups,queues,namespaces,priorityclasses,poddisruptionbudgets,resourcequotas
        gang-extender plan -f saved.yaml
        gang-extender plan --live -f job.yaml --with queue/research.weight=5 --without node/n7

    Objects that make no sense, and kinds that are not in the files and could change the answer,
    are named.
    """
    policies = PolicyFile(config or "")
    policy = policies.current()
    reading = Reading(
        schedulers=frozenset(schedulers),
        node_labels=label_pairs(node_selector),
        exempt=frozenset(exempt_namespace),
        queues=QueuePolicy.of(Settings(**queue_settings)),
        budgets_are_gangs=budgets_are_gangs,
    )
    question = Question(
        files=files,
        live=live,
        where=where,
        supposed=Supposed(withs, withouts),
        now=moment(now, "--now") if now else None,
        reading=reading,
    )
    answer = answered(question, policy)
    found, snapshot, decided = answer.found, answer.after.snapshot, answer.after.plan
    ahead = Forecaster(lambda: policy, seconds=_LOOK_AHEAD_S)
    estimates = partial(ahead.estimate, snapshot, decided)
    findings = (*audit(snapshot), *policies.findings())
    said = api.plan(decided, snapshot, estimates=estimates)
    written = {**said, "findings": api.findings(findings), **answer.written()}
    del written["generation"]  # a number of the live product that says nothing here
    show(
        document("Plan", written), output, lambda: answer.print(partial(page, estimates=estimates))
    )
    for remark in answer.remarks:
        tell(remark)
    _tell_passed_over(found.passed_over)
    for each in findings:
        tell(f"{each.reason}: {each.message}")
    if not live:  # a running extender follows every kind: what it does not tell of is not there
        for words in missing(found, snapshot, decided, policy, budgets_are_gangs=budgets_are_gangs):
            tell(f"not in the input: {words}")


def _tell_passed_over(kinds: Counter[str]) -> None:
    if kinds:
        said = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        tell(f"passed over: {said}")


def page(snapshot: Snapshot, plan: Plan, estimates: api.Estimates = lambda _: None) -> None:
    """Print *plan*, and when who waits would start."""
    terminal = Terminal()
    terminal.lay_out(_head(snapshot, plan), Text())
    if plan.queues:
        _queues(plan, has_blocks=_has_blocks(terminal.encoding)).print(terminal)
        terminal.lay_out(Text())
    if plan.shares:
        _shares(plan).print(terminal)
        terminal.lay_out(Text())
    if plan.verdicts:
        _gangs(plan).print(terminal)
    if told := [each for each in map(estimates, plan.verdicts) if each is not None]:
        terminal.lay_out(Text())
        _starts(told).print(terminal)
    if plan.evictions:
        terminal.lay_out(Text())
        _evictions(plan).print(terminal)


def _has_blocks(encoding: str) -> bool:
    try:
        return bool("█░".encode(encoding))
    except (UnicodeEncodeError, LookupError):
        return False


def _head(snapshot: Snapshot, plan: Plan) -> Text:
    counts = dict.fromkeys(Standing, 0)
    for verdict in plan.verdicts.values():
        counts[verdict.standing] += 1
    head = Text(f"{count(len(plan.verdicts), 'gang')}", style="bold")
    ours = sum(node.ours for node in snapshot.nodes.nodes)
    head.append(f" on {count(ours, 'node')}: ", style="not bold")
    said = [(standing, number) for standing, number in counts.items() if number]
    for place, (standing, number) in enumerate(said):
        head.append(", " if place else "", style="not bold")
        head.append(f"{number} {standing.value}", style=COLOURS.get(standing.value, ""))
    return head


def _table(*columns: str) -> Columns:
    return Columns(*columns, numbers=("WEIGHT", "MEMBERS"))


def _queues(plan: Plan, *, has_blocks: bool) -> Columns:
    table = _table("QUEUE", "WEIGHT", "DESERVES", "USES", "WANTS", "SHARE")
    for figures in plan.queues.values():
        table.add(
            figures.name,
            str(figures.weight),
            _amounts(figures.deserved),
            _amounts(figures.allocated),
            _amounts(figures.requested),
            _share(figures, "█░" if has_blocks else "#."),
        )
    return table


def _shares(plan: Plan) -> Columns:
    table = _table("NAMESPACE", "IN QUEUE", "AT LEAST", "USES", "AT MOST", "WANTS")
    for figures in plan.shares.values():
        table.add(
            figures.namespace,
            figures.queue,
            _amounts(figures.at_least),
            _amounts(figures.allocated),
            _amounts(figures.at_most),
            _amounts(figures.requested),
        )
    return table


def _share(figures: QueueFigures, blocks: str) -> Text:
    full = min(_BAR, round(figures.share * _BAR))
    bar = Text(blocks[0] * full, style="red" if figures.overused else "cyan")
    bar.append(blocks[1] * (_BAR - full), style="dim")
    return bar.append(f" {figures.share:.0%}", style="not dim")


def _gangs(plan: Plan) -> Columns:
    table = _table("GANG", "QUEUE", "MEMBERS", "VERDICT", "REASON", "WHY")
    for key, verdict in plan.verdicts.items():
        table.add(
            key,
            verdict.queue,
            f"{verdict.members}/{verdict.min_member}",
            coloured(verdict.standing.value),
            verdict.reason.value,
            _why(verdict, plan.tickets.get(key)),
        )
    return table


def _starts(told: list[Estimate]) -> Columns:
    table = _table("WAITS", "WILL RUN")
    for each in told:
        table.add(each.gang, each.words)
    return table


def _why(verdict: Verdict, ticket: Ticket | None) -> Text:
    why = cell(verdict.message)
    if ticket is None:
        return why
    for word, places in (("on", ticket.placements), ("later on", ticket.pipelined)):
        if places:
            why.append_text(cell(f"; {word} {by_node(places.values())}", style="dim"))
    return why


def _evictions(plan: Plan) -> Columns:
    table = _table("MUST LEAVE", "NODE", "ACTION", "FOR")
    for order in plan.evictions:
        pod = cell(f"{order.namespace}/{order.name}", style="red")
        table.add(pod, order.node, order.action, order.beneficiary)
    return table


def _amounts(amounts: Resources) -> str:
    """Write amounts briefly: cpu and memory first, the rest by name, nothing as a dash."""
    first = [name for name in (CPU, MEMORY) if amounts.amount(name)]
    others = sorted(n for n, a in amounts.items() if a and n not in (CPU, MEMORY, PODS))
    said = [f"{_brief(name, amounts[name])} {name}" for name in (*first, *others)]
    return ", ".join(said) or "-"


def _brief(name: str, amount: int) -> str:
    """Round what would be long: a person compares 12.5Gi, not 13421772801."""
    exact = write_amount(name, amount)
    if len(exact) <= 6:
        return exact
    if name == CPU:
        return f"{amount / 1000:.4g}"
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.4g}{suffix}"
    return exact
