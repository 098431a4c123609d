"""What would help a gang, worked out at the bench: two whole plans or more, however many wait."""

from __future__ import annotations

from functools import partial

from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.plan.verdict.remedies import remedies
from extender.web.whatif.bench import BUSY, PENDING, Bench

#: Said while it is not known yet.
TRYING = ("being worked out, which takes long here; ask again in a moment",)
#: Up to here whoever asks waits for it, and those behind him.
_MOMENT_S = 1.0


class Remedied:
    """Says what `remedies` says, or that it is being worked out."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __call__(
        self, snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey
    ) -> tuple[str, ...]:
        """Say what would let the gang start."""
        # Against another reason something else helps; and what is quickly known is asked anew.
        question = key, plan.verdicts[key].reason
        work = partial(remedies, snapshot, plan, policy, key)
        reply = self._bench.ask(question, work, _MOMENT_S, good_s=0.0)
        if reply in (PENDING, BUSY):
            return TRYING
        return reply.answer if reply.answer is not None else (reply.problem,)
