"""What each queue was due, used and wanted in the last hour, for whoever draws it.

Bounded in every way: a moment each half minute, an hour of them, so many queues and resources.
One thread notes; readers take the tuple, which is never changed.
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
from extender.planner.plan import GangStatus, Plan, Verdict

EVERY_S = 30.0
HOUR_S = 3600.0
_MOST_MOMENTS = int(HOUR_S / EVERY_S) + 1
#: The first by name.
_MOST_QUEUES = 256
_MOST_RESOURCES = 4
#: What people do not share out.
_UNSEEN = (PODS, "ephemeral-storage")


class Figures(NamedTuple):
    """One resource of one queue at one moment."""

    at: float
    deserved: float
    used: float
    requested: float


class _Moment(NamedTuple):
    at: float
    #: Queue -> due, used and wanted, of one resource after the other.
    queues: dict[str, array[float]]


class QueueHistory:
    """The last hour."""

    def __init__(self) -> None:
        self._resources: tuple[str, ...] = ()
        self._moments: tuple[_Moment, ...] = ()

    def note(self, plan: Plan, now: float) -> None:
        """Take in a plan, if the last one taken is old enough."""
        resources = main_resources(plan.total)
        if resources != self._resources:
            self._resources, self._moments = resources, ()
        if self._moments and 0 <= now - self._moments[-1].at < EVERY_S:
            return
        # A clock that was set back leaves no line that runs backwards.
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
        """Give the last hour of one resource of a queue, oldest first."""
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
    """Name the resources worth a bar: cpu, memory, then what is special to the cluster."""
    special = sorted(set(total) - {CPU, MEMORY, *_UNSEEN})
    special = [name for name in special if not name.startswith("hugepages-")]
    known = [name for name in (CPU, MEMORY) if name in total]
    return (*known, *special)[:_MOST_RESOURCES]


_MOST = 500
_EVICTION_TEXT = 500
#: Nobody has answered yet.
ASKED = "asked"


class RecordedEviction(NamedTuple):
    """One pod that leaves, or stays though it should have left."""

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
    """The last ones, the newest last."""

    def __init__(self) -> None:
        self._known: dict[PodUid, RecordedEviction] = {}

    def note(self, uid: PodUid, told: RecordedEviction) -> None:
        """Remember what is known of a pod now, in place of what was known before."""
        self._known.pop(uid, None)
        self._known[uid] = told._replace(why=told.why[:_EVICTION_TEXT])
        while len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)), None)

    def settled(self, uid: PodUid, outcome: str) -> None:
        """Note what became of one that was asked."""
        told = self._known.get(uid)
        if told is not None:
            self._known[uid] = told._replace(outcome=outcome)

    def all(self) -> tuple[RecordedEviction, ...]:
        """Give them, the newest first."""
        return tuple(self._known.values())[::-1]


_LINES = 40
_GANGS = 10_000
#: Of all gangs together; who was first heard of the longest ago is forgotten first.
_ALL_LINES = 100_000
#: They are counted again after so many.
_COUNTED_AFTER = 1_000
_TEXT = 1_000
_COUNTED = {GangStatus.RUNNING: SCHEDULED_SET, GangStatus.FINISHED: FINISHED_SET}
_PENDING = frozenset({Status.PENDING})
#: Who does none of these waits.
_SPANS = {each: each for each in (GangStatus.RUNNING, GangStatus.FINISHED)}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """One cycle: what it saw and what it decided."""

    snapshot: Snapshot
    plan: Plan


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One thing that happened to a gang: *word* is a reason, or what was done to it."""

    #: Seconds since the epoch.
    at: float
    cycle: int
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """A gang stands elsewhere than before, or for another reason."""

    verdict: Verdict
    #: None when the gang was not known.
    before: Verdict | None
    #: How long it had waited, or run, until now.
    lasted_s: float
    #: There is no such gang any more; *verdict* was the last.
    is_gone: bool = False


@dataclass(slots=True)
class _Since:
    """When a gang began to wait, to run or to be over, and when that got its present reason.

    Whoever does not run waits, whatever it is told meanwhile: to be admitted, or found invalid, or
    passed over for another reason than before makes no wait shorter.
    """

    stands: float
    reason: float
    #: The PodGroup of which it was noted, empty when there was none.
    uid: str = ""

    def seen(self, gang: Gang | None, now: float) -> _Since:
        """Give it for *gang*: one that was made anew between two passes began no sooner."""
        uid = gang.group.uid if gang is not None else ""
        if gang is None or not uid or uid == self.uid:
            return self
        made = min(now, gang.group.created) if self.uid else 0.0
        return _Since(max(self.stands, made), max(self.reason, made), uid)


class GangHistory:
    """The last pass, and the story of every gang so far."""

    def __init__(self) -> None:
        self.last: CycleResult | None = None
        #: Terms that are over.
        self.terms = 0
        self.history = QueueHistory()
        self.departures = EvictionHistory()
        self._lines: OrderedDict[GangKey, deque[JournalLine]] = OrderedDict()
        self._since: dict[GangKey, _Since] = {}
        #: Admitted gangs of which it was said that binds are held.
        self._held: set[GangKey] = set()
        self._uncounted = 0

    def forget(self) -> None:
        """Forget what a term was told: in the next one others may bear the same names.

        Who was asked to leave is told of as long as we live.
        """
        self.last = None
        self.terms += 1
        self.history = QueueHistory()
        self._lines, self._since, self._held = OrderedDict(), {}, set()

    def note(self, snapshot: Snapshot, plan: Plan) -> list[Change]:
        """Take in a pass and give what changed since the one before."""
        # Whoever ends a term forgets in another thread.
        last = self.last
        earlier = last.plan.verdicts if last else {}
        changes, known = [], 0
        # Every gang of the cluster passes here in every cycle, so this loop is kept bare.
        for key, verdict in plan.verdicts.items():
            before = earlier.get(key)
            if before is not None:
                known += 1
                if before.reason is verdict.reason and before.standing is verdict.standing:
                    if verdict.standing is GangStatus.ADMITTED:
                        self._look_for_holds(snapshot, key)
                    continue
            changes.append(self._change(snapshot, verdict, before))
        if known < len(earlier):
            gone = sorted(earlier.keys() - plan.verdicts.keys())
            changes += [self._close(earlier[key], snapshot) for key in gone]
        self.history.note(plan, snapshot.now)
        self.last = CycleResult(snapshot, plan)
        return changes

    def tell(self, key: GangKey, at: float, cycle: int, word: str, text: str) -> None:
        """Add a line to the story of a gang."""
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = deque(maxlen=_LINES)
            if len(self._lines) > _GANGS:
                self._lines.popitem(last=False)
        lines.append(JournalLine(at, cycle, word, text[:_TEXT]))
        self._uncounted += 1  # nobody minds if two threads count as one
        if self._uncounted >= _COUNTED_AFTER:
            self._uncounted = 0
            self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        kept = tuple(self._lines.items())
        surplus = sum(len(lines) for _, lines in kept) - _ALL_LINES
        for key, lines in kept:
            if surplus <= 0:
                break
            surplus -= len(lines)
            self._lines.pop(key, None)

    def story(self, key: GangKey) -> tuple[JournalLine, ...]:
        """Tell what happened to a gang, oldest line first."""
        return tuple(self._lines.get(key, ()))

    def since(self, key: GangKey) -> float | None:
        """Tell when a gang began to wait, to run, or to be over; None when it is not known."""
        since = self._spans(key)
        return since.stands if since is not None else None

    def reason_since(self, key: GangKey) -> float | None:
        """Tell since when that has its present reason; None when the gang is not known."""
        since = self._spans(key)
        return since.reason if since is not None else None

    def running_since(self, key: GangKey) -> float | None:
        """Tell since when a gang runs; None when it does not."""
        last = self.last
        verdict = last.plan.verdicts.get(key) if last else None
        if verdict is None or verdict.standing is not GangStatus.RUNNING:
            return None
        return self.since(key)

    def _spans(self, key: GangKey) -> _Since | None:
        since, last = self._since.get(key), self.last
        if since is None or last is None:
            return since
        return since.seen(last.snapshot.gangs.get(key), last.snapshot.now)

    def _close(self, verdict: Verdict, snapshot: Snapshot) -> Change:
        key, now = verdict.gang, snapshot.now
        self._held.discard(key)
        since = self._since.pop(key, None)
        if key in self._lines:
            self.tell(key, now, snapshot.generation, Happening.GONE, "the gang is gone")
        lasted_s = max(0.0, now - since.stands) if since is not None else 0.0
        return Change(verdict, verdict, lasted_s, is_gone=True)

    def _change(self, snapshot: Snapshot, verdict: Verdict, before: Verdict | None) -> Change:
        key, now = verdict.gang, snapshot.now
        since = self._since.get(key)
        if since is None:
            began = _began(snapshot.gangs[key], verdict.standing, now)
            since = _Since(began, began)
        since = self._since[key] = since.seen(snapshot.gangs.get(key), now)
        lasted_s = max(0.0, now - since.stands)
        if before is not None:
            since.reason = now
            if _SPANS.get(before.standing) is not _SPANS.get(verdict.standing):
                since.stands = now
        # Ordinary pods and gangs from before our time run without ever having had to wait.
        if before is not None or verdict.standing not in _SPANS:
            self.tell(key, now, snapshot.generation, verdict.reason.value, verdict.message)
        self._held.discard(key)
        if verdict.standing is GangStatus.ADMITTED:
            self._look_for_holds(snapshot, key)
        return Change(verdict, before, lasted_s)

    def _look_for_holds(self, snapshot: Snapshot, key: GangKey) -> None:
        """Say once that members of an admitted gang have come and wait for the others."""
        gang = snapshot.gangs.get(key)
        held = len(gang.by_status.get(Status.BINDING, ())) if gang is not None else 0
        if gang is None or not held or key in self._held:
            return
        self._held.add(key)
        least = gang.group.min_member
        text = f"{held} of at least {least} members have come; their binds are held for the rest"
        self.tell(key, snapshot.now, snapshot.generation, Happening.HELD, text)


def _began(gang: Gang, standing: GangStatus, now: float) -> float:
    """Date a standing that was there before we looked, from what the API server has written."""
    counted = _COUNTED.get(standing, _PENDING)
    created = [pod.created for pod in gang.pods if pod.status in counted]
    return min(now, max([gang.group.created, *created]))
