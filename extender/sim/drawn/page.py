"""The whole page: one file that asks for nothing else and runs no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources

from extender.sim.drawn import curves, gantt, tables
from extender.sim.drawn.markup import Markup, element, together
from extender.sim.drawn.spelled import Simulated


def page(name: str, about: str, head: str, told: Sequence[Simulated]) -> str:
    """Write the page of a scenario, under one policy or several."""
    title = f"{name}: a simulation"
    style = (resources.files(__package__) / "style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    top = together(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Names in it are of strangers: whatever they are, nothing is loaded and nothing runs.
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"default-src 'none'; style-src 'sha256-{digest}'",
        ),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element(
        "main",
        element("header", element("h1", name), element("p", about), element("p", head)),
        tables.compared(told) if len(told) > 1 else "",
        *(_policy(each, is_alone=len(told) == 1) for each in told),
        element(
            "footer",
            "Made by gang-extender simulate, under virtual time: a forecast, not a record.",
        ),
    )
    return f'<!doctype html>\n<html lang="en"><head>{top}</head><body>{body}</body></html>\n'


def _policy(told: Simulated, *, is_alone: bool) -> Markup:
    outcome = told.outcome
    cards = (
        ("Waits", tables.waits(told)),
        ("Shares of queues against their dues", curves.shares(outcome)),
        ("Utilisation", curves.utilisation(outcome)),
        ("Gangs", gantt.gantt(outcome, told.beginning)),
        ("Figures", tables.figures(told)),
    )
    head = element("h2", told.label, class_="policy") if not is_alone else ""
    level = "h2" if is_alone else "h3"
    return together(
        head,
        tables.glance(told),
        *(element("section", element(level, name), each, class_="card") for name, each in cards),
    )
