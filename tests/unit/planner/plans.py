"""What a plan decided, in a few words, and policies that many tests compare."""

from __future__ import annotations

from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import after

VOLCANO = policy_parser.parse("compatibility: volcano")
CAPACITY = policy_parser.parse(
    policy_parser.DEFAULT_TEXT.replace("name: proportion", "name: capacity")
)


def started(plan: Plan, key: str) -> int:
    """Count the members of a gang that may start."""
    placement = plan.placements.get(GangKey(key))
    return len(placement.placements) if placement else 0


def evicted(plan: Plan) -> list[str]:
    """Return the names of the pods that are evicted."""
    return [each.name for each in plan.evictions]


def at_rest(state: Snapshot, policy: Policy = policy_parser.DEFAULT) -> tuple[Snapshot, Plan]:
    """Carry plans out until nothing changes."""
    for _ in range(40):
        plan = make_plan(state, policy)
        if not plan.evictions and not any(t.placements for t in plan.placements.values()):
            return state, plan
        state = after(state, plan)
    raise AssertionError("still moving after 40 plans")
