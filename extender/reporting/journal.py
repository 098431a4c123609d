"""The story behind "why is it waiting?": what was said of each gang, and when it changed.

Rule 1: a line is written when something changes, never because time has passed.
Rule 2: everything here is bounded: the gangs, the lines of a gang, the text of a line.
Rule 3: one thread notes passes; others may add lines and read at any time. Each of these is a
single step of a dict or a deque, so nobody needs a lock (and a cache of cachetools would need one).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from extender.model.gang import Gang, GangKey
from extender.model.pod import SEATED_SET, Status
from extender.model.reason import Happening
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, Standing, Verdict

_LINES = 40
_GANGS = 10_000
_TEXT = 1_000


@dataclass(frozen=True, slots=True)
class Pass:
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
    #: How long the earlier standing lasted.
    lasted_s: float


class Journal:
    """The last pass, and the story of every gang so far."""

    def __init__(self) -> None:
        self.last: Pass | None = None
        self._lines: OrderedDict[GangKey, deque[JournalLine]] = OrderedDict()
        self._since: dict[GangKey, float] = {}

    def note(self, snapshot: Snapshot, plan: Plan) -> list[Change]:
        """Take in a pass and give what changed since the one before."""
        earlier = self.last.plan.verdicts if self.last else {}
        changes, known = [], 0
        # Every gang of the cluster passes here in every cycle, so this loop is kept bare.
        for key, verdict in plan.verdicts.items():
            before = earlier.get(key)
            if before is not None:
                known += 1
                if before.reason is verdict.reason and before.standing is verdict.standing:
                    continue
            changes.append(self._change(snapshot, verdict, before))
        if known < len(earlier):
            for key in earlier.keys() - plan.verdicts.keys():
                self._close(key, snapshot)
        self.last = Pass(snapshot, plan)
        return changes

    def tell(self, key: GangKey, at: float, cycle: int, word: str, text: str) -> None:
        """Add a line to the story of a gang."""
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = deque(maxlen=_LINES)
            if len(self._lines) > _GANGS:
                self._lines.popitem(last=False)
        lines.append(JournalLine(at, cycle, word, text[:_TEXT]))

    def story(self, key: GangKey) -> tuple[JournalLine, ...]:
        """Tell what happened to a gang, oldest line first."""
        return tuple(self._lines.get(key, ()))

    def since(self, key: GangKey) -> float | None:
        """Tell when a gang came to stand where it stands; None when it is not known."""
        return self._since.get(key)

    def running_since(self, key: GangKey) -> float | None:
        """Tell since when a gang runs; None when it does not."""
        verdict = self.last.plan.verdicts.get(key) if self.last else None
        if verdict is None or verdict.standing is not Standing.RUNNING:
            return None
        return self._since.get(key)

    def _close(self, key: GangKey, snapshot: Snapshot) -> None:
        self._since.pop(key, None)
        if key in self._lines:
            self.tell(key, snapshot.now, snapshot.generation, Happening.GONE, "the gang is gone")

    def _change(self, snapshot: Snapshot, verdict: Verdict, before: Verdict | None) -> Change:
        key, now = verdict.gang, snapshot.now
        began = self._since.get(key)
        if began is None:
            began = _began(snapshot.gangs[key], verdict.standing, now)
            self._since[key] = began
        if before is not None and before.standing is not verdict.standing:
            self._since[key] = now
        # Ordinary pods and gangs from before our time run without ever having had to wait.
        if before is not None or verdict.standing is not Standing.RUNNING:
            self.tell(key, now, snapshot.generation, verdict.reason.value, verdict.message)
        return Change(verdict, before, max(0.0, now - began))


def _began(gang: Gang, standing: Standing, now: float) -> float:
    """Date a standing that was there before we looked, from what the API server has written."""
    counted = SEATED_SET if standing is Standing.RUNNING else {Status.PENDING}
    created = [pod.created for pod in gang.pods if pod.status in counted]
    return min(now, max([gang.group.created, *created]))
