"""`gang-extender plan -f FILE`: one cycle over saved objects, and which gangs start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click
from msgspec.structs import asdict
from rich.text import Text

from extender.cache.queue_policy import QueuePolicy
from extender.cli import saved, schema
from extender.cli.connect import Target, connect, target_options
from extender.cli.options import parse_time, target_namespace
from extender.cli.output import (
    COLOURS,
    Columns,
    Terminal,
    coloured,
    count,
    output_option,
    print_document,
    print_error,
    safe_text,
)
from extender.cli.saved import missing
from extender.cli.schema import document
from extender.cli.serve import setting_option
from extender.errors import InvalidInput
from extender.findings.audit import audit
from extender.forecast.estimate import Estimate
from extender.forecast.forecaster import Forecaster
from extender.model.resources import CPU, MEMORY, PODS, Resources, write_amount
from extender.model.snapshot import Snapshot
from extender.planner.plan import GangPlacement, GangStatus, Plan, QueueFigures, Verdict
from extender.planner.policy import Policy
from extender.policy_file import PolicyFile
from extender.replay.compare import Difference
from extender.settings import Settings, label_pairs
from extender.web import documents
from extender.web.plan_documents import Estimates, PlanDocuments, findings_of
from extender.whatif.compare import (
    ComparedPlans,
    GangOutcome,
    PlannedSnapshot,
    Reading,
    by_node,
    compare_plans,
    gang_outcome,
    submitted_gangs,
)
from extender.whatif.hypothesis import Hypothesis
from extender.whatif.manifests import Manifest, manifests_of
from extender.whatif.workloads import submitted

#: The limit of printed lines; a document has all of them.
_MAX_PRINTED = 40


def print_compared(after: PlannedSnapshot, differing: list[Difference], policy: Policy) -> None:
    """Print the outcomes of the submitted gangs, and what changes for all others."""
    terminal = Terminal()
    asked = submitted_gangs(after.snapshot)
    for key in asked[:_MAX_PRINTED]:
        outcome = gang_outcome(after, key, policy)
        terminal.lay_out(*_outcome_lines(outcome) if outcome else ())
    if len(asked) > _MAX_PRINTED:
        terminal.lay_out(Text(f"and {count(len(asked) - _MAX_PRINTED, 'gang')} more, below"))
    if not differing:
        terminal.lay_out(Text("nothing changes for other gangs" if asked else "nothing changes"))
        terminal.lay_out(Text())
        return
    table = Columns("OBJECT", "WITHOUT IT", "WITH IT", title="what changes")
    for each in differing[:_MAX_PRINTED]:
        table.add(*each)
    table.print(terminal)
    if len(differing) > _MAX_PRINTED:
        rest = len(differing) - _MAX_PRINTED
        terminal.lay_out(Text(f"and {rest} more; -o json has all of them"))
    terminal.lay_out(Text())


def _outcome_lines(outcome: GangOutcome) -> Iterator[Text]:
    verdict = outcome.verdict
    head = safe_text(f"{outcome.gang} ", style="bold")
    colour = COLOURS.get(verdict.status.value, "")
    head.append_text(safe_text(outcome.starts, style=f"not bold {colour}"))
    yield head.append_text(
        safe_text(f": {verdict.reason.value}: {verdict.message}", style="not bold")
    )
    for title, lines in outcome.lists:
        yield safe_text(f"  {title}", style="bold")
        for line in lines:
            yield safe_text(f"    {line}")


Command = Callable[..., Any]
_OPTIONS = (
    click.option(
        "--live",
        is_flag=True,
        help="Plan the cluster as a running extender sees it. -f then has what would be submitted:"
        " pods, PodGroups, Jobs, Deployments and the like, also nodes and queues.",
    ),
    click.option(
        "--with",
        "withs",
        multiple=True,
        metavar="PATH=VALUE",
        help="Suppose this, and print first what changes: queue/NAME.weight, .priority, .parent,"
        " .reclaimable, .lend, .guarantee.RESOURCE, .deserved.RESOURCE, .capability.RESOURCE;"
        " node/NAME.unschedulable. May be repeated.",
    ),
    click.option(
        "--without",
        "withouts",
        multiple=True,
        metavar="PATH",
        help="Suppose that this is deleted: node/NAME, queue/NAME, gang/NAMESPACE/NAME,"
        " pod/NAMESPACE/NAME. Pods of a deleted node wait again. May be repeated.",
    ),
)


def whatif_options(command: Command) -> Command:
    """Add the flags of a hypothesis to *command*."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _planned(
    files: Sequence[str],
    where: Target | None,
    supposed: Hypothesis,
    reading: Reading,
    policy: Policy,
    now: float | None,
) -> tuple[ComparedPlans, list[str]]:
    """Plan files, or what the extender at *where* sees; return the plans, and remarks."""
    if where is None:
        present = [*saved.read_manifests(files)]
        return compare_plans(present, (), supposed, reading, policy, now), []
    now = time.time() if now is None else now
    present, live_plan = _live(where)
    given = [*saved.read_manifests(files)]
    new = submitted(
        given,
        present,
        namespace=target_namespace(where) if given else "",
        now=now,
        schedulers=reading.schedulers,
    )
    compared = compare_plans(present, new.manifests, supposed, reading, policy, now)
    return compared, [*new.remarks, *_policy_remarks(live_plan, compared.before.plan)]


def _live(where: Target) -> tuple[list[Manifest], documents.Plan]:
    """Return what a running extender sees, and its plan for that."""
    with connect(where) as address:
        listed, live_plan = schema.snapshot(address), schema.plan(address)
    return [*manifests_of(listed, str(address))], live_plan


def _policy_remarks(live_plan: documents.Plan, plan: Plan) -> Iterator[str]:
    """Yield a remark if the extender's own plan differs: it has another policy or settings."""
    here = {str(key): each.status.value for key, each in plan.verdicts.items()}
    there = {f"{each.namespace}/{each.name}": each.verdict for each in live_plan.gangs}
    differing = sorted(key for key in here if key in there and here[key] != there[key])
    if differing:
        first = differing[0]
        yield (
            f"the running extender decides otherwise about {len(differing)} of the gangs ({first}"
            f" is {there[first]} there and {here[first]} here); if it has a policy file or flags"
            " of its own, give them here too (--config)"
        )


_BAR = 12
#: The limit of processor time for estimates: a person waits for the answer.
_FORECAST_S = 10.0


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="Objects as `kubectl get -o yaml` or `-o json` prints them, or a directory of such files;"
    " - is standard input. May be repeated.",
)
@click.option("--config", metavar="FILE", help="The policy file; without it the default policy.")
@output_option
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    default=Settings().scheduler_name,
    show_default=True,
    help="Pods of these schedulers are planned; all others only use capacity. May be repeated.",
)
@setting_option("node_selector")
@setting_option("exempt_namespace")
@setting_option("default_queue")
@setting_option("namespaces_are_queues")
@setting_option("unlisted_namespaces")
@setting_option("budgets_are_gangs")
@whatif_options
@target_options
@click.option(
    "--now", metavar="TIME", help="The time, in UTC; by default that of the newest object."
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
    where: Target,
    **queue_settings: Any,
) -> None:
    """Plan one cycle over saved objects, or a live cluster, and print what would happen.

    \b
        kubectl get -A -o yaml > saved.yaml \\
          nodes,pods,podgroups,queues,namespaces,priorityclasses,poddisruptionbudgets,resourcequotas
        gang-extender plan -f saved.yaml
        gang-extender plan --live -f job.yaml --with queue/research.weight=5 --without node/n7

    Invalid objects, and kinds that are not in the files and could change the answer, are
    reported.
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
    at = parse_time(now, "--now") if now else None
    if not live:
        _check_without_cluster(files, where)
    compared, remarks = _planned(
        files, where if live else None, Hypothesis(withs, withouts), reading, policy, at
    )
    snapshot, decided = compared.after.snapshot, compared.after.plan
    forecaster = Forecaster(lambda: policy, seconds=_FORECAST_S)
    estimates = partial(forecaster.estimate, snapshot, decided)
    findings = (*audit(snapshot), *policies.findings())
    written = document(
        schema.Plan(
            **asdict(PlanDocuments(decided, snapshot, estimates=estimates).plan()),
            findings=findings_of(findings),
            asked=submitted_gangs(snapshot),
            differences=[schema.Difference(*each) for each in compared.differences or ()],
        )
    )
    del written["generation"]  # a counter of the running extender without meaning here

    def print_plan() -> None:
        if compared.differences is not None:
            print_compared(compared.after, compared.differences, policy)
        page(snapshot, decided, estimates)

    print_document(written, output, print_plan)
    for remark in remarks:
        print_error(remark)
    _report_ignored(compared.found.skipped)
    for each in findings:
        print_error(f"{each.reason}: {each.message}")
    if not live:  # a running extender watches every kind, so that none is missing
        for words in missing(
            compared.found, snapshot, decided, policy, budgets_are_gangs=budgets_are_gangs
        ):
            print_error(f"not in the input: {words}")


def _check_without_cluster(files: Sequence[str], where: Target) -> None:
    if not files:
        raise InvalidInput(
            "plan needs -f FILE with saved objects, or --live for a running extender"
        )
    for flag, value in (("--kubeconfig", where.kubeconfig), ("--context", where.context)):
        if value:
            raise InvalidInput(
                f"{flag} names a cluster, which only --live reads: add that or leave it out"
            )


def _report_ignored(kinds: Counter[str]) -> None:
    if kinds:
        kinds_text = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print_error(f"passed over: {kinds_text}")


def page(snapshot: Snapshot, plan: Plan, estimates: Estimates = lambda _: None) -> None:
    """Print *plan*, and when waiting gangs would start."""
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
    if known := [each for each in map(estimates, plan.verdicts) if each is not None]:
        terminal.lay_out(Text())
        _starts(known).print(terminal)
    if plan.evictions:
        terminal.lay_out(Text())
        _evictions(plan).print(terminal)


def _has_blocks(encoding: str) -> bool:
    try:
        return bool("█░".encode(encoding))
    except (UnicodeEncodeError, LookupError):
        return False


def _head(snapshot: Snapshot, plan: Plan) -> Text:
    counts = dict.fromkeys(GangStatus, 0)
    for verdict in plan.verdicts.values():
        counts[verdict.status] += 1
    head = Text(f"{count(len(plan.verdicts), 'gang')}", style="bold")
    managed = sum(node.managed for node in snapshot.nodes.nodes)
    head.append(f" on {count(managed, 'node')}: ", style="not bold")
    counted = [(status, number) for status, number in counts.items() if number]
    for index, (status, number) in enumerate(counted):
        head.append(", " if index else "", style="not bold")
        head.append(f"{number} {status.value}", style=COLOURS.get(status.value, ""))
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
            _amounts(figures.guarantee),
            _amounts(figures.allocated),
            _amounts(figures.limit),
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
            coloured(verdict.status.value),
            verdict.reason.value,
            _why(verdict, plan.placements.get(key)),
        )
    return table


def _starts(estimates: list[Estimate]) -> Columns:
    table = _table("WAITS", "WILL RUN")
    for each in estimates:
        table.add(each.gang, each.message)
    return table


def _why(verdict: Verdict, placement: GangPlacement | None) -> Text:
    why = safe_text(verdict.message)
    if placement is None:
        return why
    for word, places in (("on", placement.placements), ("later on", placement.pipelined)):
        if places:
            why.append_text(safe_text(f"; {word} {by_node(places.values())}", style="dim"))
    return why


def _evictions(plan: Plan) -> Columns:
    table = _table("EVICTED", "NODE", "ACTION", "FOR")
    for order in plan.evictions:
        pod = safe_text(f"{order.namespace}/{order.name}", style="red")
        table.add(pod, order.node, order.action, order.beneficiary)
    return table


def _amounts(amounts: Resources) -> str:
    """Return amounts in short form: cpu and memory first, the rest by name, a dash for none."""
    first = [name for name in (CPU, MEMORY) if amounts.amount(name)]
    others = sorted(n for n, a in amounts.items() if a and n not in (CPU, MEMORY, PODS))
    parts = [f"{_brief(name, amounts[name])} {name}" for name in (*first, *others)]
    return ", ".join(parts) or "-"


def _brief(name: str, amount: int) -> str:
    """Return an amount, rounded if long: a person compares 12.5Gi, not 13421772801."""
    exact = write_amount(name, amount)
    if len(exact) <= 6:
        return exact
    if name == CPU:
        return f"{amount / 1000:.4g}"
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.4g}{suffix}"
    return exact
