"""Why a gang waits: the arithmetic, the gangs ahead, what would let it start."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from extender.model.gang import Gang, GangKey
from extender.model.node import Node, NodeFacts, NodeTable, Taint
from extender.model.pod import PodUid, Shape, Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import Explanation, GangAhead, explain
from extender.planner.obstacles import NearestNode
from extender.planner.plan import GangPlacement, Plan, Verdict
from extender.planner.planner import make_plan
from extender.planner.plugin import Plugin
from extender.planner.plugins import registry
from extender.planner.policy import Policy
from extender.planner.state import GangState, QueueUsage
from tests.builders import NOW, pod
from tests.scene import gang, node_table, plan, snapshot, verdict

NO_ROOM = verdict("a/train", Reason.INSUFFICIENT_CAPACITY)
MINE = gang("train", status=Status.PENDING).group


def waiting(name: str, members: int = 4, **rest: Any) -> Gang:
    return gang(name, members, status=Status.PENDING, **rest)


def told(
    seen: Snapshot, decided: Plan, key: str = "a/train", policy: Policy = policy_parser.DEFAULT
) -> Explanation:
    explanation = explain(seen, decided, policy, GangKey(key))
    assert explanation is not None
    return explanation


def changed(table: NodeTable, name: str, **change: Any) -> NodeTable:
    nodes = tuple(replace(node, **change) if node.name == name else node for node in table.nodes)
    return replace(table, facts=NodeFacts(nodes, table.facts.index))


def test_slots_are_counted_and_every_other_node_says_what_keeps_it_out() -> None:
    table = node_table([2, 1, 0, 8, 8, 8])
    table = changed(table, "n3", taints=(Taint("gpu"),))
    table = changed(table, "n4", unschedulable=True)
    table = changed(table, "n5", ready=False)
    need = told(snapshot(waiting("train"), nodes=table), plan(NO_ROOM)).needs[0]

    assert (need.members, need.slots, need.takers) == (4, 3, 2)
    assert need.obstacles == {"short of cpu": 1, "tainted": 1, "cordoned": 1, "not ready": 1}
    assert need.nearest == (NearestNode("n2", Resources({"cpu": 1000})),)
    assert sum(need.obstacles.values()) + need.takers == len(table.nodes)


def test_a_node_that_lacks_several_things_says_so() -> None:
    table = node_table([1, 0])
    big = Shape(requests=Resources({"cpu": 2000, "memory": 65 << 30, "pods": 1}))
    members = [pod("train-0", shape=big)]
    need = told(snapshot(gang("train", members), nodes=table), plan(NO_ROOM)).needs[0]

    assert need.obstacles == {"short of cpu and memory": 2}
    assert [near.node for near in need.nearest] == ["n0", "n1"]
    assert need.nearest[0].lacks == Resources({"cpu": 1000, "memory": 1 << 30})


def test_a_resource_no_node_has_is_named() -> None:
    exotic = Shape(requests=Resources({"example.com/quantum": 1, "pods": 1}))
    members = [pod("train-0", shape=exotic)]
    need = told(snapshot(gang("train", members)), plan(NO_ROOM)).needs[0]

    assert need.obstacles == {"without any example.com/quantum": 1}


def test_the_verdict_and_the_explanation_count_nodes_by_the_same_words() -> None:
    table = changed(node_table([8, 8, 8]), "n2", unschedulable=True)
    table.used[:2, 0] = 7000, 8000
    seen = snapshot(waiting("train"), nodes=table)
    decided = make_plan(seen)
    said = decided.verdicts[GangKey("a/train")].message

    assert said.endswith("1 slot free: 1 node cordoned, 1 short of cpu")
    assert list(told(seen, decided).needs[0].obstacles.items()) == [
        ("cordoned", 1),
        ("short of cpu", 1),
    ]


def test_capacity_placed_for_others_by_the_same_plan_is_not_free() -> None:
    other = waiting("other", 2)
    seen = snapshot(waiting("train"), other, nodes=node_table([4]))
    nodes = {member.uid: "n0" for member in other.pods}
    decided = plan(
        NO_ROOM,
        verdict("a/other", Reason.ADMITTED),
        placements={other.key: GangPlacement(gang=other.key, placements=nodes)},
    )

    assert told(seen, decided).needs[0].slots == 2


def test_every_shape_of_a_gang_is_explained() -> None:
    members = [
        pod("train-0"),
        pod("train-1", shape=Shape(requests=Resources({"cpu": 4000, "pods": 1}))),
    ]
    needs = told(snapshot(gang("train", members), nodes=node_table([5])), plan(NO_ROOM)).needs

    assert [(need.each["cpu"], need.slots) for need in needs] == [(1000, 5), (4000, 1)]


def behind(
    *others: Gang,
    mine: Gang,
    policy: Policy = policy_parser.DEFAULT,
    partial: frozenset[GangKey] = frozenset(),
    **rest: Any,
) -> tuple[GangAhead, ...]:
    said = [verdict(each.key, Reason.INSUFFICIENT_CAPACITY) for each in (*others, mine)]
    seen = replace(snapshot(*others, mine, **rest), partial_gangs=partial)
    return told(seen, plan(*said), policy=policy).ahead


def test_a_partial_gang_is_ahead_of_all() -> None:
    below_minimum = gang("partial", [pod("partial-0", on="n0"), pod("partial-1")], created=NOW)

    assert behind(
        below_minimum, mine=waiting("train", priority=5), partial=frozenset({below_minimum.key})
    ) == (GangAhead(GangKey("a/partial"), "left", "it runs with 1 of at least 2 members"),)


def test_in_one_queue_priority_goes_first_then_missing_members_then_the_smaller_share() -> None:
    members = [pod("train-0", on="n0"), pod("train-1")]
    mine = gang("train", members, min_member=1, created=NOW)
    others = (
        waiting("vip", priority=10),
        waiting("new", created=NOW + 60),
        waiting("modest", min_member=0, created=NOW + 60),
        waiting("minor", priority=-1),
    )

    assert behind(*others, mine=mine) == (
        GangAhead(GangKey("a/vip"), "left", "it has priority 10, this one 0"),
        GangAhead(GangKey("a/new"), "left", "it has not started, this one can only grow"),
        GangAhead(GangKey("a/modest"), "left", "it uses 0.0% of the cluster, this one 12.5%"),
    )


def test_between_equals_the_older_goes_first() -> None:
    ahead = behind(waiting("old", created=NOW - 60), mine=waiting("train"))

    assert [each.why for each in ahead] == ["it is 60 s older"]


def policy(*plugins: str) -> Policy:
    listed = ", ".join(f"{{name: {name}}}" for name in plugins)
    return policy_parser.parse(f"tiers: [{{plugins: [{listed}]}}]")


def reasons(*others: Gang, mine: Gang, by: Policy, **rest: Any) -> list[str]:
    return [each.why for each in behind(*others, mine=mine, policy=by, **rest)]


def test_priorities_are_no_reason_where_no_plugin_uses_them() -> None:
    old, mine = waiting("old", created=NOW - 60, priority=-1), waiting("train")

    assert reasons(old, mine=mine, by=policy("gang")) == ["it is 60 s older"]


def test_where_only_shares_count_only_shares_are_named() -> None:
    members = [pod("train-0", on="n0"), pod("train-1")]
    mine = gang("train", members, min_member=1, priority=9)

    assert reasons(waiting("new", created=NOW + 60), mine=mine, by=policy("drf")) == [
        "it uses 0.0% of the cluster, this one 12.5%"
    ]
    assert reasons(waiting("new", created=NOW + 60), mine=mine, by=policy("gang", "drf")) == [
        "it has not started, this one can only grow"
    ]


def test_a_waiting_time_that_ends_earlier_is_the_reason_where_it_decides() -> None:
    def patient(name: str, time: str) -> Gang:
        return waiting(name, created=NOW, annotations={"sla-waiting-time": time})

    soon, late, never = patient("soon", "1m"), patient("train", "2m"), waiting("train")

    assert reasons(soon, mine=late, by=policy("sla")) == ["its waiting time ends 60 s earlier"]
    assert reasons(soon, mine=never, by=policy("sla")) == [
        "its waiting time ends, this one has none"
    ]


STATED = [
    Queue(name="left", deserved=Resources({"cpu": 2000}), created=5.0),
    Queue(name="right", deserved=Resources({"cpu": 4000}), created=1.0),
]


def test_with_stated_deserved_amounts_a_queue_goes_first_by_share_then_by_age() -> None:
    by = policy("gang", "capacity")
    mine = gang("train", [pod("train-0", on="n0"), pod("train-1")])

    assert reasons(waiting("other", queue="right"), mine=mine, by=by, queues=STATED) == [
        "queue right uses 0% of its deserved amount, left 50%"
    ]
    assert reasons(waiting("a", queue="right"), mine=waiting("train"), by=by, queues=STATED) == [
        "queue right is 4 s older"
    ]


def test_in_a_tree_the_first_level_that_differs_is_named() -> None:
    tree = [
        Queue(name="root"),
        Queue(name="east", parent="root", deserved=Resources({"cpu": 4000})),
        Queue(name="west", parent="root", deserved=Resources({"cpu": 4000})),
        Queue(name="e1", parent="east", deserved=Resources({"cpu": 4000})),
        Queue(name="w1", parent="west", deserved=Resources({"cpu": 4000})),
    ]
    listed = "{name: gang}, {name: capacity, enableHierarchy: true}"
    by = policy_parser.parse(f"tiers: [{{plugins: [{listed}]}}]")
    running = [pod("train-0", on="n0"), pod("train-1")]

    mine = gang("train", running, queue="e1")
    assert reasons(waiting("other", queue="w1"), mine=mine, by=by, queues=tree) == [
        "queue west uses 0% of its deserved amount, east 25%"
    ]


def test_in_a_tree_of_shares_the_tree_is_the_reason() -> None:
    listed = "{name: gang}, {name: drf, enableHierarchy: true}"
    by = policy_parser.parse(f"tiers: [{{plugins: [{listed}]}}]")
    mine = gang("train", [pod("train-0", on="n0"), pod("train-1")])

    assert reasons(waiting("other", queue="right"), mine=mine, by=by) == [
        "queue right has less than left in the tree of shares"
    ]


class Alphabet(Plugin):
    """A third-party plugin: the shorter name goes first."""

    def gang_order(self, gang: GangState) -> int:
        return len(gang.gang.group.name)

    def queue_order(self, queue: QueueUsage) -> int:
        return len(queue.name)


class AlphabetWithWords(Alphabet):
    def gang_order_reason(self, ahead: GangState, behind: GangState) -> str:
        return f"{ahead.gang.group.name} is a shorter name"


def install(monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    """Install a plugin of this module under *name*."""
    point = EntryPoint(name, f"{__name__}:{kind}", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "third_party", lambda: {name: point})


def test_a_plugin_without_words_of_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "alphabet", "Alphabet")

    assert reasons(waiting("z"), mine=waiting("train"), by=policy("alphabet")) == [
        "plugin alphabet puts it first"
    ]
    other = waiting("other", queue="left")
    queues = [Queue(name="left"), Queue(name="right")]
    mine = waiting("train", queue="right")
    assert reasons(other, mine=mine, by=policy("alphabet"), queues=queues) == [
        "plugin alphabet puts queue left first"
    ]


def test_a_plugin_may_say_why_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "talk", "AlphabetWithWords")

    assert reasons(waiting("z"), mine=waiting("train"), by=policy("talk")) == [
        "z is a shorter name"
    ]


def test_a_queues_priority_is_the_reason_only_where_a_plugin_uses_it() -> None:
    left, right = Queue(name="left", priority=5, created=9.0), Queue(name="right", created=2.0)
    here, there = waiting("here", queue="left"), waiting("there", queue="right")
    both: dict[str, Any] = {"queues": [left, right]}

    assert reasons(here, mine=replace(there, group=MINE), by=policy("proportion"), **both) == [
        "queue left has priority 5, right 0"
    ]
    assert reasons(there, mine=replace(here, group=MINE), by=policy("gang"), **both) == [
        "queue right is 7 s older"
    ]


def test_a_queue_that_uses_less_of_its_deserved_amount_goes_first() -> None:
    mine = gang("train", [pod("train-0", on="n0"), pod("train-1")])
    ahead = behind(waiting("other", queue="right"), mine=mine)

    assert [(each.gang, each.queue) for each in ahead] == [("a/other", "right")]
    assert ahead[0].why.startswith("queue right uses 0% of its deserved amount, left ")


def test_gangs_that_do_not_wait_are_not_ahead() -> None:
    old, mine = waiting("old", created=NOW - 60), waiting("train")
    decided = plan(verdict("a/old", Reason.ADMITTED), NO_ROOM)

    assert told(snapshot(old, mine), decided).ahead == ()


def test_ten_gangs_ahead_are_named_but_all_are_counted() -> None:
    others = [waiting(f"old-{index}", 1, created=NOW - 60) for index in range(30)]
    said = [verdict(each.key, Reason.INSUFFICIENT_CAPACITY) for each in others]
    explanation = told(snapshot(*others, waiting("train")), plan(NO_ROOM, *said))

    assert (len(explanation.ahead), explanation.ahead_count) == (10, 30)


def remedies(said: Verdict, mine: Gang, **rest: Any) -> tuple[str, ...]:
    decided = plan(said, **rest.pop("decided", {}))
    return told(snapshot(mine, **rest), decided).remedies


def test_a_gang_that_backs_off_says_for_how_long() -> None:
    mine = Gang(group=waiting("train").group, pods=(), queue="left", backing_off_until=NOW + 7)

    assert remedies(verdict("a/train", Reason.BACKING_OFF), mine) == (
        "7 s more; then it is retried",
    )


def test_protected_pods_are_counted_by_reason() -> None:
    seen = replace(
        snapshot(waiting("train")),
        protected={PodUid("x"): "a budget", PodUid("y"): "a budget", PodUid("z"): "too young"},
    )

    assert told(seen, plan(NO_ROOM)).protected == {"a budget": 2, "too young": 1}


def test_an_unknown_gang_has_no_explanation() -> None:
    assert explain(snapshot(), plan(), policy_parser.DEFAULT, GangKey("a/none")) is None


def test_a_running_gang_needs_no_remedy() -> None:
    explanation = told(snapshot(gang("train")), plan(verdict("a/train")))

    assert (explanation.remedies, explanation.ahead, explanation.missing) == ((), (), 0)
    assert explanation.members == {"Running": 2}


def test_a_node_that_the_selector_of_a_member_excludes_is_counted() -> None:
    picky = Shape(requests=Resources({"cpu": 1000, "pods": 1}), selector=(("zone", "a"),))
    table = changed(node_table([8, 8]), "n1", labels={"zone": "a"})
    assert isinstance(table.nodes[1], Node)
    members = [pod("train-0", shape=picky)]
    need = told(snapshot(gang("train", members), nodes=table), plan(NO_ROOM)).needs[0]

    assert (need.slots, need.obstacles) == (8, {"not selected": 1})
