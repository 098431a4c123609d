"""What two plans of one moment decide differently, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from extender.planner.plan import Eviction, Plan, Verdict
from extender.text import clean, shown


class Difference(NamedTuple):
    """One decision that differs: about what, what it was and what it is now."""

    about: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.about}: {self.was} then, {self.now} now"


#: Of what is too long to be told, so many letters before the first that differs, and from it on.
_BEFORE, _BEHIND = 40, 80
#: Figures and sentences: they follow from the policy even where nothing else does.
_DETAILS = ("queues", "shares", "limits", "total", "unused", "held", "brief_s")
_ACTIONS = ("direct_admission", "reservations", "reservations_missing")
_NAMES = {
    "direct_admission": "who may start without waiting for a pass, in queue",
    "reservations": "room kept on node",
    "reservations_missing": "room to be kept as it becomes free on node",
    "queues": "the figures of queue",
    "shares": "the figures of namespace share",
    "limits": "limits of queues",
    "total": "what all nodes have",
    "unused": "what is idle",
    "held": "what is kept idle",
    "brief_s": "how long whoever uses kept room may stay",
}


def _name(name: str) -> str:
    return clean(name)[:120]


def plan_differences(was: Plan, now: Plan, *, in_words: bool = True) -> Iterator[Difference]:
    """Name what differs: who starts where, who must leave, who waits and why, then the rest.

    Without *in_words*, sentences and figures may differ.
    """
    yield from _placements(was, now)
    yield from _evictions(was, now)
    yield from _verdicts(was, now, in_words=in_words)
    for name in (*_ACTIONS, *(_DETAILS if in_words else ())):
        yield from _field(_NAMES[name], getattr(was, name), getattr(now, name))
    if in_words and was.generation != now.generation:
        yield Difference("generation", str(was.generation), str(now.generation))


def compared_fields() -> set[str]:
    """Name the fields of a plan that are looked at, for those who add one."""
    return {"placements", "evictions", "verdicts", "generation", *_ACTIONS, *_DETAILS}


def _placements(was: Plan, now: Plan) -> Iterator[Difference]:
    for key in sorted({*was.placements, *now.placements}):
        before, after = was.placements.get(key), now.placements.get(key)
        if before == after:
            continue
        places = [
            (dict(ticket.placements), dict(ticket.pipelined)) if ticket else ({}, {})
            for ticket in (before, after)
        ]
        olds, news = (_nodes(*each) for each in places)
        if olds == news:  # the same nodes, for other members, or some that are not named
            olds, news = (
                f"{said}, {member}"
                for said, member in zip((olds, news), _first_moved(*places), strict=True)
            )
        yield Difference(f"gang {_name(key)}", olds, news)


def _first_moved(
    was: Sequence[Mapping[Any, str]], now: Sequence[Mapping[Any, str]]
) -> tuple[str, str]:
    """Say of the first member that does not go where it went where that is."""
    before, after = ({**later, **at_once} for at_once, later in (was, now))
    moved = [uid for uid in {*before, *after} if before.get(uid) != after.get(uid)]
    uid = min(moved, default="nobody")
    olds, news = (
        f"{_name(uid)} on {_name(each[uid])}" if uid in each else f"{_name(uid)} nowhere"
        for each in (before, after)
    )
    return olds, news


def _nodes(now: Mapping[Any, str], later: Mapping[Any, str]) -> str:
    if not now and not later:
        return "gets no nodes"
    said = []
    for word, places in (("gets", now), ("waits for room on", later)):
        if places:
            nodes = sorted(set(places.values()))
            more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
            members = f"{len(places)} member{'s' * (len(places) > 1)}"
            said.append(f"{word} {', '.join(map(_name, nodes[:3]))}{more} for {members}")
    return " and ".join(said)


def _evictions(was: Plan, now: Plan) -> Iterator[Difference]:
    before = {each.uid: each for each in was.evictions}
    after = {each.uid: each for each in now.evictions}
    for uid in sorted({*before, *after}):
        if before.get(uid) != after.get(uid):
            either = before.get(uid) or after[uid]
            about = f"pod {_name(f'{either.namespace}/{either.name}')}"
            fates = _fate(before.get(uid)), _fate(after.get(uid))
            if fates[0] == fates[1]:
                fates = _distinct(before.get(uid), after.get(uid))
            yield Difference(about, *fates)
    if before == after and was.evictions != now.evictions:
        yield Difference("who must leave", "in another order", "in this one")


def _fate(order: Eviction | None) -> str:
    return f"must leave for {_name(order.beneficiary)} ({order.action})" if order else "stays"


def _verdicts(was: Plan, now: Plan, *, in_words: bool) -> Iterator[Difference]:
    for key in sorted({*was.verdicts, *now.verdicts}):
        before, after = was.verdicts.get(key), now.verdicts.get(key)
        if before is None or after is None or _decided(before) != _decided(after):
            yield Difference(f"gang {_name(key)}", _standing(before), _standing(after))
        elif in_words and before != after:
            yield Difference(f"gang {_name(key)}", *_distinct(before, after))


def _decided(verdict: Verdict) -> tuple[object, ...]:
    return verdict.standing, verdict.reason, verdict.phase, verdict.queue


def _standing(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not there"
    queue = f"in queue {_name(verdict.queue)}"
    return f"{verdict.standing.value} ({verdict.reason.value}, {verdict.phase.value}) {queue}"


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
    """Write two values that differ so that it can be seen, however long they are."""
    if is_dataclass(was) and type(was) is type(now):
        names = [each.name for each in fields(was)]
        changed = [name for name in names if getattr(was, name) != getattr(now, name)]
        told = [(name, *_distinct(getattr(was, name), getattr(now, name))) for name in changed]
        olds, news = (", ".join(f"{each[0]} {each[side]}" for each in told) for side in (1, 2))
        return olds, news
    olds, news = shown(was), shown(now)
    if olds == news:  # what differs was cut away
        whole = [clean(repr(each)) for each in (was, now)]
        at = next((at for at, (a, b) in enumerate(zip(*whole, strict=False)) if a != b), 0)
        olds, news = (f"…{each[max(0, at - _BEFORE) : at + _BEHIND]}…" for each in whole)
    return olds, news
