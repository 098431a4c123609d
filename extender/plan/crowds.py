"""Who has a turn where a namespace has thousands of gangs in one queue.

A turn costs about the same whoever has it, so a cycle costs as much as there are turns, and one
namespace with pods enough would have everybody else wait for its own. Of its gangs in one queue a
bounded number has a turn in one cycle: the first ones in every cycle, and some of the others,
different ones each time, so that nobody waits for ever behind gangs that find no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from heapq import nsmallest
from itertools import islice
from zlib import crc32

from extender.model.gang import Gang, GangKey

#: So many gangs of a namespace have a turn in every cycle, in one queue.
FIRST = 500
#: So many of those behind them have one too.
VISITORS = 500
MOST = FIRST + VISITORS


def is_short(gang: Gang) -> bool:
    """Ask whether *gang* has not got the members it needs."""
    return gang.ready + len(gang.waiting) < gang.group.min_member


def turns(
    gangs: Iterable[Gang], now: float, cut_short: Set[GangKey] = frozenset()
) -> tuple[frozenset[GangKey], frozenset[GangKey]]:
    """Name who has no turn now, and who has one only now; both empty for up to `MOST` gangs.

    Only within one queue and namespace: nobody else is kept waiting by the number of these. Who
    was *cut_short* always has a turn.
    """
    behind: list[GangKey] = []
    visitors: list[GangKey] = []
    crowds: dict[tuple[str, str], list[Gang]] = {}
    for gang in gangs:
        crowds.setdefault((gang.queue, gang.group.namespace), []).append(gang)
    for crowd in crowds.values():
        if len(crowd) > MOST:
            some, rest = _divide(crowd, now, cut_short)
            visitors += some
            behind += rest
    return frozenset(behind), frozenset(visitors)


def _divide(
    crowd: list[Gang], now: float, cut_short: Set[GangKey] = frozenset()
) -> tuple[list[GangKey], list[GangKey]]:
    first = {gang.key for gang in nsmallest(FIRST, crowd, key=_place)} | cut_short
    rest = [gang.key for gang in crowd if gang.key not in first]
    if not rest:
        return [], []
    # The time says where to begin: the plan has no memory, and equal steps might miss somebody.
    start = crc32(repr(now).encode()) % len(rest)
    turned = [*islice(rest, start, None), *islice(rest, start)]
    return turned[:VISITORS], turned[VISITORS:]


def _place(gang: Gang) -> tuple[bool, int, float, str]:
    """Put those first that have all their members, by priority and age."""
    return is_short(gang), -gang.priority, gang.group.created, gang.key
