"""Estimates for whoever asks, of the last plan: one run ahead serves all, and runs rest.

Two threads share an interpreter, so what pages cost the hooks pay for. A run ahead takes at most
*seconds* of this thread's own processor time, and is followed by a rest of twenty times what it
took, in which the same run answers: its moments are as good as they were. Who began to wait since
is looked at all the same, once in a rest, which is so much longer for it; gangs that come all the
time cannot have us look ahead all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from extender.durations import format_duration
from extender.forecast.durations import DurationHistory
from extender.forecast.estimate import Estimate
from extender.forecast.lookahead import Lookahead, WorkLimit
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner.plan import GangStatus, Plan
from extender.planner.policy import Policy

MOST_S = 1.0
REST = 20.0


class Forecaster:
    """Belongs to the thread that writes pages."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        experience: DurationHistory | None = None,
        *,
        seconds: float = MOST_S,
        spent: Callable[[], float] = time.thread_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._history = experience or DurationHistory()
        self._limit = WorkLimit(seconds=seconds, spent=spent)
        self._monotonic = monotonic
        self._lookahead: Lookahead | None = None
        self._plan: Plan | None = None
        #: When it was begun, and what was left of the rest of the one before.
        self._began, self._carried_rest_s = float("-inf"), 0.0

    def estimate(self, snapshot: Snapshot, plan: Plan, key: GangKey) -> Estimate | None:
        """Say when a gang that waits by *plan* starts; None for one that does not wait."""
        verdict = plan.verdicts.get(key)
        if verdict is None or verdict.standing is not GangStatus.WAITING:
            return None
        known = self._known(plan, key)
        if known is not None:
            return known
        now, rests_s = self._monotonic(), self._remaining_rest_s
        if self._carried_rest_s and rests_s > 0:
            why = "it did not wait yet when it was looked ahead last; that is done again in"
            return Estimate(gang=key, now=snapshot.now, because=f"{why} {format_duration(rests_s)}")
        self._plan, self._began, self._carried_rest_s = plan, now, max(0.0, rests_s)
        self._lookahead = Lookahead(snapshot, plan, self._policy(), self._history, self._limit)
        return self._lookahead.estimate(key)

    def _known(self, plan: Plan, key: GangKey) -> Estimate | None:
        """Give what the last run says, while it is of this plan or we rest from it."""
        if self._lookahead is None:
            return None
        return (
            self._lookahead.estimate(key)
            if self._plan is plan or self._remaining_rest_s > 0
            else None
        )

    @property
    def _remaining_rest_s(self) -> float:
        """Say for how long it is not looked ahead any more; nothing or less when it may be."""
        if self._lookahead is None:
            return 0.0
        rest_s = REST * self._lookahead.cost_s + self._carried_rest_s
        return self._began + rest_s - self._monotonic()
