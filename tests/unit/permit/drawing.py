"""Draws the tables and diagrams of docs/holds.md: `python -m tests.unit.permit.drawing`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from extender.holds.machine.assembly import ASSEMBLY_MOVES, HOLD_MOVES, AssemblyState, HoldState
from extender.holds.machine.cause import BACKS_OFF, Cause
from extender.holds.machine.limits import Limits

PAGE = Path(__file__).parents[3] / "docs" / "holds.md"

_PART = re.compile(r"(<!-- (\w+): drawn -->\n).*?(<!-- end -->)", re.DOTALL)


def draw(page: str) -> str:
    """Give *page* with every drawn part as the code has it now."""
    parts = {
        "holds": _states(HoldState, HOLD_MOVES, HoldState.NEW),
        "assemblies": _states(AssemblyState, ASSEMBLY_MOVES, AssemblyState.ASSEMBLING),
        "causes": _causes(),
        "limits": _limits(Limits()),
    }
    return _PART.sub(lambda part: f"{part[1]}{parts[part[2]]}{part[3]}", page)


def _states(states: type[Enum], moves: Mapping[Enum, frozenset[Enum]], first: Enum) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for state in states:
        reached = [to.name for to in states if to in moves[state]] or ["[*]"]
        lines += [f"    {state.name} --> {name}" for name in reached]
    lines += ["```", "", "| state | |", "|---|---|"]
    lines += [f"| {state.name} | {state.value} |" for state in states]
    return "\n".join(lines) + "\n"


def _causes() -> str:
    lines = ["| cause | sentence | backs off |", "|---|---|---|"]
    lines += [
        f"| `{cause.word}` | {cause.text()} | {'yes' if cause in BACKS_OFF else ''} |"
        for cause in Cause
    ]
    return "\n".join(lines) + "\n"


def _limits(limits: Limits) -> str:
    spans = [
        ("hold", limits.hold_s, "for the rest of the gang"),
        ("verify", limits.verify_s, "for the last look, if it began before the hold was over"),
        ("commit", limits.commit_s, "for the bindings"),
        ("margin", limits.margin_s, "never used on purpose"),
        ("together", limits.bind_timeout_s, "`httpTimeout`"),
    ]
    lines = ["| span | seconds | |", "|---|---|---|"]
    lines += [f"| {name} | {seconds:g} | {what} |" for name, seconds, what in spans]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(draw(PAGE.read_text()))
