"""What each queue was due, used and wanted in the last hour, for whoever draws it.

Bounded in every way: a moment each half minute, an hour of them, so many queues and resources.
One thread notes; readers take the tuple, which is never changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from extender.model.resources import CPU, MEMORY, PODS, Resources
from extender.plan.decision import Plan

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
    due: float
    used: float
    wanted: float


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
