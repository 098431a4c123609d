"""All gangs: who stands where and why, filtered, sorted and cut into pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from extender.forecast.estimate import Estimate
from extender.forecast.forecaster import Forecaster
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.plan.decision import Standing, Verdict
from extender.reporting.journal import Journal, Pass
from extender.web.pages.asked import Asked, paged
from extender.web.pages.bars import Part, stack

SIZE = 50
FIELDS = ("find", "stands", "queue", "namespace", "reason", "sort")
COLUMNS = ("gang", "queue", "stands", "age", "members")

#: Who needs somebody first comes first.
_RANK = {
    Standing.INVALID: 0,
    Standing.WAITING: 1,
    Standing.ADMITTED: 2,
    Standing.RUNNING: 3,
    Standing.FINISHED: 4,
}
STANDINGS = tuple(each.value for each in _RANK)


@dataclass(frozen=True, slots=True)
class Headway:
    """How many members are how far, against how many it needs."""

    bound: int
    held: int
    promised: int
    least: int
    members: int
    parts: tuple[Part, ...]
    #: Where the minimum is.
    mark: float


@dataclass(frozen=True, slots=True)
class Row:
    """One gang in a table."""

    verdict: Verdict
    namespace: str
    name: str
    since: float | None
    progress: Headway
    #: When it will start, if it waits.
    estimate: Estimate | None = None


def progress(gang: Gang | None, verdict: Verdict) -> Headway:
    """Count members by how far they are."""
    by_status = gang.by_status if gang is not None else {}
    count = {status: len(pods) for status, pods in by_status.items()}
    bound = gang.firm if gang is not None else 0
    held = count.get(Status.BINDING, 0)
    promised = count.get(Status.ALLOCATED, 0) + count.get(Status.PIPELINED, 0)
    least = verdict.min_member
    whole = max(least, verdict.members, bound + held + promised, 1)
    parts = stack(whole, ("bound", bound), ("held", held), ("promised", promised))
    mark = round(100.0 * least / whole, 2)
    return Headway(bound, held, promised, least, verdict.members, parts, mark)


def row(
    verdict: Verdict, last: Pass, journal: Journal, forecaster: Forecaster | None = None
) -> Row:
    """Give one gang as a table shows it; with a *forecaster* it says when it starts."""
    namespace, _, name = verdict.gang.partition("/")
    done = progress(last.snapshot.gangs.get(verdict.gang), verdict)
    told = forecaster.estimate(last.snapshot, last.plan, verdict.gang) if forecaster else None
    return Row(verdict, namespace, name, journal.since(verdict.gang), done, told)


def counts(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Count gangs by where they stand."""
    return Counter(each.standing.value for each in verdicts)


def table(last: Pass, journal: Journal, forecaster: Forecaster, asked: Asked) -> dict[str, Any]:
    """Give the page of gangs that was asked for; only what is on it is worked out."""
    verdicts = last.plan.verdicts
    matches = _matches(asked)
    found = [each for each in verdicts.values() if matches(each)]
    stands = counts(found)
    if asked["stands"] in STANDINGS:
        found = [each for each in found if each.standing.value == asked["stands"]]
    found = _sorted(found, asked["sort"], journal.since)
    shown = paged(found, asked.page, SIZE)
    return {
        "shown": shown,
        "rows": [row(each, last, journal, forecaster) for each in shown.items],
        "stands": stands,
        "total": len(verdicts),
        "queues": sorted(last.plan.queues),
        "standings": STANDINGS,
        "columns": COLUMNS,
        "order": asked["sort"].lstrip("-") if asked["sort"].lstrip("-") in COLUMNS else "",
        "is_down": asked["sort"].startswith("-"),
    }


def _matches(asked: Asked) -> Callable[[Verdict], bool]:
    find, queue, reason = asked["find"].lower(), asked["queue"], asked["reason"]
    prefix = f"{asked['namespace']}/" if asked["namespace"] else ""

    def matches(verdict: Verdict) -> bool:
        if queue and verdict.queue != queue:
            return False
        if reason and verdict.reason.value != reason:
            return False
        if prefix and not verdict.gang.startswith(prefix):
            return False
        return not find or find in _text(verdict)

    return matches


def _sorted(
    verdicts: list[Verdict], by: str, since: Callable[[Any], float | None]
) -> list[Verdict]:
    column, is_down = by.lstrip("-"), by.startswith("-")
    keys: dict[str, Callable[[Verdict], Any]] = {
        "gang": lambda each: each.gang,
        "queue": lambda each: (each.queue, each.gang),
        "stands": lambda each: (_RANK[each.standing], each.reason.value, each.gang),
        # The oldest first, as those want that look for who waits too long.
        "age": lambda each: (since(each.gang) or 0.0, each.gang),
        "members": lambda each: (-each.min_member, -each.members, each.gang),
    }

    def first(each: Verdict) -> Any:
        return _RANK[each.standing], since(each.gang) or 0.0, each.gang

    return sorted(verdicts, key=keys.get(column, first), reverse=is_down and column in keys)


def _text(verdict: Verdict) -> str:
    return f"{verdict.gang} {verdict.queue} {verdict.reason.value}".lower()
