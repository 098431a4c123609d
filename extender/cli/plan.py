"""`gang-extender plan -f FILE`: one cycle over saved objects, and who would start or leave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click
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
from extender.whatif.compare import (
    GangOutcome,
    PlannedSnapshot,
    Reading,
    asked_for,
    by_node,
    compare_plans,
    gang_outcome,
)
from extender.whatif.hypothesis import Hypothesis
from extender.whatif.manifests import Manifest, Objects, manifests_of as told_by
from extender.whatif.workloads import submitted

#: On a page; a document has all of them.
_SHOWN = 40


def print_compared(after: PlannedSnapshot, differing: list[Difference], policy: Policy) -> None:
    """Print what becomes of those who are asked about, and what changes for the others."""
    terminal = Terminal()
    asked = asked_for(after.snapshot)
    for key in asked[:_SHOWN]:
        told = gang_outcome(after, key, policy)
        terminal.lay_out(*_asked(told) if told else ())
    if len(asked) > _SHOWN:
        terminal.lay_out(Text(f"and {count(len(asked) - _SHOWN, 'gang')} more, below"))
    if not differing:
        terminal.lay_out(Text("nothing changes for anybody else" if asked else "nothing changes"))
        terminal.lay_out(Text())
        return
    table = Columns("WHO", "WITHOUT IT", "WITH IT", title="what changes")
    for each in differing[:_SHOWN]:
        table.add(*each)
    table.print(terminal)
    if len(differing) > _SHOWN:
        rest = len(differing) - _SHOWN
        terminal.lay_out(Text(f"and {rest} more; -o json has all of them"))
    terminal.lay_out(Text())


def _asked(told: GangOutcome) -> Iterator[Text]:
    verdict = told.verdict
    head = safe_text(f"{told.gang} ", style="bold")
    colour = COLOURS.get(verdict.standing.value, "")
    head.append_text(safe_text(told.starts, style=f"not bold {colour}"))
    yield head.append_text(
        safe_text(f": {verdict.reason.value}: {verdict.message}", style="not bold")
    )
    for title, lines in told.lists:
        yield safe_text(f"  {title}", style="bold")
        for line in lines:
            yield safe_text(f"    {line}")


Command = Callable[..., Any]
_OPTIONS = (
    click.option(
        "--live",
        is_flag=True,
        help="Plan the cluster as a running extender sees it. What -f names is what would be"
        " submitted: pods, PodGroups, Jobs, Deployments and the like, also nodes and queues.",
    ),
    click.option(
        "--with",
        "withs",
        multiple=True,
        metavar="PATH=VALUE",
        help="Suppose this, and say first what changes: queue/NAME.weight, .priority, .parent,"
        " .reclaimable, .lend, .guarantee.RESOURCE, .deserved.RESOURCE, .capability.RESOURCE;"
        " node/NAME.unschedulable. May be repeated.",
    ),
    click.option(
        "--without",
        "withouts",
        multiple=True,
        metavar="PATH",
        help="Suppose that this is gone: node/NAME, queue/NAME, gang/NAMESPACE/NAME,"
        " pod/NAMESPACE/NAME. Pods of a node that is gone wait again. May be repeated.",
    ),
)


def whatif_options(command: Command) -> Command:
    """Give *command* the flags that say what is supposed."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """What is asked, and about which cluster."""

    files: Sequence[str]
    live: bool
    where: Target
    supposed: Hypothesis
    now: float | None
    reading: Reading


@dataclass(slots=True)
class PlanOutput:
    """The cluster as supposed, and what changes by it where something is supposed."""

    found: Objects
    after: PlannedSnapshot
    policy: Policy
    #: None where nothing is supposed.
    differing: list[Difference] | None = None
    remarks: list[str] = field(default_factory=list)

    def written(self) -> dict[str, Any]:
        """Give what a document has of it."""
        return {
            "asked": asked_for(self.after.snapshot),
            "differences": [each._asdict() for each in self.differing or ()],
        }

    def print(self, page: Callable[[Snapshot, Plan], None]) -> None:
        """Print what changes, if anything was supposed, and then the plan as *page* does."""
        if self.differing is not None:
            print_compared(self.after, self.differing, self.policy)
        page(self.after.snapshot, self.after.plan)


def planned(question: PlanInput, policy: Policy) -> PlanOutput:
    """Plan once, or twice where something is supposed."""
    if not question.files and not question.live:
        raise InvalidInput(
            "plan needs -f FILE with saved objects, or --live for a running extender"
        )
    named = {"--kubeconfig": question.where.kubeconfig, "--context": question.where.context}
    for flag in (flag for flag, said in named.items() if said and not question.live):
        raise InvalidInput(
            f"{flag} names a cluster, and only --live asks one: add that or leave it out"
        )
    now, reading = question.now, question.reading
    remarks, new = list[str](), list[Manifest]()
    if question.live:
        now = time.time() if now is None else now
        there, said = _live(question.where)
        files = [*saved.read_manifests(question.files)]
        brought = submitted(
            files,
            there,
            namespace=target_namespace(question.where) if files else "",
            now=now,
            schedulers=reading.schedulers,
        )
        new, remarks = brought.things, brought.remarks
    else:
        there, said = [*saved.read_manifests(question.files)], None
    told = compare_plans(there, new, question.supposed, reading, policy, now)
    if said is not None:
        remarks += _doubts(said, told.before.plan)
    return PlanOutput(told.found, told.after, policy, told.differences, remarks)


def _live(where: Target) -> tuple[list[Manifest], dict[str, Any]]:
    """Give what a running extender sees, and what it plans for it."""
    with connect(where) as address:
        listed, said = schema.snapshot(address), schema.plan(address)
    return [*told_by(listed, str(address))], said


def _doubts(said: dict[str, Any], plan: Plan) -> Iterator[str]:
    """Say where the extender itself decides otherwise: its policy or its settings are others."""
    ours = {str(key): each.standing.value for key, each in plan.verdicts.items()}
    theirs = {f"{each['namespace']}/{each['name']}": each["verdict"] for each in said["gangs"]}
    other = sorted(key for key in ours if key in theirs and ours[key] != theirs[key])
    if other:
        first = other[0]
        yield (
            f"the extender itself decides otherwise about {len(other)} of the gangs ({first} is"
            f" {theirs[first]} there and {ours[first]} here); if it has a policy file or"
            " flags of its own, give them here too (--config)"
        )


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
@target_options
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
    where: Target,
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
    question = PlanInput(
        files=files,
        live=live,
        where=where,
        supposed=Hypothesis(withs, withouts),
        now=parse_time(now, "--now") if now else None,
        reading=reading,
    )
    answer = planned(question, policy)
    found, snapshot, decided = answer.found, answer.after.snapshot, answer.after.plan
    ahead = Forecaster(lambda: policy, seconds=_LOOK_AHEAD_S)
    estimates = partial(ahead.estimate, snapshot, decided)
    findings = (*audit(snapshot), *policies.findings())
    said = documents.plan(decided, snapshot, estimates=estimates)
    written = {**said, "findings": documents.findings(findings), **answer.written()}
    del written["generation"]  # a number of the live product that says nothing here
    print_document(
        document("Plan", written), output, lambda: answer.print(partial(page, estimates=estimates))
    )
    for remark in answer.remarks:
        print_error(remark)
    _tell_passed_over(found.passed_over)
    for each in findings:
        print_error(f"{each.reason}: {each.message}")
    if not live:  # a running extender follows every kind: what it does not tell of is not there
        for words in missing(found, snapshot, decided, policy, budgets_are_gangs=budgets_are_gangs):
            print_error(f"not in the input: {words}")


def _tell_passed_over(kinds: Counter[str]) -> None:
    if kinds:
        said = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print_error(f"passed over: {said}")


def page(snapshot: Snapshot, plan: Plan, estimates: documents.Estimates = lambda _: None) -> None:
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
    counts = dict.fromkeys(GangStatus, 0)
    for verdict in plan.verdicts.values():
        counts[verdict.standing] += 1
    head = Text(f"{count(len(plan.verdicts), 'gang')}", style="bold")
    ours = sum(node.managed for node in snapshot.nodes.nodes)
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
            coloured(verdict.standing.value),
            verdict.reason.value,
            _why(verdict, plan.placements.get(key)),
        )
    return table


def _starts(told: list[Estimate]) -> Columns:
    table = _table("WAITS", "WILL RUN")
    for each in told:
        table.add(each.gang, each.words)
    return table


def _why(verdict: Verdict, ticket: GangPlacement | None) -> Text:
    why = safe_text(verdict.message)
    if ticket is None:
        return why
    for word, places in (("on", ticket.placements), ("later on", ticket.pipelined)):
        if places:
            why.append_text(safe_text(f"; {word} {by_node(places.values())}", style="dim"))
    return why


def _evictions(plan: Plan) -> Columns:
    table = _table("MUST LEAVE", "NODE", "ACTION", "FOR")
    for order in plan.evictions:
        pod = safe_text(f"{order.namespace}/{order.name}", style="red")
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
