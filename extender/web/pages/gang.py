"""One gang: its story in time, the arithmetic of its wait, its members, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from extender.forecast.estimate import NOT_COUNTED
from extender.forecast.forecaster import Forecaster
from extender.model.gang import SHADOW, Gang, GangKey
from extender.model.pod import Pod, Status
from extender.plan.policy.options import Policy
from extender.plan.verdict.explain import Remedying, explain
from extender.reporting.history import main_resources
from extender.reporting.journal import Journal, JournalLine, Pass
from extender.web.pages import bars, gangs
from extender.web.pages.asked import Asked, paged
from extender.web.whatif.remedied import TRYING

FIELDS = ()
#: Members on a page.
SIZE = 100

_DONE = {Status.SUCCEEDED: 0, Status.FAILED: 0, Status.RUNNING: 1, Status.BOUND: 2}
#: Words of a story by what they mean for the gang.
_GOOD, _LATE = ("Running", "Completed"), ("Admitted", "Held")
_BAD = ("Evict", "BoundInPart", "Gone")


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One line of a story, and how long after the one before it came."""

    at: float
    word: str
    text: str
    after_s: float | None
    look: str
    cycle: int = 0


def page(
    last: Pass,
    journal: Journal,
    policy: Policy,
    forecaster: Forecaster,
    remedied: Remedying,
    key: GangKey,
    asked: Asked,
) -> dict[str, Any] | None:
    """Give all there is to show of a gang; None when nobody knows it, not even its story."""
    story = journal.story(key)
    told = explain(last.snapshot, last.plan, policy, key, remedied)
    gang = last.snapshot.gangs.get(key)
    namespace, _, name = key.partition("/")
    about = {"key": key, "namespace": namespace, "name": name, "is_shadow": SHADOW in name}
    if told is None or gang is None:
        return {**about, "told": None, "steps": steps(None, story)} if story else None
    resources = main_resources(last.plan.total)
    ticket = last.plan.tickets.get(key)
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
        "progress": gangs.progress(gang, told.verdict),
        "steps": steps(gang, story),
        "shown": paged(sorted(gang.pods, key=_order), asked.page, SIZE),
        "placed": placed,
        "fits": [bars.stack(max(1, each.members), ("bound", each.slots)) for each in told.needs],
        "bars": [
            bars.of_queue(told.queue, each, bars.scale([told.queue], each, float("inf")))
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
