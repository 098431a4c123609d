"""Estimates for pages and the API: one lookahead on the last plan serves all requests.

Threads share an interpreter, so the cost of pages delays the hooks. A lookahead takes at most
*seconds* of this thread's own processor time. A rest of twenty times its cost follows, in which
the same lookahead answers: its times are still valid. For a gang that began to wait since, there is
one new lookahead in a rest, and the remaining rest is added to the next one. So a steady stream of
new gangs does not cause a steady stream of lookaheads.
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
    """Estimate starts; used by the thread that renders pages."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        past_durations: DurationHistory | None = None,
        *,
        seconds: float = MOST_S,
        spent: Callable[[], float] = time.thread_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._history = past_durations or DurationHistory()
        self._limit = WorkLimit(seconds=seconds, spent=spent)
        self._monotonic = monotonic
        self._lookahead: Lookahead | None = None
        self._plan: Plan | None = None
        #: When the lookahead started, and the rest that remained of the one before.
        self._started, self._carried_rest_s = float("-inf"), 0.0

    def estimate(self, snapshot: Snapshot, plan: Plan, key: GangKey) -> Estimate | None:
        """Return when a waiting gang of *plan* starts; None when it does not wait."""
        verdict = plan.verdicts.get(key)
        if verdict is None or verdict.status is not GangStatus.WAITING:
            return None
        known = self._known(plan, key)
        if known is not None:
            return known
        now, rest_s = self._monotonic(), self._remaining_rest_s
        if self._carried_rest_s and rest_s > 0:
            why = "it did not wait at the time of the last estimate; the next one is in"
            return Estimate(gang=key, now=snapshot.now, because=f"{why} {format_duration(rest_s)}")
        self._plan, self._started, self._carried_rest_s = plan, now, max(0.0, rest_s)
        self._lookahead = Lookahead(snapshot, plan, self._policy(), self._history, self._limit)
        return self._lookahead.estimate(key)

    def _known(self, plan: Plan, key: GangKey) -> Estimate | None:
        """Return the estimate of the last lookahead, if it is of this plan or the rest lasts."""
        if self._lookahead is None:
            return None
        return (
            self._lookahead.estimate(key)
            if self._plan is plan or self._remaining_rest_s > 0
            else None
        )

    @property
    def _remaining_rest_s(self) -> float:
        """The remaining rest; 0 or less when a new lookahead may start."""
        if self._lookahead is None:
            return 0.0
        rest_s = REST * self._lookahead.cost_s + self._carried_rest_s
        return self._started + rest_s - self._monotonic()
