"""Estimates for whoever asks, of the last plan: one run ahead serves all, and runs rest.

Two threads share an interpreter, so what pages cost the hooks pay for. A run ahead takes at most
*seconds* of this thread's own processor time, and is followed by a rest of twenty times what it
took, in which the same run answers: its moments are as good as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from extender.forecast.estimate import Estimate
from extender.forecast.experience import Experience
from extender.forecast.lookahead import Effort, Lookahead
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, Standing
from extender.plan.policy.options import Policy

MOST_S = 1.0
REST = 20.0


class Forecaster:
    """Belongs to the thread that writes pages."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        experience: Experience | None = None,
        *,
        seconds: float = MOST_S,
        spent: Callable[[], float] = time.thread_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._experience = experience or Experience()
        self._effort = Effort(seconds=seconds, spent=spent)
        self._monotonic = monotonic
        self._ahead: Lookahead | None = None
        self._of: Plan | None = None
        self._began = float("-inf")

    def estimate(self, snapshot: Snapshot, plan: Plan, key: GangKey) -> Estimate | None:
        """Say when a gang that waits by *plan* starts; None for one that does not wait."""
        verdict = plan.verdicts.get(key)
        if verdict is None or verdict.standing is not Standing.WAITING:
            return None
        known = self._known(plan, key)
        if known is not None:
            return known
        self._of, self._began = plan, self._monotonic()
        self._ahead = Lookahead(snapshot, plan, self._policy(), self._experience, self._effort)
        return self._ahead.estimate(key)

    def _known(self, plan: Plan, key: GangKey) -> Estimate | None:
        """Give what the last run says, while it is of this plan or we rest from it."""
        if self._ahead is None:
            return None
        rests = self._monotonic() < self._began + REST * self._ahead.cost_s
        return self._ahead.estimate(key) if self._of is plan or rests else None
