"""`gang-extender simulate -f SCENARIO`: how it would go, under virtual time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from extender.cache.changes import SeenPod
from extender.cli import saved
from extender.cli.output import Columns, Terminal, count, print_error
from extender.errors import InvalidInput
from extender.model.node import Node
from extender.model.queue import Queue
from extender.planner.policy import Policy
from extender.policy_file import PolicyFile
from extender.sim import scenario as scenarios, traces
from extender.sim.cluster import Simulation
from extender.sim.report import page
from extender.sim.result import Simulated, parted, span, value
from extender.sim.scenario import ExternalInput, Scenario, check_ignored, ignored_fields
from extender.sim.traces import TraceSpec
from extender.text import shown
from extender.whatif.manifests import Objects

#: What Kubernetes' own programs have for themselves.
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def taken(scenario: Scenario, folder: Path) -> tuple[ExternalInput, list[str]]:
    """Read the files that *scenario* names, as seen from *folder*; remarks are for people."""
    given, remarks = ExternalInput(), list[str]()
    if scenario.snapshot is not None:
        given, remark = _saved(_beside(folder, scenario.snapshot))
        remarks.append(remark)
    if scenario.trace is not None:
        given, remark = _traced(scenario, scenario.trace, folder, given)
        remarks.append(remark)
    return given, remarks


def _beside(folder: Path, file: str) -> Path:
    if not file or "\0" in file:  # which no system call takes
        raise InvalidInput(f"{shown(file)} is no name of a file; give the one to read")
    return folder / file


def _saved(path: Path) -> tuple[ExternalInput, str]:
    changes = saved.read([str(path)], frozenset()).changes
    pods = sum(isinstance(change.item, SeenPod) for change in changes)
    kept = [change for change in changes if isinstance(change.item, Node | Queue)]
    cluster = Objects(changes=kept).snapshot()
    nodes = {node.name: replace(node, taints=()) for node in _usable(cluster.nodes.nodes)}
    # Not those that are there without being written, such as the default queue.
    queues = {change.item.name for change in kept if isinstance(change.item, Queue)}
    told = f"{path}: {count(len(nodes), 'node')} and {count(len(queues), 'queue')}"
    if away := len(cluster.nodes.nodes) - len(nodes):
        told += f"; left out: {count(away, 'node')} shut or of the control plane"
    if pods:
        told += f"; left out: {count(pods, 'pod')}, because a simulation begins empty"
    return ExternalInput(nodes=nodes, queues=cluster.queues), told


def _usable(nodes: Iterable[Node]) -> Iterable[Node]:
    """Give those that pods of a scenario may use, which say nothing of what they tolerate."""
    for node in nodes:
        if not node.is_closed and not any(taint.key in _CONTROL_PLANE for taint in node.taints):
            yield node


def _traced(
    scenario: Scenario, wish: TraceSpec, folder: Path, given: ExternalInput
) -> tuple[ExternalInput, str]:
    path = _beside(folder, wish.file)
    trace = traces.read(wish, path, scenarios.span_s(scenario))
    queues = dict(given.queues)
    if wish.queue is None:
        # Whoever is in the trace has a queue, if only one like all the others.
        queues = {name: Queue(name=name) for name in trace.queues} | queues
    return replace(given, queues=queues, jobs=trace.jobs), f"{path}: {trace.sentence()}"


_BASE = "default policy"
#: Of a scenario's text.
_MOST_LETTERS = 1_000_000


def _shipped() -> dict[str, str]:
    """Give the scenarios that come with us, by name."""
    folder = resources.files("extender.sim") / "scenarios"
    found = {each.name.removesuffix(".yaml"): each for each in folder.iterdir()}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


@click.command()
@click.option(
    "-f",
    "--file",
    "name",
    required=True,
    metavar="SCENARIO",
    help="A scenario in YAML, or the name of one that comes with us: deadlock, greedy-queue, "
    "starving-giant, node-loss, mixed-drf, ml-day, backfill.",
)
@click.option("--config", metavar="FILE", help="The policy file; without it the default policy.")
@click.option(
    "--compare",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another policy file, run over the same scenario and put beside it. May be repeated.",
)
@click.option("--seed", type=click.IntRange(0, 2**31), help="Draw other arrivals.")
@click.option(
    "--html",
    "drawing",
    metavar="FILE",
    help="Write it as a page too: waits, shares against dues, utilisation, gangs over time. One "
    "file that needs nothing else.",
)
def simulate(
    name: str,
    config: str | None,
    others: tuple[str, ...],
    seed: int | None,
    drawing: str | None,
) -> None:
    """Run a scenario under virtual time and print waits, fairness, utilisation and losses.

    \b
        gang-extender simulate -f starving-giant
        gang-extender simulate -f day.yaml --compare other.conf

    The planner, the ledger and the barrier are the real ones; nodes, pods and kube-scheduler are
    simulated. The same scenario gives the same bytes. It may play a trace of another cluster
    (trace), and take nodes and queues from a saved one (snapshot).
    """
    scenario, given, remarks = read(name)
    if seed is not None:
        scenario.seed = seed
    files = [config or "", *others]
    policies = [(file or _BASE, PolicyFile(file).current()) for file in files]
    labels = [label for label, _ in policies]
    if len(set(labels)) < len(labels):
        raise InvalidInput("--compare: the same policy file twice; leave one of them out")
    if drawing is not None:
        _check_place(drawing)
    told = [_run(scenario, given, label, policy) for label, policy in policies]
    head = _head(scenario, given, told)
    _print(scenario, head, told)
    for remark in remarks:
        print_error(f"gang-extender: {remark}")
    if drawing is not None:
        title = name if name in _shipped() else Path(name).name
        _write(drawing, page(title, scenario.about, head, told))


def _run(scenario: Scenario, given: ExternalInput, label: str, policy: Policy) -> Simulated:
    simulation = Simulation(scenario, policy, given)
    with _silence(), _progress(label) as progress:
        outcome = simulation.run(progress)
    figures = outcome.figures(simulation.beginning)
    return Simulated(label, outcome, simulation.beginning, figures)


def _check_place(drawing: str) -> None:
    """Say that a page cannot be written before hours are simulated for it."""
    path = Path(drawing)
    try:
        if path.is_dir():
            raise InvalidInput(f"--html {drawing}: is a folder; name a file in it")
        if not path.parent.is_dir():
            raise InvalidInput(f"--html {drawing}: there is no folder {path.parent}; make it first")
    except OSError as error:
        raise _unwritten(drawing, error) from error


def _write(drawing: str, text: str) -> None:
    try:
        Path(drawing).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritten(drawing, error) from error


def _unwritten(drawing: str, error: OSError) -> InvalidInput:
    return InvalidInput(f"--html {drawing}: cannot be written: {error.strerror}")


def read(name: str) -> tuple[Scenario, ExternalInput, list[str]]:
    """Read a scenario and the files it names; remarks are for people."""
    text, folder = _text(name)
    scenario = scenarios.parse(text, name)
    try:
        given, remarks = taken(scenario, folder)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    scenarios.check(scenario, given, name)
    check_ignored(scenario, name)
    return scenario, given, [*remarks, *ignored_fields(scenario, given)]


def _text(name: str) -> tuple[str, Path]:
    """Give the text of a scenario, and where the files are that it names."""
    shipped, path = _shipped(), Path(name)
    if name in shipped:
        return shipped[name], Path()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_LETTERS + 1)
    except OSError as error:
        known = ", ".join(shipped)
        raise InvalidInput(
            f"{name}: cannot be read: {error.strerror}; scenarios that come with us are {known}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: is not text in UTF-8") from error
    if len(text) > _MOST_LETTERS:
        raise InvalidInput(f"{name}: is longer than {_MOST_LETTERS} letters; write less")
    return text, path.parent


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing: what the parts would tell is about a cluster that does not exist."""
    ours = logging.getLogger("extender")
    level = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ours.setLevel(level)


@contextmanager
def _progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show how far it is on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda part: bar.update(task, completed=part)


def _head(scenario: Scenario, given: ExternalInput, told: Sequence[Simulated]) -> str:
    nodes = len(scenarios.nodes_of(scenario, given))
    gangs = len(told[0].outcome.runs)
    time = span(scenarios.span_s(scenario))
    return f"{time} of {count(nodes, 'node')} and {count(gangs, 'gang')}"


def _print(scenario: Scenario, head: str, told: Sequence[Simulated]) -> None:
    terminal = Terminal()
    if scenario.about:
        terminal.lay_out(Text(scenario.about))
    terminal.lay_out(Text(head, style="bold"), Text())
    if len(told) > 1:
        _compared(terminal, told)
        return
    _waits(told[0]).print(terminal)
    terminal.lay_out(Text())
    figures = Columns("FIGURE", "VALUE", numbers=("VALUE",))
    for name, figure in told[0].figures.items():
        if not name.startswith("wait"):
            figures.add(name, value(name, figure))
    figures.print(terminal)


def _waits(told: Simulated) -> Columns:
    heads = ("GANGS", "STARTED", "P50", "P95", "MAX")
    table = Columns("QUEUE", "SIZE", *heads, numbers=heads)
    for (queue, size), each in told.outcome.waits(told.beginning).items():
        spans = (span(each.p50), span(each.p95), span(each.longest))
        table.add(queue, size, str(each.gangs), str(each.started), *spans)
    return table


def _compared(terminal: Terminal, told: Sequence[Simulated]) -> None:
    labels = [each.label for each in told]
    for title, part in zip(("what differs", "the same in all"), parted(told), strict=True):
        table = Columns("FIGURE", *labels, numbers=labels, title=title)
        for name, values in part.items():
            table.add(name, *values)
        if part:
            table.print(terminal)
            terminal.lay_out(Text())
