"""What this cycle gave to gangs beyond what they stand on: it goes with those who have to leave.

A gang that is short of its minimum is left what it got: taken away, that would only have others
leave for it again. But one that stands without it would else never have to give anything, as long
as one more of its members finds a place in every cycle, be it that of a pod of its own which is on
its way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from extender.model.resources import Resources, total
from extender.plan.room.state import GangState
from extender.plan.room.trials import Fence, TrialRoom


@contextmanager
def uncounted(gangs: Iterable[GangState]) -> Iterator[None]:
    """Judge as if this cycle had given *gangs* nothing: it counts neither for nor against them.

    Else their queue would be above its due by what it loses again, and take that back at once.
    """
    given = [(gang, gift) for gang in gangs if (gift := _gift(gang))]
    for gang, gift in given:
        _book(gang, -gift)
    try:
        yield
    finally:
        for gang, gift in given:
            _book(gang, gift)


def take_back(room: TrialRoom, gang: GangState) -> None:
    """Take back for good what this cycle gave *gang*: nobody starts where others have to leave."""
    for pod, row in reversed(gang.pipelined):
        room.unpipeline(gang, pod, row, counts=False)
    _book(gang, -_gift(gang))
    for pod, row in gang.placed:
        need = room.row(pod.shape)
        room.take_down(Fence(row, kept=need, owed=need * 0))
        if pod.shape.host_ports:
            room.ports.give_back(pod.shape, [row])
    gang.count([pod for pod, _ in gang.placed], -1)
    gang.placed.clear()
    gang.committed = 0


def _gift(gang: GangState) -> Resources:
    return total(pod.requests for pod, _ in (*gang.placed, *gang.pipelined))


def _book(gang: GangState, amounts: Resources) -> None:
    gang.allocated = gang.allocated + amounts
    gang.queue.take(amounts, gang.gang.group.namespace)
