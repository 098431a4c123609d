"""The states, timeouts and causes of waiting binds, from the state machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from extender.permit.messages import BACKS_OFF, Cause
from extender.permit.states import ATTEMPT_MOVES, BIND_MOVES, AttemptState, BindState
from extender.permit.timeouts import Timeouts
from tests.unit.docs.tables.parts import table


def _states(states: type[Enum], moves: Mapping[Enum, frozenset[Enum]], first: Enum) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for state in states:
        reached = [to.name for to in states if to in moves[state]] or ["[*]"]
        lines += [f"    {state.name} --> {name}" for name in reached]
    shown = table(("state", ""), ((state.name, str(state.value)) for state in states))
    return "\n".join([*lines, "```", "", shown])


def _causes() -> str:
    return table(
        ("cause", "sentence", "backs off"),
        ((f"`{cause.word}`", cause.text(), "yes" if cause in BACKS_OFF else "") for cause in Cause),
    )


def _limits() -> str:
    limits = Timeouts()
    return table(
        ("span", "seconds", ""),
        (
            ("hold", f"{limits.hold_s:g}", "for the rest of the gang"),
            (
                "verify",
                f"{limits.verify_s:g}",
                "for the last look, if it began before the hold was over",
            ),
            ("commit", f"{limits.commit_s:g}", "for the bindings"),
            ("margin", f"{limits.margin_s:g}", "never used on purpose"),
            ("together", f"{limits.bind_timeout_s:g}", "`httpTimeout`"),
        ),
    )


PARTS: Mapping[str, Callable[[], str]] = {
    "holds": partial(_states, BindState, BIND_MOVES, BindState.NEW),
    "assemblies": partial(_states, AttemptState, ATTEMPT_MOVES, AttemptState.ASSEMBLING),
    "causes": _causes,
    "limits": _limits,
}
