"""Who was asked to leave, for whom and why, and what became of it: the last few hundred pods.

Noted in whatever thread knows, each time in a single step of a dict, so nobody needs a lock.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.model.gang import GangKey
from extender.model.pod import PodUid

_MOST = 500
_TEXT = 500

#: Nobody has answered yet.
ASKED = "asked"


class AskedToLeave(NamedTuple):
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


class Departures:
    """The last ones, the newest last."""

    def __init__(self) -> None:
        self._known: dict[PodUid, AskedToLeave] = {}

    def note(self, uid: PodUid, told: AskedToLeave) -> None:
        """Remember what is known of a pod now, in place of what was known before."""
        self._known.pop(uid, None)
        self._known[uid] = told._replace(why=told.why[:_TEXT])
        while len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)), None)

    def settled(self, uid: PodUid, outcome: str) -> None:
        """Note what became of one that was asked."""
        told = self._known.get(uid)
        if told is not None:
            self._known[uid] = told._replace(outcome=outcome)

    def all(self) -> tuple[AskedToLeave, ...]:
        """Give them, the newest first."""
        return tuple(self._known.values())[::-1]
