"""priority and drf: the order of gangs, and the victims they allow."""

from __future__ import annotations

from extender.model.gang import Gang, GangKey
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from tests.builders import gang, nodes, pod, queue, shape, snapshot

HIERARCHY = """
actions: allocate
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
  - {name: gang}
  - {name: proportion, enabledAllocatable: false, enabledOverused: false}
compatibility: volcano
"""


def decide(
    members: list[Gang], plugins: str, cpu: float = 4, actions: str = "allocate, preempt"
) -> Plan:
    text = f"actions: '{actions}'\ntiers: [{{plugins: [{plugins}]}}]"
    return make_plan(snapshot(nodes(1, cpu=cpu), members), policy_parser.parse(text))


def started(plan: Plan, key: str) -> int:
    placement = plan.placements.get(GangKey(key))
    return len(placement.placements) if placement else 0


def evicted(plan: Plan) -> list[str]:
    return sorted(order.name for order in plan.evictions)


def test_priority_comes_before_age() -> None:
    old = gang("a/old", 3, cpu=1)
    important = gang("a/important", 3, cpu=1, priority=9, created=9.0)
    plan = decide([old, important], "{name: priority}, {name: gang}")

    assert (started(plan, "a/old"), started(plan, "a/important")) == (0, 3)


def test_the_smaller_dominant_share_goes_first() -> None:
    rich = gang("a/rich", 3, min_member=1, cpu=1, on=["n1", "n1"])
    poor = gang("a/poor", 1, cpu=1, created=9.0)
    plan = decide([rich, poor], "{name: gang}, {name: drf}", cpu=3)

    assert started(plan, "a/poor") == 1
    assert started(plan, "a/rich") == 0


def test_an_order_that_is_switched_off_is_not_used() -> None:
    rich = gang("a/rich", 3, min_member=1, cpu=1, on=["n1", "n1"])
    poor = gang("a/poor", 1, cpu=1, created=9.0)
    quiet = "{name: gang, enableJobOrder: false}, {name: drf, enableJobOrder: false}"

    assert started(decide([rich, poor], quiet, cpu=3, actions="allocate"), "a/rich") == 1


def test_only_gangs_of_lower_priority_are_evicted() -> None:
    same = gang("a/same", 2, min_member=1, cpu=1, priority=5, on=["n1", "n1"])
    new = gang("a/new", 1, cpu=1, priority=5, created=9.0)
    more = gang("a/more", 1, cpu=1, priority=6, created=9.0)

    assert evicted(decide([same, new], "{name: priority}, {name: gang}", cpu=2)) == []
    assert len(evicted(decide([same, more], "{name: priority}, {name: gang}", cpu=2))) == 1


def test_by_share_no_pod_is_evicted_for_a_gang_that_would_then_use_more() -> None:
    two = gang("a/two", 2, min_member=0, cpu=1, on=["n1", "n1"])
    one = gang("a/one", 1, cpu=1, created=9.0)
    large = gang("a/large", 1, cpu=2, created=9.0)

    assert len(evicted(decide([two, one], "{name: drf}, {name: gang}", cpu=2))) == 1
    assert evicted(decide([two, large], "{name: drf}, {name: gang}", cpu=2)) == []


def test_of_one_gang_the_members_of_highest_priority_go_first() -> None:
    kind = shape(cpu=1)
    members = [pod(f"m{n}", kind, priority=n) for n in range(3)]
    plan = decide(
        [gang("a/job", min_member=1, pods=members)], "{name: priority}, {name: gang}", cpu=1
    )

    assert list(plan.placements[GangKey("a/job")].placements) == [members[2].uid]


def test_with_compatibility_a_tree_may_stand_before_proportion() -> None:
    """What one branch cannot use is not lost: both halves of `eng` request different resources."""

    def branch(name: str, path: str) -> object:
        weights = "/".join(["100"] + ["50"] * path.count("/"))
        marks = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
        return queue(name, annotations=marks)

    queues = [branch("sci", "root/sci"), branch("dev", "root/eng/dev")]
    queues.append(branch("prod", "root/eng/prod"))
    gangs = [
        gang("a/both", 10, min_member=0, queue="sci", cpu=1, memory=1),
        gang("a/cpu", 10, min_member=0, queue="dev", cpu=1),
        gang("a/memory", 10, min_member=0, queue="prod", memory=1),
    ]
    plan = make_plan(
        snapshot(nodes(1, cpu=10, memory=10), gangs, queues), policy_parser.parse(HIERARCHY)
    )

    assert [started(plan, key) for key in ("a/both", "a/cpu", "a/memory")] == [5, 5, 5]
