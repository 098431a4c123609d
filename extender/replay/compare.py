"""The differences between two plans of one snapshot, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from extender.planner.plan import Eviction, Plan, Verdict
from extender.text import clean, shown


class Difference(NamedTuple):
    """One decision that differs: its subject, its old and its new value."""

    about: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.about}: {self.was} then, {self.now} now"


#: Characters of a long value that are shown before the first difference, and from it on.
_BEFORE, _AFTER = 40, 80
_ACTIONS = ("direct_admission", "held_on_nodes", "missing_on_nodes")
_OWN_TEXT = ("placements", "evictions", "verdicts", "generation")
#: Figures and messages, which may differ while all decisions are equal.
_DETAILS = tuple(each.name for each in fields(Plan) if each.name not in (*_ACTIONS, *_OWN_TEXT))
_NAMES = {
    "direct_admission": "gangs that may start without a cycle, in queue",
    "held_on_nodes": "capacity reserved on node",
    "missing_on_nodes": "capacity to reserve when it is freed on node",
    "queues": "figures of queue",
    "shares": "figures of namespace share",
    "limits": "limits of queues",
    "total": "capacity of all nodes",
    "unused": "idle capacity",
    "held": "capacity reserved while idle",
    "brief_s": "longest duration of gangs that use reserved capacity",
}


def _name(name: str) -> str:
    return clean(name)[:120]


def plan_differences(was: Plan, now: Plan, *, in_words: bool = True) -> Iterator[Difference]:
    """Yield the differences: placements, evictions, verdicts, then the rest.

    Without *in_words*, messages and figures may differ.
    """
    yield from _placements(was, now)
    yield from _evictions(was, now)
    yield from _verdicts(was, now, in_words=in_words)
    for name in (*_ACTIONS, *(_DETAILS if in_words else ())):
        yield from _field(_NAMES.get(name, name), getattr(was, name), getattr(now, name))
    if in_words and was.generation != now.generation:
        yield Difference("generation", str(was.generation), str(now.generation))


def _placements(was: Plan, now: Plan) -> Iterator[Difference]:
    for key in sorted({*was.placements, *now.placements}):
        before, after = was.placements.get(key), now.placements.get(key)
        if before == after:
            continue
        nodes = [
            (dict(each.placements), dict(each.pipelined)) if each else ({}, {})
            for each in (before, after)
        ]
        old, new = (_nodes(*each) for each in nodes)
        if old == new:  # the same nodes for other members, or nodes that are not named
            old, new = (
                f"{text}, {member}"
                for text, member in zip((old, new), _first_moved(*nodes), strict=True)
            )
        yield Difference(f"gang {_name(key)}", old, new)


def _first_moved(
    was: Sequence[Mapping[Any, str]], now: Sequence[Mapping[Any, str]]
) -> tuple[str, str]:
    """Return the old and the new node of the first member whose node differs."""
    before, after = ({**later, **at_once} for at_once, later in (was, now))
    moved = [uid for uid in {*before, *after} if before.get(uid) != after.get(uid)]
    uid = min(moved, default="no member")
    old, new = (
        f"{_name(uid)} on {_name(each[uid])}" if uid in each else f"{_name(uid)} on no node"
        for each in (before, after)
    )
    return old, new


def _nodes(now: Mapping[Any, str], later: Mapping[Any, str]) -> str:
    if not now and not later:
        return "gets no nodes"
    parts = []
    for word, places in (("gets", now), ("waits for capacity on", later)):
        if places:
            nodes = sorted(set(places.values()))
            more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
            members = f"{len(places)} member{'s' * (len(places) > 1)}"
            parts.append(f"{word} {', '.join(map(_name, nodes[:3]))}{more} for {members}")
    return " and ".join(parts)


def _evictions(was: Plan, now: Plan) -> Iterator[Difference]:
    before = {each.uid: each for each in was.evictions}
    after = {each.uid: each for each in now.evictions}
    for uid in sorted({*before, *after}):
        if before.get(uid) != after.get(uid):
            either = before.get(uid) or after[uid]
            about = f"pod {_name(f'{either.namespace}/{either.name}')}"
            values = _eviction(before.get(uid)), _eviction(after.get(uid))
            if values[0] == values[1]:
                values = _distinct(before.get(uid), after.get(uid))
            yield Difference(about, *values)
    if before == after and was.evictions != now.evictions:
        yield Difference("evictions", "in another order", "in this one")


def _eviction(order: Eviction | None) -> str:
    return f"evicted for {_name(order.beneficiary)} ({order.action})" if order else "stays"


def _verdicts(was: Plan, now: Plan, *, in_words: bool) -> Iterator[Difference]:
    for key in sorted({*was.verdicts, *now.verdicts}):
        before, after = was.verdicts.get(key), now.verdicts.get(key)
        if before is None or after is None or _decided(before) != _decided(after):
            yield Difference(f"gang {_name(key)}", _status_of(before), _status_of(after))
        elif in_words and before != after:
            yield Difference(f"gang {_name(key)}", *_distinct(before, after))


def _decided(verdict: Verdict) -> tuple[object, ...]:
    return verdict.status, verdict.reason, verdict.phase, verdict.queue


def _status_of(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not there"
    queue = f"in queue {_name(verdict.queue)}"
    return f"{verdict.status.value} ({verdict.reason.value}, {verdict.phase.value}) {queue}"


def _field(about: str, was: Any, now: Any) -> Iterator[Difference]:
    if was == now:
        return
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}):
            if was.get(key) != now.get(key):
                yield Difference(f"{about} {_name(key)}", *_distinct(was.get(key), now.get(key)))
        return
    yield Difference(about, *_distinct(was, now))


def _distinct(was: Any, now: Any) -> tuple[str, str]:
    """Return two different values as texts that differ, however long the values are."""
    if is_dataclass(was) and type(was) is type(now):
        names = [each.name for each in fields(was)]
        changed = [name for name in names if getattr(was, name) != getattr(now, name)]
        texts = [(name, *_distinct(getattr(was, name), getattr(now, name))) for name in changed]
        old, new = (", ".join(f"{each[0]} {each[side]}" for each in texts) for side in (1, 2))
        return old, new
    old, new = shown(was), shown(now)
    if old == new:  # the difference was cut off
        whole = [clean(repr(each)) for each in (was, now)]
        at = next((at for at, (a, b) in enumerate(zip(*whole, strict=False)) if a != b), 0)
        old, new = (f"…{each[max(0, at - _BEFORE) : at + _AFTER]}…" for each in whole)
    return old, new
