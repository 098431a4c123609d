"""All gangs: who stands where and why, filtered, sorted and cut into pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from extender.cache.reservation_table import Reservation, Stage
from extender.forecast.estimate import NOT_COUNTED, Estimate
from extender.forecast.forecaster import Forecaster
from extender.model.gang import IMPLICIT, Gang, GangKey
from extender.model.pod import Pod, Status
from extender.planner.explain.explain import Remedying, explain
from extender.planner.plan import GangStatus, Verdict
from extender.planner.policy import Policy
from extender.status.history import CycleResult, GangHistory, JournalLine, main_resources
from extender.web.background import TRYING
from extender.web.dashboard import charts
from extender.web.dashboard.charts import Part, stack
from extender.web.dashboard.format import QueryFields, paged

LIST_SIZE = 50
LIST_FIELDS = ("find", "stands", "queue", "namespace", "reason", "sort")
COLUMNS = ("gang", "queue", "stands", "age", "members")
#: Who needs somebody first comes first.
_RANK = {
    GangStatus.INVALID: 0,
    GangStatus.WAITING: 1,
    GangStatus.ADMITTED: 2,
    GangStatus.RUNNING: 3,
    GangStatus.FINISHED: 4,
}
STANDINGS = tuple(each.value for each in _RANK)


@dataclass(frozen=True, slots=True)
class Progress:
    """How many members are how far, against how many it needs."""

    bound: int
    waiting: int
    reserved: int
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
    progress: Progress
    #: When it will start, if it waits.
    estimate: Estimate | None = None


def progress(gang: Gang | None, verdict: Verdict) -> Progress:
    """Count members by how far they are."""
    by_status = gang.by_status if gang is not None else {}
    count = {status: len(pods) for status, pods in by_status.items()}
    bound = gang.bound_or_done if gang is not None else 0
    held = count.get(Status.BINDING, 0)
    promised = count.get(Status.ALLOCATED, 0) + count.get(Status.PIPELINED, 0)
    least = verdict.min_member
    whole = max(least, verdict.members, bound + held + promised, 1)
    parts = stack(whole, ("bound", bound), ("held", held), ("promised", promised))
    mark = round(100.0 * least / whole, 2)
    return Progress(bound, held, promised, least, verdict.members, parts, mark)


def row(
    verdict: Verdict, last: CycleResult, journal: GangHistory, forecaster: Forecaster | None = None
) -> Row:
    """Give one gang as a table shows it; with a *forecaster* it says when it starts."""
    namespace, _, name = verdict.gang.partition("/")
    done = progress(last.snapshot.gangs.get(verdict.gang), verdict)
    told = forecaster.estimate(last.snapshot, last.plan, verdict.gang) if forecaster else None
    return Row(verdict, namespace, name, journal.since(verdict.gang), done, told)


def counts(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Count gangs by where they stand."""
    return Counter(each.standing.value for each in verdicts)


def gang_list(
    last: CycleResult, journal: GangHistory, forecaster: Forecaster, asked: QueryFields
) -> dict[str, Any]:
    """Give the page of gangs that was asked for; only what is on it is worked out."""
    verdicts = last.plan.verdicts
    matches = _matches(asked)
    found = [each for each in verdicts.values() if matches(each)]
    stands = counts(found)
    if asked["stands"] in STANDINGS:
        found = [each for each in found if each.standing.value == asked["stands"]]
    found = _sorted(found, asked["sort"], journal.since)
    shown = paged(found, asked.page, LIST_SIZE)
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


def _matches(asked: QueryFields) -> Callable[[Verdict], bool]:
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


GANG_FIELDS = ()
#: Members on a page.
GANG_SIZE = 100
_DONE = {Status.SUCCEEDED: 0, Status.FAILED: 0, Status.RUNNING: 1, Status.BOUND: 2}
#: Words of a story by what they mean for the gang.
_GOOD, _LATE = ("Running", "Completed"), ("Admitted", "Held")
_BAD = ("Evict", "PartiallyBound", "Gone")


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One line of a story, and how long after the one before it came."""

    at: float
    word: str
    text: str
    after_s: float | None
    look: str
    cycle: int = 0


def gang_page(
    last: CycleResult,
    journal: GangHistory,
    policy: Policy,
    forecaster: Forecaster,
    remedied: Remedying,
    key: GangKey,
    asked: QueryFields,
) -> dict[str, Any] | None:
    """Give all there is to show of a gang; None when nobody knows it, not even its story."""
    story = journal.story(key)
    told = explain(last.snapshot, last.plan, policy, key, remedied)
    gang = last.snapshot.gangs.get(key)
    namespace, _, name = key.partition("/")
    about = {"key": key, "namespace": namespace, "name": name, "is_shadow": IMPLICIT in name}
    if told is None or gang is None:
        return {**about, "told": None, "steps": steps(None, story)} if story else None
    resources = main_resources(last.plan.total)
    ticket = last.plan.placements.get(key)
    placed = {**ticket.pipelined, **ticket.placements} if ticket else {}
    return {
        **about,
        "told": told,
        "is_trying": told.remedies == TRYING,
        "gang": gang,
        "verdict": told.verdict,
        "since": journal.since(key),
        "reason_since": journal.reason_since(key),
        "estimate": forecaster.estimate(last.snapshot, last.plan, key),
        "not_counted": NOT_COUNTED,
        "progress": progress(gang, told.verdict),
        "steps": steps(gang, story),
        "shown": paged(sorted(gang.pods, key=_order), asked.page, GANG_SIZE),
        "placed": placed,
        "fits": [charts.stack(max(1, each.members), ("bound", each.slots)) for each in told.needs],
        "bars": [
            charts.queue_bar(told.queue, each, charts.scale([told.queue], each, float("inf")))
            for each in resources
        ]
        if told.queue
        else [],
    }


def steps(gang: Gang | None, story: tuple[JournalLine, ...]) -> list[StoryStep]:
    """Tell a story oldest first; it begins with the making of the gang where that is known."""
    told: list[StoryStep] = []
    if gang is not None and gang.group.created and gang.group.dialect:
        told.append(
            StoryStep(gang.group.created, "Created", "the PodGroup was made", None, "plain")
        )
    for line in sorted(story, key=lambda each: each.at):
        after_s = line.at - told[-1].at if told else None
        told.append(StoryStep(line.at, line.word, line.text, after_s, _look(line.word), line.cycle))
    return told


def _look(word: str) -> str:
    if word in _GOOD:
        return "good"
    if word in _LATE:
        return "late"
    return "bad" if word in _BAD else "wait"


def _order(pod: Pod) -> tuple[int, str]:
    return _DONE.get(pod.status, 3), pod.name


BINDING_SIZE = 50
_ON_THEIR_WAY = (Status.ALLOCATED, Status.BINDING)
#: In the order in which they are passed through.
STAGES = {
    Stage.RESERVED: "promised",
    Stage.FILTERED: "passed filter",
    Stage.WAITING: "held",
    Stage.BINDING: "binding",
    Stage.UNKNOWN: "in doubt",
    Stage.BOUND: "bound, not yet seen",
}
#: Gives the promises to a gang, and the monotonic time of now.
Promises = Callable[[GangKey], tuple[Sequence[Reservation], float]]


@dataclass(frozen=True, slots=True)
class BindingRow:
    """One gang that is on its way."""

    row: Row
    stages: tuple[tuple[str, int], ...]
    #: How long the first of its promises has been at its stage.
    longest_s: float
    places: tuple[tuple[str, str, str, float], ...]


def binding_page(
    last: CycleResult, journal: GangHistory, promises: Promises, asked: QueryFields
) -> dict[str, Any]:
    """Give all gangs with promises that are not kept yet, the longest first."""
    keys = [
        key
        for key, gang in last.snapshot.gangs.items()
        if any(status in gang.by_status for status in _ON_THEIR_WAY)
    ]
    keys += sorted(last.plan.placements.keys() - set(keys))
    ways = []
    for key in keys:
        verdict = last.plan.verdicts.get(key)
        made, monotonic = promises(key)
        if verdict is not None and made:
            ways.append(_way(row(verdict, last, journal), made, monotonic))
    ways.sort(key=lambda each: -each.longest_s)
    held = sum(count for each in ways for stage, count in each.stages if stage == "held")
    return {"shown": paged(ways, asked.page, BINDING_SIZE), "held": held}


def _way(row: Row, promises: Sequence[Reservation], monotonic: float) -> BindingRow:
    counted = Counter(each.stage for each in promises)
    oldest = sorted(promises, key=lambda each: each.since_monotonic)
    return BindingRow(
        row,
        tuple((STAGES[stage], counted[stage]) for stage in STAGES if counted[stage]),
        max(0.0, monotonic - oldest[0].since_monotonic),
        tuple(
            (
                each.pod.name,
                each.node or "a node that kube-scheduler chooses",
                STAGES[each.stage],
                max(0.0, monotonic - each.since_monotonic),
            )
            for each in oldest[:20]
        ),
    )
