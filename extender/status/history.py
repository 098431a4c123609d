"""Recent history for pages and commands: queues, evictions and gangs.

Everything is bounded. The history of queues has one entry each half minute for an hour, and limits
for queues and resources. One thread writes; readers take a tuple, which is never changed.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from extender.model.gang import Gang, GangKey
from extender.model.pod import FINISHED_SET, SCHEDULED_SET, PodUid, Status
from extender.model.reason import Happening
from extender.model.resources import CPU, MEMORY, PODS, Resources
from extender.model.snapshot import Snapshot
from extender.planner.plan import STARTED, GangStatus, Plan, Verdict

EVERY_S = 30.0
HOUR_S = 3600.0
_MOST_MOMENTS = int(HOUR_S / EVERY_S) + 1
#: The first queues by name.
_MOST_QUEUES = 256
_MOST_RESOURCES = 4
#: Resources without shares of interest.
_IGNORED = (PODS, "ephemeral-storage")


class Figures(NamedTuple):
    """One resource of one queue at one moment."""

    at: float
    deserved: float
    used: float
    requested: float


class _Moment(NamedTuple):
    at: float
    #: Queue -> deserved, used and requested, of one resource after the other.
    queues: dict[str, array[float]]


class QueueHistory:
    """Deserved, used and requested amounts of queues in the last hour."""

    def __init__(self) -> None:
        self._resources: tuple[str, ...] = ()
        self._moments: tuple[_Moment, ...] = ()

    def note(self, plan: Plan, now: float) -> None:
        """Store the figures of a plan, if the last entry is old enough."""
        resources = main_resources(plan.total)
        if resources != self._resources:
            self._resources, self._moments = resources, ()
        if self._moments and 0 <= now - self._moments[-1].at < EVERY_S:
            return
        # After the clock was set back no entry may lie in the future.
        before = [each for each in self._moments if now - HOUR_S <= each.at < now]
        queues = {
            figures.name: array(
                "f",
                (
                    float(of.amount(name))
                    for name in resources
                    for of in (figures.deserved, figures.allocated, figures.requested)
                ),
            )
            for figures in islice(plan.queues.values(), _MOST_QUEUES)
        }
        self._moments = (*before[1 - _MOST_MOMENTS :], _Moment(now, queues))

    def of(self, queue: str, resource: str) -> list[Figures]:
        """Return the last hour of one resource of a queue, oldest first."""
        moments, resources = self._moments, self._resources
        if resource not in resources:
            return []
        at = 3 * resources.index(resource)
        return [
            Figures(each.at, *figures[at : at + 3])
            for each in moments
            if (figures := each.queues.get(queue)) is not None and len(figures) >= at + 3
        ]


def main_resources(total: Iterable[str] | Resources) -> tuple[str, ...]:
    """Return the resources to draw: cpu, memory, then extended resources of the cluster."""
    special = sorted(set(total) - {CPU, MEMORY, *_IGNORED})
    special = [name for name in special if not name.startswith("hugepages-")]
    known = [name for name in (CPU, MEMORY) if name in total]
    return (*known, *special)[:_MOST_RESOURCES]


_MOST = 500
_EVICTION_TEXT = 500
#: No answer yet.
ASKED = "asked"


class RecordedEviction(NamedTuple):
    """The eviction of one pod, or its refusal."""

    at: float
    #: `namespace/name`.
    pod: str
    gang: GangKey
    node: str
    #: reclaim or preempt.
    action: str
    beneficiary: GangKey
    why: str
    #: asked, evicted, blocked, failed, refused or dry-run.
    outcome: str = ASKED


class EvictionHistory:
    """The last evictions, the newest last."""

    def __init__(self) -> None:
        self._known: dict[PodUid, RecordedEviction] = {}

    def note(self, uid: PodUid, eviction: RecordedEviction) -> None:
        """Store the eviction of a pod, in place of an earlier one."""
        self._known.pop(uid, None)
        self._known[uid] = eviction._replace(why=eviction.why[:_EVICTION_TEXT])
        while len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)), None)

    def settled(self, uid: PodUid, outcome: str) -> None:
        """Store the outcome of an eviction."""
        eviction = self._known.get(uid)
        if eviction is not None:
            self._known[uid] = eviction._replace(outcome=outcome)

    def all(self) -> tuple[RecordedEviction, ...]:
        """Return the evictions, the newest first."""
        return tuple(self._known.values())[::-1]


_LINES = 40
_GANGS = 10_000
#: Limit over all gangs; the gang with the oldest first line is dropped first.
_ALL_LINES = 100_000
#: The lines are counted again after so many.
_COUNTED_AFTER = 1_000
_TEXT = 1_000
_COUNTED = {GangStatus.RUNNING: SCHEDULED_SET, GangStatus.FINISHED: FINISHED_SET}
_PENDING = frozenset({Status.PENDING})
#: A gang in none of these waits.
_SPANS = {each: each for each in STARTED}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The snapshot and the plan of one cycle."""

    snapshot: Snapshot
    plan: Plan


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event in the history of a gang; *word* is a `Reason` or a `Happening`."""

    #: Seconds since the epoch.
    at: float
    cycle: int
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """A gang with another status or reason than before."""

    verdict: Verdict
    #: None when the gang was not known.
    before: Verdict | None
    #: How long it had waited, or run, before.
    lasted_s: float
    #: The gang is gone; *verdict* was the last one.
    is_gone: bool = False


@dataclass(slots=True)
class _Since:
    """Since when a gang waits, runs or is over, and since when for its present reason.

    A gang that does not run waits. That it is admitted, invalid, or refused for another reason does
    not restart its wait.
    """

    status: float
    reason: float
    #: The uid of its PodGroup, empty without one.
    uid: str = ""

    def seen(self, gang: Gang | None, now: float) -> _Since:
        """Return the times for *gang*; one created again between two cycles starts anew."""
        uid = gang.group.uid if gang is not None else ""
        if gang is None or not uid or uid == self.uid:
            return self
        made = min(now, gang.group.created) if self.uid else 0.0
        return _Since(max(self.status, made), max(self.reason, made), uid)


class GangHistory:
    """The last cycle, and the history of every gang."""

    def __init__(self) -> None:
        self.last: CycleResult | None = None
        #: Number of past leadership terms.
        self.terms = 0
        self.queues = QueueHistory()
        self.evictions = EvictionHistory()
        self._entries: OrderedDict[GangKey, deque[HistoryEntry]] = OrderedDict()
        self._since: dict[GangKey, _Since] = {}
        #: Admitted gangs whose waiting binds are recorded.
        self._waiting: set[GangKey] = set()
        self._uncounted = 0

    def forget(self) -> None:
        """Drop the history of a term: in the next one other gangs may have the same names.

        The evictions are kept as long as the process lives.
        """
        self.last = None
        self.terms += 1
        self.queues = QueueHistory()
        self._entries, self._since, self._waiting = OrderedDict(), {}, set()

    def note(self, snapshot: Snapshot, plan: Plan) -> list[Change]:
        """Store a cycle and return what changed since the one before."""
        # Another thread calls `forget` at the end of a term.
        last = self.last
        earlier = last.plan.verdicts if last else {}
        changes, known = [], 0
        # This loop runs for every gang in every cycle, so it is kept minimal.
        for key, verdict in plan.verdicts.items():
            before = earlier.get(key)
            if before is not None:
                known += 1
                if before.reason is verdict.reason and before.status is verdict.status:
                    if verdict.status is GangStatus.ADMITTED:
                        self._record_waiting(snapshot, key)
                    continue
            changes.append(self._change(snapshot, verdict, before))
        if known < len(earlier):
            gone = sorted(earlier.keys() - plan.verdicts.keys())
            changes += [self._close(earlier[key], snapshot) for key in gone]
        self.queues.note(plan, snapshot.now)
        self.last = CycleResult(snapshot, plan)
        return changes

    def add_entry(self, key: GangKey, at: float, cycle: int, word: str, text: str) -> None:
        """Add a line to the history of a gang."""
        lines = self._entries.get(key)
        if lines is None:
            lines = self._entries[key] = deque(maxlen=_LINES)
            if len(self._entries) > _GANGS:
                self._entries.popitem(last=False)
        lines.append(HistoryEntry(at, cycle, word, text[:_TEXT]))
        self._uncounted += 1  # a lost update between two threads does no harm
        if self._uncounted >= _COUNTED_AFTER:
            self._uncounted = 0
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        kept = tuple(self._entries.items())
        surplus = sum(len(lines) for _, lines in kept) - _ALL_LINES
        for key, lines in kept:
            if surplus <= 0:
                break
            surplus -= len(lines)
            self._entries.pop(key, None)

    def entries(self, key: GangKey) -> tuple[HistoryEntry, ...]:
        """Return the history of a gang, oldest line first."""
        return tuple(self._entries.get(key, ()))

    def since(self, key: GangKey) -> float | None:
        """Return since when a gang waits, runs, or is over; None when unknown."""
        since = self._spans(key)
        return since.status if since is not None else None

    def reason_since(self, key: GangKey) -> float | None:
        """Return since when a gang has its present reason; None when unknown."""
        since = self._spans(key)
        return since.reason if since is not None else None

    def running_since(self, key: GangKey) -> float | None:
        """Return since when a gang runs; None when it does not."""
        last = self.last
        verdict = last.plan.verdicts.get(key) if last else None
        if verdict is None or verdict.status is not GangStatus.RUNNING:
            return None
        return self.since(key)

    def _spans(self, key: GangKey) -> _Since | None:
        since, last = self._since.get(key), self.last
        if since is None or last is None:
            return since
        return since.seen(last.snapshot.gangs.get(key), last.snapshot.now)

    def _close(self, verdict: Verdict, snapshot: Snapshot) -> Change:
        key, now = verdict.gang, snapshot.now
        self._waiting.discard(key)
        since = self._since.pop(key, None)
        if key in self._entries:
            self.add_entry(key, now, snapshot.generation, Happening.GONE, "the gang is gone")
        lasted_s = max(0.0, now - since.status) if since is not None else 0.0
        return Change(verdict, verdict, lasted_s, is_gone=True)

    def _change(self, snapshot: Snapshot, verdict: Verdict, before: Verdict | None) -> Change:
        key, now = verdict.gang, snapshot.now
        since = self._since.get(key)
        if since is None:
            began = _began(snapshot.gangs[key], verdict.status, now)
            since = _Since(began, began)
        since = self._since[key] = since.seen(snapshot.gangs.get(key), now)
        lasted_s = max(0.0, now - since.status)
        if before is not None:
            since.reason = now
            if _SPANS.get(before.status) is not _SPANS.get(verdict.status):
                since.status = now
        # Ordinary pods, and gangs that ran before this process, never waited here.
        if before is not None or verdict.status not in _SPANS:
            self.add_entry(key, now, snapshot.generation, verdict.reason.value, verdict.message)
        self._waiting.discard(key)
        if verdict.status is GangStatus.ADMITTED:
            self._record_waiting(snapshot, key)
        return Change(verdict, before, lasted_s)

    def _record_waiting(self, snapshot: Snapshot, key: GangKey) -> None:
        """Record once that binds of an admitted gang wait for its other members."""
        gang = snapshot.gangs.get(key)
        count = len(gang.by_status.get(Status.BINDING, ())) if gang is not None else 0
        if gang is None or not count or key in self._waiting:
            return
        self._waiting.add(key)
        least = gang.group.min_member
        text = f"binds of {count} of at least {least} members wait for the rest"
        self.add_entry(key, snapshot.now, snapshot.generation, Happening.HELD, text)


def _began(gang: Gang, status: GangStatus, now: float) -> float:
    """Return the start of a status from before this process, from times in the API server."""
    counted = _COUNTED.get(status, _PENDING)
    created = [pod.created for pod in gang.pods if pod.status in counted]
    return min(now, max([gang.group.created, *created]))
