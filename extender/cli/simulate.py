"""`gang-extender simulate -f SCENARIO`: run a scenario under virtual time."""

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
from extender.sim.result import Simulated, span, split_figures, value
from extender.sim.scenario import ExternalInput, Scenario, check_ignored, ignored_fields
from extender.sim.traces import TraceSpec
from extender.text import shown
from extender.whatif.manifests import Objects

#: The taints of nodes for the control plane.
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def read_external(scenario: Scenario, folder: Path) -> tuple[ExternalInput, list[str]]:
    """Read the files that *scenario* names, relative to *folder*; remarks are for people."""
    external, remarks = ExternalInput(), list[str]()
    if scenario.snapshot is not None:
        external, remark = _saved(_beside(folder, scenario.snapshot))
        remarks.append(remark)
    if scenario.trace is not None:
        external, remark = _traced(scenario, scenario.trace, folder, external)
        remarks.append(remark)
    return external, remarks


def _beside(folder: Path, file: str) -> Path:
    if not file or "\0" in file:  # which no system call takes
        raise InvalidInput(f"{shown(file)} is no name of a file; give the one to read")
    return folder / file


def _saved(path: Path) -> tuple[ExternalInput, str]:
    changes = saved.read([str(path)], frozenset()).changes
    pods = sum(isinstance(change.item, SeenPod) for change in changes)
    objects = [change for change in changes if isinstance(change.item, Node | Queue)]
    cluster = Objects(changes=objects).snapshot()
    nodes = {node.name: replace(node, taints=()) for node in _usable(cluster.nodes.nodes)}
    # Without queues that exist by default, such as the default queue.
    queues = {change.item.name for change in objects if isinstance(change.item, Queue)}
    summary = f"{path}: {count(len(nodes), 'node')} and {count(len(queues), 'queue')}"
    if away := len(cluster.nodes.nodes) - len(nodes):
        summary += f"; left out: {count(away, 'node')} cordoned or of the control plane"
    if pods:
        summary += f"; left out: {count(pods, 'pod')}, because a simulation begins empty"
    return ExternalInput(nodes=nodes, queues=cluster.queues), summary


def _usable(nodes: Iterable[Node]) -> Iterable[Node]:
    """Yield nodes that pods of a scenario may use, which have no tolerations."""
    for node in nodes:
        if not node.is_closed and not any(taint.key in _CONTROL_PLANE for taint in node.taints):
            yield node


def _traced(
    scenario: Scenario, spec: TraceSpec, folder: Path, external: ExternalInput
) -> tuple[ExternalInput, str]:
    path = _beside(folder, spec.file)
    trace = traces.read(spec, path, scenarios.span_s(scenario))
    queues = dict(external.queues)
    if spec.queue is None:
        # Every queue of the trace exists, if only with default values.
        queues = {name: Queue(name=name) for name in trace.queues} | queues
    return replace(external, queues=queues, jobs=trace.jobs), f"{path}: {trace.sentence()}"


_DEFAULT_LABEL = "default policy"
#: The limit of a scenario's text.
_MAX_CHARS = 1_000_000


def _shipped() -> dict[str, str]:
    """Return the scenarios of this package, by name."""
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
    help="A scenario in YAML, or the name of an included one: deadlock, greedy-queue, "
    "starving-giant, node-loss, mixed-drf, ml-day, backfill.",
)
@click.option("--config", metavar="FILE", help="The policy file; without it the default policy.")
@click.option(
    "--compare",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another policy file to run over the same scenario and compare. May be repeated.",
)
@click.option("--seed", type=click.IntRange(0, 2**31), help="Another seed for random arrivals.")
@click.option(
    "--html",
    "html",
    metavar="FILE",
    help="Also write an HTML page: waits, shares and deserved shares, utilisation, gangs over time."
    " One file without external parts.",
)
def simulate(
    name: str,
    config: str | None,
    others: tuple[str, ...],
    seed: int | None,
    html: str | None,
) -> None:
    """Run a scenario under virtual time and print waits, fairness, utilisation and losses.

    \b
        gang-extender simulate -f starving-giant
        gang-extender simulate -f day.yaml --compare other.conf

    The planner, the reservations and permit are the real ones; nodes, pods and kube-scheduler are
    simulated. The same scenario gives the same bytes. It may replay a trace of another cluster
    (trace), and take nodes and queues from a saved one (snapshot).
    """
    scenario, external, remarks = read(name)
    if seed is not None:
        scenario.seed = seed
    files = [config or "", *others]
    policies = [(file or _DEFAULT_LABEL, PolicyFile(file).current()) for file in files]
    labels = [label for label, _ in policies]
    if len(set(labels)) < len(labels):
        raise InvalidInput("--compare: the same policy file twice; leave one of them out")
    if html is not None:
        _check_place(html)
    runs = [_run(scenario, external, label, policy) for label, policy in policies]
    head = _head(scenario, external, runs)
    _print(scenario, head, runs)
    for remark in remarks:
        print_error(f"gang-extender: {remark}")
    if html is not None:
        title = name if name in _shipped() else Path(name).name
        _write(html, page(title, scenario.about, head, runs))


def _run(scenario: Scenario, external: ExternalInput, label: str, policy: Policy) -> Simulated:
    simulation = Simulation(scenario, policy, external)
    with _without_logs(), _progress(label) as progress:
        result = simulation.run(progress)
    return Simulated(label, result, result.figures())


def _check_place(html: str) -> None:
    """Raise if a page cannot be written, before hours are simulated for it."""
    path = Path(html)
    try:
        if path.is_dir():
            raise InvalidInput(f"--html {html}: is a folder; name a file in it")
        if not path.parent.is_dir():
            raise InvalidInput(f"--html {html}: there is no folder {path.parent}; make it first")
    except OSError as error:
        raise _unwritten(html, error) from error


def _write(html: str, text: str) -> None:
    try:
        Path(html).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritten(html, error) from error


def _unwritten(html: str, error: OSError) -> InvalidInput:
    return InvalidInput(f"--html {html}: cannot be written: {error.strerror}")


def read(name: str) -> tuple[Scenario, ExternalInput, list[str]]:
    """Read a scenario and the files it names; remarks are for people."""
    text, folder = _text(name)
    scenario = scenarios.parse(text, name)
    try:
        external, remarks = read_external(scenario, folder)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    scenarios.check(scenario, external, name)
    check_ignored(scenario, name)
    return scenario, external, [*remarks, *ignored_fields(scenario, external)]


def _text(name: str) -> tuple[str, Path]:
    """Return the text of a scenario, and the directory of the files it names."""
    shipped, path = _shipped(), Path(name)
    if name in shipped:
        return shipped[name], Path()
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARS + 1)
    except OSError as error:
        known = ", ".join(shipped)
        raise InvalidInput(
            f"{name}: cannot be read: {error.strerror}; included scenarios are {known}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: is not text in UTF-8") from error
    if len(text) > _MAX_CHARS:
        raise InvalidInput(f"{name}: is longer than {_MAX_CHARS} characters; write less")
    return text, path.parent


@contextmanager
def _without_logs() -> Iterator[None]:
    """Log nothing: the log would be about a cluster that does not exist."""
    logger = logging.getLogger("extender")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show the progress on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda part: bar.update(task, completed=part)


def _head(scenario: Scenario, external: ExternalInput, runs: Sequence[Simulated]) -> str:
    nodes = len(scenarios.nodes_of(scenario, external))
    gangs = len(runs[0].result.runs)
    time = span(scenarios.span_s(scenario))
    return f"{time} of {count(nodes, 'node')} and {count(gangs, 'gang')}"


def _print(scenario: Scenario, head: str, runs: Sequence[Simulated]) -> None:
    terminal = Terminal()
    if scenario.about:
        terminal.lay_out(Text(scenario.about))
    terminal.lay_out(Text(head, style="bold"), Text())
    if len(runs) > 1:
        _compared(terminal, runs)
        return
    _waits(runs[0]).print(terminal)
    terminal.lay_out(Text())
    figures = Columns("FIGURE", "VALUE", numbers=("VALUE",))
    for name, figure in runs[0].figures.items():
        if not name.startswith("wait"):
            figures.add(name, value(name, figure))
    figures.print(terminal)


def _waits(run: Simulated) -> Columns:
    heads = ("GANGS", "STARTED", "P50", "P95", "MAX")
    table = Columns("QUEUE", "SIZE", *heads, numbers=heads)
    for (queue, size), each in run.result.waits().items():
        spans = (span(each.p50), span(each.p95), span(each.longest))
        table.add(queue, size, str(each.gangs), str(each.started), *spans)
    return table


def _compared(terminal: Terminal, runs: Sequence[Simulated]) -> None:
    labels = [each.label for each in runs]
    for title, part in zip(("what differs", "the same in all"), split_figures(runs), strict=True):
        table = Columns("FIGURE", *labels, numbers=labels, title=title)
        for name, values in part.items():
            table.add(name, *values)
        if part:
            table.print(terminal)
            terminal.lay_out(Text())
