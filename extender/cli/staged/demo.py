"""`gang-extender demo`: a real extender, an embedded cluster, and a story that ends by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import click
from rich.text import Text

from extender import logs
from extender.cli.printed.columns import Columns
from extender.cli.printed.terminal import Terminal
from extender.cli.show import count
from extender.cli.staged.narrators import Narrator, narrator_for
from extender.cli.typed.seconds import Seconds
from extender.embedded.form import GangForm
from extender.embedded.formport import with_form
from extender.embedded.running import Embedded
from extender.sim.story import stage_set
from extender.sim.story.acts import ACTS
from extender.sim.story.telling import Act, ActOutcome, StoryBroken, Telling


@click.command()
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    metavar="N",
    type=Seconds(min=0.1, max=100),
    help="Tell it so many times as fast.",
)
@click.option("--story", "name", type=click.Choice(list(ACTS)), help="Tell this act alone.")
@click.option(
    "--keep",
    is_flag=True,
    help="Stay up afterwards, with a form on the page to submit gangs of your own.",
)
def demo(speed: float, name: str | None, keep: bool) -> None:
    """Watch gangs start whole, share, lend and never starve, without any cluster.

    \b
        gang-extender demo --speed 2
        gang-extender demo --story giant
        gang-extender demo --keep

    The extender is the real one, asked over HTTP; nodes, pods and kube-scheduler live in this
    process. The dashboard is at the address that is shown. On a terminal of 60 columns and 20
    lines there is a picture, elsewhere lines. Whatever an act says is checked against what
    happened; if it is not so, the exit code is 1.
    """
    logs.set_up("error")
    # What is refused because everything ends is no news here.
    logging.getLogger("extender").setLevel(logging.CRITICAL)
    terminal = Terminal()
    acts = [ACTS[name]] if name else list(ACTS.values())
    began = time.monotonic()
    form = GangForm() if keep else None
    with Embedded(with_form(form)) as embedded:
        stage_set.build(embedded.cluster)
        narrator = narrator_for(terminal, embedded)
        with narrator:
            outcomes = _tell(acts, Telling(embedded, narrator.say, speed), narrator)
        _sum_up(terminal, outcomes, time.monotonic() - began)
        if form is not None:
            form.open(embedded.tenants)
            _stay(narrator, f"{embedded.address}{form.PATH}")


def _tell(acts: Sequence[Act], telling: Telling, narrator: Narrator) -> list[ActOutcome]:
    outcomes = []
    for number, act in enumerate(acts, 1):
        narrator.begin(f"act {number} of {len(acts)}: {act.title}", number, len(acts))
        outcomes.append(telling.tell(act))
    return outcomes


def _sum_up(terminal: Terminal, outcomes: Sequence[ActOutcome], seconds: float) -> None:
    """Say what was claimed and seen; an act that came out otherwise ends all of it."""
    table = Columns("act", "what was seen", head_style="bold", title="in the end")
    for outcome in outcomes:
        seen = [*outcome.claims, *([f"BROKEN: {outcome.broken}"] if outcome.broken else [])]
        for number, claim in enumerate(seen):
            table.add("" if number else outcome.act.name, claim)
    terminal.lay_out(Text())
    table.print(terminal)
    broken = [each for each in outcomes if each.broken]
    claims = sum(len(each.claims) for each in outcomes)
    if broken:
        why = "; ".join(f"{each.act.name}: {each.broken}" for each in broken)
        raise StoryBroken(
            f"the demo did not come out as told: {why}; run it again, or report it with its output"
        )
    terminal.lay_out(
        Text(
            f"{count(len(outcomes), 'act')} came out as told in {seconds:.0f} s,"
            f" {count(claims, 'claim')} checked."
        )
    )


def _stay(narrator: Narrator, address: str) -> None:
    """Let people submit gangs until they have enough."""
    with narrator:
        narrator.begin("your turn", 0, 0)
        narrator.say(f"Submit gangs of your own at {address} and watch them here. Ctrl-C ends it.")
        threading.Event().wait()
