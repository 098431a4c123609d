"""What would let a gang start: thought of from its reason, and tried before it is said.

Each remedy is applied to the snapshot and the result planned again, by the same plugins. Where one
alone does not do, whatever then stands in the way is remedied too. That costs a few plans, so it
is done only when a person asks.
"""

from __future__ import annotations

from itertools import chain, islice

from extender.model.gang import GangKey, Phase
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, Standing
from extender.plan.planner import make_plan
from extender.plan.policy.options import Policy
from extender.plan.verdict.case import LAST, Case, Remedy, count_pods
from extender.plan.verdict.ideas import ideas, untried

#: So many plans are made for one answer, fewer of a large cluster so that nobody waits long for
#: it; of so many ideas, so many of them put together.
_MOST_PLANS, _FEWEST_PLANS, _MOST_GANGS = 12, 5, 20_000
_MOST_IDEAS = 8
_MOST_TOGETHER = 3
_NOTHING = "nothing an administrator could change"
_NOTHING_FOUND = "nothing was found that an administrator could change"


def remedies(snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey) -> tuple[str, ...]:
    """Say what would let the gang start; each sentence is enough, or says that nothing is."""
    case = Case(snapshot, plan, policy, key)
    if case.verdict.reason is Reason.SCHEDULER_SILENT:
        return (f"{_NOTHING} here: {case.verdict.reason.mend}",)
    if case.verdict.reason is Reason.POD_GROUP_MISSING:
        return (f"{_NOTHING}: its owner has to create or mend its PodGroup",)
    if words := untried(case):
        return (words,)
    thought_of = list(islice(ideas(case), _MOST_IDEAS))
    if not thought_of:
        return (_NOTHING_FOUND,)
    plans = min(_MOST_PLANS, max(_FEWEST_PLANS, _MOST_GANGS // (len(snapshot.gangs) or 1)))
    trials = _Trials(case, plans)
    found: dict[str, str] = {}
    for idea in thought_of:
        kind = idea.kind or idea.words
        if kind not in (LAST, *found) and (words := trials.alone(snapshot, idea)):
            found[kind] = words
    if found:
        return tuple(found.values())
    together = (trials.together(snapshot, idea) for idea in thought_of if idea.kind != LAST)
    last = (trials.alone(snapshot, idea) for idea in thought_of if idea.kind == LAST)
    enough = next((words for words in chain(together, last) if words), "")
    if enough:
        return (enough,)
    if case.verdict.reason is Reason.BACKING_OFF:
        return (thought_of[0].words,)  # that is so, whatever comes of it
    return (f"{_NOTHING_FOUND}; in vain would be: {'; '.join(idea.words for idea in thought_of)}",)


class _Trials:
    """Plans made to see what would happen, a limited number of them."""

    def __init__(self, case: Case, plans: int) -> None:
        self._policy, self._key = case.policy, case.key
        #: Many a controller creates the pods only when the gang has been let in.
        self._was_kept_out = case.verdict.reason is Reason.NOT_ENQUEUED
        self._left = plans

    def alone(self, snapshot: Snapshot, idea: Remedy) -> str:
        """Give the words of *idea* if it lets the gang start."""
        return self._started(idea.words, self._planned(idea.apply(snapshot)))

    def together(self, snapshot: Snapshot, idea: Remedy) -> str:
        """Give the words of *idea* and of what is needed with it, if that is enough.

        One plan is left over, for what is tried last.
        """
        words: list[str] = []
        step: Remedy | None = idea
        while step is not None and len(words) < _MOST_TOGETHER:
            words.append(step.words)
            snapshot = step.apply(snapshot)
            plan = self._planned(snapshot) if self._left > 1 else None
            if plan is None:
                return ""
            if said := self._started(", and ".join(words), plan):
                return said
            more = ideas(Case(snapshot, plan, self._policy, self._key))
            step = next((each for each in more if each.words not in words), None)
        return ""

    def _planned(self, snapshot: Snapshot) -> Plan | None:
        if not self._left:
            return None
        self._left -= 1
        return make_plan(snapshot, self._policy)

    def _started(self, words: str, plan: Plan | None) -> str:
        """Give *words* if the gang may start by *plan*, at once or when others have left for it."""
        verdict = plan.verdicts.get(self._key) if plan is not None else None
        if plan is None or verdict is None:
            return ""
        if verdict.standing in (Standing.ADMITTED, Standing.RUNNING):
            return words
        is_let_in = self._was_kept_out and verdict.phase is Phase.INQUEUE
        if is_let_in and verdict.reason is Reason.NOT_ENOUGH_MEMBERS:
            return f"{words}, and then its pods"
        if verdict.reason is not Reason.WAITING_FOR_VICTIMS:
            return ""
        leaving = sum(each.beneficiary == self._key for each in plan.evictions)
        return f"{words}, once {count_pods(leaving)} left for it" if leaving else ""
