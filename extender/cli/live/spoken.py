"""What an extender may say, field by field: whoever says anything else is none, or another one.

Only what is printed is named; an extender of another version may say more.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Amounts: TypeAlias = dict[str, str]


class _SaidScheduler(msgspec.Struct):
    name: str
    voice: str
    words: str = ""
    complaint: str = ""


class _SaidKept(msgspec.Struct):
    amounts: Amounts
    why: str


class _SaidEstimate(msgspec.Struct):
    words: str
    not_counted: str


class _SaidGang(msgspec.Struct):
    namespace: str
    name: str
    queue: str
    min_member: int
    members: int
    phase: str
    verdict: str
    reason: str
    message: str
    share: float
    placements: dict[str, str]
    pipelined: dict[str, str]


class _SaidQueue(msgspec.Struct):
    name: str
    weight: float
    deserved: Amounts
    allocated: Amounts
    own: Amounts
    requested: Amounts
    borrowed: Amounts
    share: float
    overused: bool


class _SaidShare(msgspec.Struct):
    queue: str
    namespace: str
    at_most: Amounts
    at_least: Amounts
    allocated: Amounts
    requested: Amounts


class _SaidPlan(msgspec.Struct):
    generation: int
    queues: list[_SaidQueue]
    shares: list[_SaidShare]
    gangs: list[_SaidGang]
    idle: Amounts
    kept: list[_SaidKept]
    schedulers: list[_SaidScheduler] = []


class _SaidNear(msgspec.Struct):
    node: str
    lacks: Amounts


class _SaidNeed(msgspec.Struct):
    members: int
    each: Amounts
    slots: int
    empty_slots: int
    obstacles: dict[str, int]
    nearest: list[_SaidNear]


class _SaidAhead(msgspec.Struct):
    gang: str
    queue: str
    why: str


class _SaidVictim(msgspec.Struct):
    pod: str
    node: str


class _SaidLine(msgspec.Struct):
    at: str
    word: str
    text: str


class _SaidExplanation(_SaidGang):
    priority: int
    lasted_s: float | None
    members_by_status: dict[str, int]
    queue_figures: _SaidQueue | None
    share_figures: _SaidShare | None
    needs: list[_SaidNeed]
    ahead: list[_SaidAhead]
    ahead_count: int
    victims: list[_SaidVictim]
    protected: dict[str, int]
    kept: list[_SaidKept]
    would_start_with: list[str]
    story: list[_SaidLine]
    reason_lasted_s: float | None = None
    schedulers: list[_SaidScheduler] = []
    estimate: _SaidEstimate | None = None
    is_trying: bool = False
    needs_count: int = 0


_SAID: dict[str, type[msgspec.Struct]] = {
    "Picture": _SaidPlan,
    "Explanation": _SaidExplanation,
}


def is_said(kind: str, found: Any) -> bool:
    """Ask whether *found* is a document of that kind which can be printed."""
    try:
        msgspec.convert(found, _SAID[kind])
    except msgspec.ValidationError:
        return False
    return True
