"""How much may be looked at before a search is given up: counted, so that it is always the same.

Time would depend on the machine, and a plan must not.
"""

from __future__ import annotations

from collections import Counter

from extender.plan.session import Session

#: So often somebody is looked at in one cycle and action. One search may take a part of what is
#: left, so that something is left for whoever asks next, and those of one namespace that find
#: nobody no more than such a part of all together. Searches that end somewhere take far less.
MOST_WORK = 3_000_000
_PART = 4


def workload_of(session: Session, action: str) -> Workload:
    """Give the work of all searches of *action* in this cycle."""
    name = f"workload of {action}"
    known = session.shared.get(name)
    if not isinstance(known, Workload):
        known = session.shared[name] = Workload()
    return known


class Work:
    """What one search may do, and has done."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.done = 0

    def count(self, looks: int) -> None:
        """Count *looks* at somebody who might leave."""
        self.done += looks

    @property
    def is_too_much(self) -> bool:
        """Ask whether the search must end without an answer."""
        return self.done > self._most


class Workload:
    """The work of all searches of one action."""

    def __init__(self) -> None:
        self._left = MOST_WORK
        #: Spent on searches that found nobody, by namespace.
        self._in_vain = Counter[str]()

    def next(self, namespace: str) -> Work:
        """Give what the next search may do, for a gang of *namespace*."""
        return Work(min(self._left // _PART, MOST_WORK // _PART - self._in_vain[namespace]))

    def book(self, work: Work, namespace: str, *, in_vain: bool) -> None:
        """Count what a search has done."""
        self._left -= work.done
        if in_vain:
            self._in_vain[namespace] += work.done
