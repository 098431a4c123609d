"""`gang-extender simulate -f SCENARIO`: how it would go, under virtual time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from extender.cli.printed.columns import Columns
from extender.cli.printed.terminal import Terminal
from extender.cli.show import count
from extender.errors import BadInput
from extender.policyfile import PolicyFile
from extender.sim import scenario as scenarios
from extender.sim.outcome import Outcome
from extender.sim.scenario import Scenario
from extender.sim.simulation import Simulation

#: Figures that are parts of something.
_PARTS = ("fairness", "utilisation", "work wasted")
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
    "starving-giant, node-loss, mixed-drf, ml-day.",
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
def simulate(name: str, config: str | None, others: tuple[str, ...], seed: int | None) -> None:
    """Run a scenario under virtual time and print waits, fairness, utilisation and losses.

    \b
        gang-extender simulate -f starving-giant
        gang-extender simulate -f day.yaml --compare other.conf

    The planner, the ledger and the barrier are the real ones; nodes, pods and kube-scheduler are
    simulated. The same scenario gives the same bytes.
    """
    scenario = _read(name)
    if seed is not None:
        scenario.seed = seed
    files = [config or "", *others]
    policies = [(file or _BASE, PolicyFile(file).current()) for file in files]
    labels = [label for label, _ in policies]
    if len(set(labels)) < len(labels):
        raise BadInput("--compare: the same policy file twice; leave one of them out")
    told: dict[str, dict[str, float]] = {}
    first: tuple[Simulation, Outcome] | None = None
    for label, policy in policies:
        simulation = Simulation(scenario, policy)
        with _silence(), _progress(label) as progress:
            outcome = simulation.run(progress)
        told[label] = outcome.figures(simulation.beginning)
        first = first or (simulation, outcome)
    if first is not None:
        _page(scenario, *first, told)


def _read(name: str) -> Scenario:
    shipped = _shipped()
    if name in shipped:
        return scenarios.read(shipped[name], name)
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        known = ", ".join(shipped)
        raise BadInput(
            f"{name}: cannot be read: {error.strerror}; scenarios that come with us are {known}"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: is not text in UTF-8") from error
    if len(text) > _MOST_LETTERS:
        raise BadInput(f"{name}: is longer than {_MOST_LETTERS} letters; write less")
    return scenarios.read(text, name)


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


def _page(
    scenario: Scenario,
    simulation: Simulation,
    outcome: Outcome,
    told: Mapping[str, Mapping[str, float]],
) -> None:
    terminal = Terminal()
    if scenario.about:
        terminal.lay_out(Text(scenario.about))
    nodes = sum(pool.count for pool in scenario.nodes)
    span = _time(scenarios.span_s(scenario))
    head = f"{span} of {count(nodes, 'node')} and {count(len(outcome.runs), 'gang')}"
    terminal.lay_out(Text(head, style="bold"), Text())
    if len(told) > 1:
        _compared(terminal, told)
        return
    _waits(simulation, outcome).print(terminal)
    terminal.lay_out(Text())
    figures = Columns("FIGURE", "VALUE", numbers=("VALUE",))
    for name, value in next(iter(told.values())).items():
        if not name.startswith("wait"):
            figures.add(name, _value(name, value))
    figures.print(terminal)


def _waits(simulation: Simulation, outcome: Outcome) -> Columns:
    heads = ("GANGS", "STARTED", "P50", "P95", "MAX")
    table = Columns("QUEUE", "SIZE", *heads, numbers=heads)
    for (queue, size), each in outcome.waits(simulation.beginning).items():
        spans = (_time(each.p50), _time(each.p95), _time(each.longest))
        table.add(queue, size, str(each.gangs), str(each.started), *spans)
    return table


def _compared(terminal: Terminal, told: Mapping[str, Mapping[str, float]]) -> None:
    rows = {
        name: [_value(name, each[name]) for each in told.values()]
        for name in next(iter(told.values()))
    }
    differs = {name: values for name, values in rows.items() if len(set(values)) > 1}
    same = {name: values for name, values in rows.items() if name not in differs}
    for title, part in (("what differs", differs), ("the same in all", same)):
        table = Columns("FIGURE", *told, numbers=told, title=title)
        for name, values in part.items():
            table.add(name, *values)
        if part:
            table.print(terminal)
            terminal.lay_out(Text())


def _value(name: str, value: float) -> str:
    if name.startswith("wait"):
        return _time(value)
    return f"{value:.1%}" if name.startswith(_PARTS) else f"{value:.0f}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"
