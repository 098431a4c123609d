"""The gang pages: the list of gangs, one gang, and gangs with reservations or waiting binds."""

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
from extender.status.history import CycleResult, GangHistory, HistoryEntry, main_resources
from extender.web.background import TRYING
from extender.web.dashboard import charts
from extender.web.dashboard.charts import Part, stack
from extender.web.dashboard.format import QueryFields, paged

LIST_SIZE = 50
LIST_FIELDS = ("find", "status", "queue", "namespace", "reason", "sort")
COLUMNS = ("gang", "queue", "status", "age", "members")
#: Gangs that need attention come first.
_RANK = {
    GangStatus.INVALID: 0,
    GangStatus.WAITING: 1,
    GangStatus.ADMITTED: 2,
    GangStatus.RUNNING: 3,
    GangStatus.FINISHED: 4,
}
STATUSES = tuple(each.value for each in _RANK)


@dataclass(frozen=True, slots=True)
class Progress:
    """How many members are bound, waiting and reserved, and the minimum."""

    bound: int
    waiting: int
    reserved: int
    least: int
    members: int
    parts: tuple[Part, ...]
    #: The position of the minimum.
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
    """Count the members by stage."""
    by_status = gang.by_status if gang is not None else {}
    count = {status: len(pods) for status, pods in by_status.items()}
    bound = gang.bound_or_done if gang is not None else 0
    waiting = count.get(Status.BINDING, 0)
    reserved = count.get(Status.ALLOCATED, 0)
    least = verdict.min_member
    whole = max(least, verdict.members, bound + waiting + reserved, 1)
    parts = stack(whole, ("bound", bound), ("held", waiting), ("promised", reserved))
    mark = round(100.0 * least / whole, 2)
    return Progress(bound, waiting, reserved, least, verdict.members, parts, mark)


def row(
    verdict: Verdict, last: CycleResult, history: GangHistory, forecaster: Forecaster | None = None
) -> Row:
    """Return one gang as a row of a table; with a *forecaster* it has a start estimate."""
    namespace, _, name = verdict.gang.partition("/")
    done = progress(last.snapshot.gangs.get(verdict.gang), verdict)
    estimate = forecaster.estimate(last.snapshot, last.plan, verdict.gang) if forecaster else None
    return Row(verdict, namespace, name, history.since(verdict.gang), done, estimate)


def counts(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Count gangs by status."""
    return Counter(each.status.value for each in verdicts)


def gang_list(
    last: CycleResult, history: GangHistory, forecaster: Forecaster, fields: QueryFields
) -> dict[str, Any]:
    """Return the variables of the gang list; only rows on the page are computed."""
    verdicts = last.plan.verdicts
    matches = _matches(fields)
    found = [each for each in verdicts.values() if matches(each)]
    found_by_status = counts(found)
    if fields["status"] in STATUSES:
        found = [each for each in found if each.status.value == fields["status"]]
    found = _sorted(found, fields["sort"], history.since)
    shown = paged(found, fields.page, LIST_SIZE)
    return {
        "shown": shown,
        "rows": [row(each, last, history, forecaster) for each in shown.items],
        "counts": found_by_status,
        "total": len(verdicts),
        "queues": sorted(last.plan.queues),
        "statuses": STATUSES,
        "columns": COLUMNS,
        "order": fields["sort"].lstrip("-") if fields["sort"].lstrip("-") in COLUMNS else "",
        "is_down": fields["sort"].startswith("-"),
    }


def _matches(fields: QueryFields) -> Callable[[Verdict], bool]:
    find, queue, reason = fields["find"].lower(), fields["queue"], fields["reason"]
    prefix = f"{fields['namespace']}/" if fields["namespace"] else ""

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
        "status": lambda each: (_RANK[each.status], each.reason.value, each.gang),
        # The oldest first: people look for gangs that wait too long.
        "age": lambda each: (since(each.gang) or 0.0, each.gang),
        "members": lambda each: (-each.min_member, -each.members, each.gang),
    }

    def first(each: Verdict) -> Any:
        return _RANK[each.status], since(each.gang) or 0.0, each.gang

    return sorted(verdicts, key=keys.get(column, first), reverse=is_down and column in keys)


def _text(verdict: Verdict) -> str:
    return f"{verdict.gang} {verdict.queue} {verdict.reason.value}".lower()


#: Members on a page.
GANG_SIZE = 100
_DONE = {Status.SUCCEEDED: 0, Status.FAILED: 0, Status.RUNNING: 1, Status.BOUND: 2}
#: Words of a history by their meaning for the gang.
_GOOD, _LATE = ("Running", "Completed"), ("Admitted", "Held")
_BAD = ("Evict", "PartiallyBound", "Gone")


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One line of a gang's history, and the time since the line before."""

    at: float
    word: str
    text: str
    after_s: float | None
    look: str
    cycle: int = 0


def gang_page(
    last: CycleResult,
    history: GangHistory,
    policy: Policy,
    forecaster: Forecaster,
    remedied: Remedying,
    key: GangKey,
    fields: QueryFields,
) -> dict[str, Any] | None:
    """Return the variables of the page of a gang; None if neither the gang nor a history exists."""
    story = history.entries(key)
    explanation = explain(last.snapshot, last.plan, policy, key, remedied)
    gang = last.snapshot.gangs.get(key)
    namespace, _, name = key.partition("/")
    about = {"key": key, "namespace": namespace, "name": name, "is_shadow": IMPLICIT in name}
    if explanation is None or gang is None:
        return {**about, "explanation": None, "steps": steps(None, story)} if story else None
    resources = main_resources(last.plan.total)
    placement = last.plan.placements.get(key)
    placed = {**placement.pipelined, **placement.placements} if placement else {}
    return {
        **about,
        "explanation": explanation,
        "is_trying": explanation.remedies == TRYING,
        "gang": gang,
        "verdict": explanation.verdict,
        "since": history.since(key),
        "reason_since": history.reason_since(key),
        "estimate": forecaster.estimate(last.snapshot, last.plan, key),
        "not_counted": NOT_COUNTED,
        "progress": progress(gang, explanation.verdict),
        "steps": steps(gang, story),
        "shown": paged(sorted(gang.pods, key=_order), fields.page, GANG_SIZE),
        "placed": placed,
        "fits": [
            charts.stack(max(1, each.members), ("bound", each.slots)) for each in explanation.needs
        ],
        "bars": [
            charts.queue_bar(
                explanation.queue, each, charts.scale([explanation.queue], each, float("inf"))
            )
            for each in resources
        ]
        if explanation.queue
        else [],
    }


def steps(gang: Gang | None, story: tuple[HistoryEntry, ...]) -> list[HistoryStep]:
    """Return a history oldest first; it begins with the creation of the PodGroup, if known."""
    entries: list[HistoryStep] = []
    if gang is not None and gang.group.created and gang.group.dialect:
        entries.append(
            HistoryStep(gang.group.created, "Created", "the PodGroup was created", None, "plain")
        )
    for line in sorted(story, key=lambda each: each.at):
        after_s = line.at - entries[-1].at if entries else None
        entries.append(
            HistoryStep(line.at, line.word, line.text, after_s, _look(line.word), line.cycle)
        )
    return entries


def _look(word: str) -> str:
    if word in _GOOD:
        return "good"
    if word in _LATE:
        return "late"
    return "bad" if word in _BAD else "wait"


def _order(pod: Pod) -> tuple[int, str]:
    return _DONE.get(pod.status, 3), pod.name


BINDING_SIZE = 50
_BINDING_STATUSES = (Status.ALLOCATED, Status.BINDING)
#: In the order of a pod's way to its node.
STAGES = {
    Stage.RESERVED: "reserved",
    Stage.FILTERED: "admitted by filter",
    Stage.WAITING: "waiting",
    Stage.BINDING: "binding",
    Stage.UNKNOWN: "unknown",
    Stage.BOUND: "bound, not yet seen",
}
#: Returns the reservations of a gang and the current monotonic time.
Reservations = Callable[[GangKey], tuple[Sequence[Reservation], float]]


@dataclass(frozen=True, slots=True)
class BindingRow:
    """One gang with reservations."""

    row: Row
    stages: tuple[tuple[str, int], ...]
    #: How long the oldest of its reservations has been at its stage.
    longest_s: float
    places: tuple[tuple[str, str, str, float], ...]


def binding_page(
    last: CycleResult, history: GangHistory, reservations: Reservations, fields: QueryFields
) -> dict[str, Any]:
    """Return the variables of the binding page: all gangs with reservations, the oldest first."""
    keys = [
        key
        for key, gang in last.snapshot.gangs.items()
        if any(status in gang.by_status for status in _BINDING_STATUSES)
    ]
    keys += sorted(last.plan.placements.keys() - set(keys))
    rows = []
    for key in keys:
        verdict = last.plan.verdicts.get(key)
        made, monotonic = reservations(key)
        if verdict is not None and made:
            rows.append(_binding_row(row(verdict, last, history), made, monotonic))
    rows.sort(key=lambda each: -each.longest_s)
    waiting = sum(
        count for each in rows for stage, count in each.stages if stage == STAGES[Stage.WAITING]
    )
    return {"shown": paged(rows, fields.page, BINDING_SIZE), "waiting": waiting}


def _binding_row(row: Row, reservations: Sequence[Reservation], monotonic: float) -> BindingRow:
    counted = Counter(each.stage for each in reservations)
    oldest = sorted(reservations, key=lambda each: each.since_monotonic)
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
