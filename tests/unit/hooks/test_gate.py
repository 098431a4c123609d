"""What kube-scheduler is told about a pod, given the plan and the promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.cache.changes import Delete, Kind
from extender.cache.reservation_table import ANY_NODE, Stage
from extender.hooks.gate import RECENT_S
from extender.model.gang import GangKey, Membership
from extender.model.pod import Status
from extender.model.queue import Namespace, Queue, QueueState
from extender.model.reason import Reason
from extender.model.resources import NOTHING, Resources
from extender.planner.plan import DirectAdmission, GangStatus, Plan, Verdict
from tests.builders import GANG, member_of, node, pod, pod_group, seen, uid
from tests.unit.reservations import world as promises
from tests.unit.reservations.world import NODES, OPEN


class World(promises.World):
    """One with a plan that leaves everything open."""

    def __init__(self, *items: Any, plan: Plan = OPEN, prefer: str = "nothing") -> None:
        super().__init__(*items, plan=plan, prefer=prefer)


def verdict(reason: Reason, standing: GangStatus = GangStatus.WAITING, key: GangKey = GANG) -> Plan:
    told = Verdict(gang=key, queue="default", standing=standing, reason=reason, message="")
    return Plan(verdicts={key: told}, direct_admission={"default": DirectAdmission()})


def test_a_reserved_member_is_steered_to_its_node_alone() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")

    answer = world.ask("p0")

    assert list(answer.nodes) == ["n2"]
    assert not answer.refused
    assert world.of("p0").stage is Stage.FILTERED


def test_a_member_of_a_role_that_its_gang_lacks_does_not_pass_without_the_place_bind_asks_for() -> (
    None
):
    roles = pod_group(min_member=3, min_by_role={"ps": 1, "worker": 2})
    workers = [seen(f"w{index}", on="n1", role="worker") for index in range(3)]
    world = World(roles, *workers, seen("ps", role="ps"))
    assert not world.ask("ps", role="ps").nodes, "its bind would be refused: it has no ticket"

    assert world.turn() == ["ps"]
    (chosen,) = world.ask("ps", role="ps").nodes
    assert world.of("ps").node == chosen


def test_a_member_beyond_the_minima_of_all_roles_passes_without_a_place() -> None:
    roles = pod_group(min_member=3, min_by_role={"ps": 1, "worker": 2})
    running = [seen(f"w{index}", on="n1", role="worker") for index in range(2)]
    world = World(roles, *running, seen("ps", on="n1", role="ps"), seen("w2", role="worker"))

    assert list(world.ask("w2", role="worker").nodes) == NODES


def test_a_reservation_moves_when_its_node_is_not_on_offer() -> None:
    world = World(pod_group(), seen("p0"))
    world.promise("p0", "n2")

    assert list(world.ask("p0", offered=["n1"]).nodes) == ["n1"]
    assert world.of("p0").node == "n1"


def test_a_reservation_does_not_move_into_room_that_is_promised_to_others() -> None:
    world = World(pod_group(), seen("p0"))
    world.promise("p0", "n2")
    for index in range(4):
        world.promise(f"other-{index}", "n1", GangKey("a/other"))
        world.ask(f"other-{index}", "other")

    answer = world.ask("p0", offered=["n1"])

    assert not answer.nodes
    assert answer.outcome == "InsufficientCapacity"
    assert world.of("p0").node == "n2", "an offer that misses costs no ticket"
    assert [(order.name, order.node) for order in world.woken] == [("p0", "n2")]


def test_a_member_without_reservation_hears_the_verdict_on_its_gang() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"), plan=verdict(Reason.QUEUE_OVER_DESERVED))

    assert world.ask("p0").outcome == "QueueOverDeserved"


def test_a_member_that_is_newer_than_the_plan_hears_that_others_are_missing() -> None:
    world = World(pod_group(min_member=3), seen("p0"), plan=Plan())

    assert world.ask("p0").outcome == "NotEnoughMembers"


def test_a_member_beyond_the_ticket_of_an_admitted_gang_waits_its_turn() -> None:
    plan = verdict(Reason.ADMITTED, GangStatus.ADMITTED)
    world = World(pod_group(), seen("p0"), seen("p1"), plan=plan)

    assert world.ask("p0").outcome == "BehindInOrder"


def test_a_gang_made_anew_after_all_its_members_had_ended_arrives_like_a_new_one() -> None:
    world = World(pod_group(), plan=verdict(Reason.COMPLETED, GangStatus.FINISHED))

    assert [world.ask(f"p{index}").outcome for index in range(2)] == ["steered"] * 2


def test_who_was_made_after_its_gang_had_ended_is_not_told_that_it_has() -> None:
    told = verdict(Reason.COMPLETED, GangStatus.FINISHED)
    world = World(pod_group(), seen("p0"), seen("p1"), plan=replace(told, direct_admission={}))

    assert world.ask("p0").outcome == "BehindInOrder"


def test_the_members_of_an_arriving_gang_pass_one_after_the_other() -> None:
    world = World(pod_group(min_member=3))

    answers = [world.ask(f"p{index}") for index in range(3)]

    assert [answer.outcome for answer in answers] == ["steered"] * 3
    assert len(world.cluster.reservations.of_gang(GANG)) == 3


def test_a_gang_that_its_pods_declare_arrives_before_our_watch_has_seen_any_of_them() -> None:
    world = World()

    answer = world.gate.filter(pod("p0"), member_of("own", min_member=2), NODES)

    assert answer.outcome == "steered"


def test_a_gang_of_a_queue_it_may_not_name_is_refused_before_any_plan() -> None:
    world = World(pod_group(min_member=1, queue="nowhere"))

    assert world.ask("p0").outcome == "QueueNotFound"


def test_a_pod_without_a_group_uses_no_queue_that_its_namespace_may_not() -> None:
    lists = Namespace(name="a", allowed=frozenset({"silver", "bronze"}))
    world = World(seen("web", ""), lists)

    assert world.ask_single("web").outcome == "QueueNotAllowed"
    assert world.ask_single("web", queue="default").outcome == "QueueNotAllowed"
    assert world.ask_single("vital", priority_class="system-node-critical").outcome == "passed"


def test_a_gang_that_names_no_queue_does_not_arrive_where_its_namespace_has_to() -> None:
    lists = Namespace(name="a", allowed=frozenset({"silver", "bronze"}))
    world = World(pod_group(), lists)

    assert world.ask("p0").outcome == "QueueNotAllowed"


def test_a_surplus_member_waits_for_the_plan_where_others_wait_for_room() -> None:
    running = (seen("p0", on="n1"), seen("p1", on="n1"), seen("p2"))
    world = World(pod_group(), *running, plan=Plan())

    assert world.ask("p2").outcome == "BehindInOrder"


def test_the_next_plan_is_hurried_for_whom_only_it_can_let_in() -> None:
    """Others wait for the room, and no plan has looked at this one yet."""
    for newcomer in (World(pod_group(), seen("p0"), seen("p1"), plan=Plan()), World(plan=Plan())):
        answer = newcomer.ask("p0") if newcomer.cluster.group(GANG) else newcomer.ask_single("web")

        assert answer.outcome == "BehindInOrder"
        assert newcomer.published.awaited.is_set()


@pytest.mark.parametrize(
    "world",
    [
        World(pod_group(), seen("p0"), plan=Plan()),
        World(pod_group(), seen("p0"), seen("p1"), plan=verdict(Reason.BEHIND_IN_ORDER)),
        World(pod_group(), seen("p0"), seen("p1"), plan=verdict(Reason.INSUFFICIENT_CAPACITY)),
    ],
    ids=["not whole", "behind others", "without room"],
)
def test_nothing_is_hurried_for_who_waits_for_something_else(world: World) -> None:
    assert not world.ask("p0").nodes
    assert not world.published.awaited.is_set()


def test_a_surplus_member_of_a_running_gang_passes() -> None:
    world = World(pod_group(), seen("p0", on="n1"), seen("p1", on="n1"), seen("p2"))

    assert list(world.ask("p2").nodes) == NODES


@pytest.mark.parametrize("spoilt", [None, "minMember is three"])
def test_a_member_of_a_group_that_is_missing_or_unusable_is_refused(spoilt: str | None) -> None:
    world = World(seen("p0"), *([pod_group(problem=spoilt)] if spoilt else []))

    assert world.ask("p0").outcome == "PodGroupMissing"


def test_a_gang_that_may_not_start_is_refused_on_every_node_offered_lately_though_one_is_full() -> (
    None
):
    """So kube-scheduler's sentence about it stays, and is not written for every pod that comes."""
    world = World(pod_group(), seen("p0"), plan=verdict(Reason.INSUFFICIENT_CAPACITY))
    before = world.ask("p0")

    assert world.ask("p0", offered=["n2"]) == before
    assert before.refused == dict.fromkeys(NODES, before.refused["n1"])
    assert not before.nodes


def test_a_node_that_is_gone_or_was_not_offered_for_long_is_not_refused() -> None:
    world = World(pod_group(), seen("p0"), plan=verdict(Reason.INSUFFICIENT_CAPACITY))
    world.ask("p0")
    world.cluster.apply(Delete(Kind.NODE, "n1"))
    assert list(world.ask("p0", offered=["n2"]).refused) == ["n2"]

    world.see(node("n1"))
    assert set(world.ask("p0", offered=["n2"]).refused) == {"n1", "n2"}
    for _ in range(2):
        world.clock.advance(RECENT_S + 1)
        last = world.ask("p0", offered=["n2"])
    assert list(last.refused) == ["n2"]


def test_whom_others_may_leave_a_node_to_is_refused_on_nothing_but_what_was_offered() -> None:
    """Those it was not offered have a reason of kube-scheduler's, and may be won by preempting."""
    key = seen("web", "").membership.key
    plan = Plan(verdicts=verdict(Reason.QUEUE_OVER_DESERVED, key=key).verdicts)
    world = World(seen("web", ""), plan=plan)
    assert list(world.ask_single("web").refused) == NODES

    assert list(world.ask_single("web", offered=["n2"]).refused) == ["n2"]


def test_an_ordinary_pod_leaves_promised_room_alone() -> None:
    world = World(seen("web", ""))
    for index in range(4):
        world.promise(f"p{index}", "n1")

    answer = world.ask_single("web")

    assert list(answer.nodes) == ["n2"]
    assert answer.refused == {"n1": Reason.BEHIND_IN_ORDER.sentence}


def test_an_ordinary_pod_may_use_the_fenced_room_that_its_ticket_is_for() -> None:
    fence = {"n1": Resources({"cpu": 4000}), "n2": Resources({"cpu": 4000})}
    brief, lengthy = {"deadline_s": 60.0}, {"deadline_s": 3600.0}
    plan = Plan(reservations=fence, direct_admission={"default": DirectAdmission()}, brief_s=600.0)
    world = World(seen("web", "", **brief), seen("long", "", **lengthy), plan=plan)
    world.promise("web", on="n1", gang=GangKey("a/pod:web"), **brief)
    world.promise("long", on="n2", gang=GangKey("a/pod:long"), **lengthy)

    assert list(world.ask_single("web", **brief).nodes) == ["n1"]
    assert world.ledger.may_bind(uid("web"), "n1")
    assert not world.ask_single("web", ["n2"], **brief).nodes
    assert not world.ledger.may_bind(uid("long"), "n2"), "it would stay"
    assert not world.ask_single("long", **lengthy).nodes
    assert not world.ask_single("another", **brief).nodes


def test_an_ordinary_pod_leaves_fenced_room_alone() -> None:
    fence = Resources({"cpu": 4000})
    world = World(
        seen("web", ""),
        plan=Plan(reservations={"n1": fence}, direct_admission={"default": DirectAdmission()}),
    )

    answer = world.ask_single("web")

    assert list(answer.nodes) == ["n2"]


def test_what_becomes_free_where_room_is_owed_is_left_to_whom_it_is_owed() -> None:
    """Whoever leaves such a node does so between two plans, and others come at any moment."""
    fence = {"n1": Resources({"cpu": 1000})}
    plan = Plan(reservations=fence, direct_admission={"default": DirectAdmission()})

    assert list(World(seen("web", ""), plan=plan).ask_single("web").nodes) == NODES
    owing = replace(plan, reservations_missing={"n1": Resources({"cpu": 3000})})
    world = World(seen("web", ""), seen("late", ""), plan=owing)
    assert list(world.ask_single("web").nodes) == ["n2"]
    world.promise("late", "n1", seen("late", "").membership.key)
    assert world.ledger.may_bind(uid("late"), "n1"), "who has a place there keeps it"


def test_an_ordinary_pod_keeps_the_place_of_its_ticket_beside_what_is_owed_to_others() -> None:
    """Whom others are to make room for will have theirs; its own was never theirs."""
    fence = {"n1": NOTHING, "n2": NOTHING}
    owed = {"n1": Resources({"cpu": 4000}), "n2": Resources({"cpu": 4000})}
    plan = Plan(
        reservations=fence,
        reservations_missing=owed,
        direct_admission={"default": DirectAdmission()},
    )
    world = World(seen("web", ""), seen("late", ""), plan=plan)
    world.promise("web", "n1", seen("web", "").membership.key)

    assert list(world.ask_single("web").nodes) == ["n1"]
    assert world.of("web").node == "n1"
    assert world.ledger.may_bind(uid("web"), "n1")
    assert not world.ask_single("web", ["n2"]).nodes
    assert not world.ask_single("late").nodes


def test_an_ordinary_pod_of_a_queue_that_may_not_start_pods_now_is_refused() -> None:
    key = seen("web", "").membership.key
    plan = Plan(verdicts=verdict(Reason.QUEUE_OVER_DESERVED, key=key).verdicts)
    world = World(seen("web", ""), plan=plan)

    answer = world.ask_single("web")

    assert answer.outcome == "QueueOverDeserved"
    assert world.ledger.filter_results.refused_at(uid("web")) is not None


def test_an_ordinary_pod_with_a_promise_is_left_to_kube_schedulers_choice() -> None:
    world = World(seen("web", ""))
    world.promise("web", "n2", seen("web", "").membership.key)

    answer = world.ask_single("web")

    assert list(answer.nodes) == NODES
    assert world.of("web").node == ANY_NODE


@pytest.mark.parametrize(
    "exempt",
    [
        {"ours": False},
        {"namespace": "kube-system"},
        {"priority_class": "system-node-critical"},
        {"exempt": True},
        {"on": "n1", "status": Status.BOUND},
    ],
    ids=["another scheduler", "kube-system", "critical", "exempt namespace", "bound already"],
)
def test_what_is_not_ours_or_keeps_the_cluster_alive_passes(exempt: dict[str, Any]) -> None:
    world = World()

    assert list(world.gate.filter(pod("p0", **exempt), member_of("none"), NODES).nodes) == NODES


def test_an_exempt_pod_passes_whatever_is_fenced_or_promised() -> None:
    everything = {name: Resources({"cpu": 4000}) for name in NODES}
    world = World(pod_group(), seen("p0"), plan=Plan(reservations=everything))
    world.promise("p0", "n1")

    agent = pod("agent", exempt=True)
    assert list(world.gate.filter(agent, member_of("none"), NODES).nodes) == NODES


def test_members_of_native_groups_pass() -> None:
    native = Membership(key=GANG, named=True, native=True)

    assert list(World().gate.filter(pod("p0"), native, NODES).nodes) == NODES


def test_the_reserved_node_scores_highest() -> None:
    world = World(pod_group(), seen("p0"))
    world.promise("p0", "n2")

    assert world.gate.prioritize(pod("p0"), NODES) == {"n1": 0, "n2": 10}


@pytest.mark.parametrize(
    ("prefer", "scores"),
    [("nothing", {"n1": 0, "n2": 0}), ("pack", {"n1": 9, "n2": 0}), ("spread", {"n1": 0, "n2": 9})],
)
def test_ordinary_pods_are_packed_or_spread_as_configured(
    prefer: str, scores: dict[str, int]
) -> None:
    world = World(seen("old", "", on="n1"), prefer=prefer)
    world.promise("p0", "n1")

    assert world.gate.prioritize(pod("web"), NODES) == scores


def test_a_node_we_have_not_heard_of_counts_as_full() -> None:
    world = World(prefer="spread")

    assert world.gate.prioritize(pod("web"), ["n1", "new"]) == {"n1": 9, "new": 0}


def test_pods_of_ours_may_have_none_but_nodes_of_ours() -> None:
    world = World(pod_group(min_member=1), node("n2", managed=False))

    answers = [world.ask_single("single"), world.ask("p0", offered=["n2", "n1"])]

    assert [list(answer.nodes) for answer in answers] == [["n1"], ["n1"]]
    sentence = (
        "NodeNotManaged: nodes without a label of --node-selector are not managed by this extender"
    )
    assert answers[0].refused == {"n2": sentence}


def test_where_only_nodes_of_others_are_offered_every_one_is_refused_and_nothing_promised() -> None:
    world = World(*(node(name, managed=False) for name in NODES))

    answer = world.ask_single("single")

    assert answer.outcome == "NodeNotManaged"
    assert set(answer.refused) == set(NODES)
    assert not len(world.table)


@pytest.mark.parametrize("exempt", [{"namespace": "kube-system"}, {"exempt": True}])
def test_exempt_pods_go_to_nodes_of_others_too(exempt: dict[str, Any]) -> None:
    world = World(*(node(name, managed=False) for name in NODES))

    assert list(world.ask_single("agent", **exempt).nodes) == NODES


def test_pods_of_other_schedulers_go_where_they_like() -> None:
    world = World(node("n2", managed=False))

    assert list(world.ask_single("foreign", ours=False).nodes) == NODES


def test_a_node_that_becomes_ours_is_offered_to_pods_of_ours_again() -> None:
    world = World(node("n2", managed=False))
    world.see(node("n2"))

    assert list(world.ask_single("single").nodes) == NODES


def test_a_place_on_a_node_that_is_ours_no_more_is_moved_to_one_that_is() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")
    world.see(node("n2", managed=False))

    assert list(world.ask("p0").nodes) == ["n1"]
    assert world.of("p0").node == "n1"


def test_a_place_on_a_node_that_is_ours_no_more_is_given_back_where_there_is_no_other() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")
    world.ledger.refused(uid("p0"))
    world.wait(1)  # it is woken, with its node as the nomination
    world.see(node("n2", managed=False))
    world.clock.advance(5)

    assert world.ask("p0", offered=["n2"], nominated="n2").outcome == "NodeNotManaged"
    assert not len(world.table)


@pytest.mark.parametrize("named", [True, False])
def test_a_pod_with_a_problem_of_its_own_starts_nowhere_whether_it_names_a_gang_or_not(
    named: bool,
) -> None:
    world = World(pod_group(min_member=1))
    member = Membership(key=GANG, named=named, problem="a pod of it has more than 256 host ports")

    answer = world.gate.filter(pod("p"), member, NODES)

    assert not answer.nodes
    assert answer.outcome == "PodGroupMissing"
    assert set(answer.refused) == set(NODES)
    exempt = world.gate.filter(pod("q", namespace="kube-system"), member, NODES)
    assert list(exempt.nodes) == NODES


def test_nobody_leaves_for_a_pod_that_filter_would_refuse_by_the_ceiling_of_its_queue() -> None:
    world = World(
        Queue(name="q", capability=Resources({"cpu": 2000})),
        seen("foreign", on="n1", ours=False),
    )
    world.turn()
    member = Membership(key=GangKey("a/pod:boss"), queue="q")
    asked = {"n1": [uid("foreign")]}
    assert world.gate.preempt(pod("boss"), member, asked) == asked

    world.see(seen("first", "", queue="q", on="n2"), seen("second", "", queue="q", on="n2"))
    world.turn()

    assert not world.gate.filter(pod("boss"), member, NODES).nodes
    assert world.gate.preempt(pod("boss"), member, asked) == {}


CAPPED = {"cpu": 2000}


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (Queue(name="q", state=QueueState.CLOSED), Reason.QUEUE_CLOSED),
        (Queue(name="q", capability=Resources(CAPPED)), Reason.QUEUE_AT_CAPABILITY),
    ],
)
def test_a_surplus_member_is_told_what_its_queue_lacks_and_not_that_others_are_ahead(
    queue: Queue, reason: Reason
) -> None:
    running = (seen(name, on="n1") for name in ("p0", "p1"))
    world = World(queue, pod_group(min_member=2, queue="q"), *running, seen("p2"))
    world.turn()

    assert world.ask("p2").outcome == reason.value


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (Queue(name="q", state=QueueState.CLOSED), Reason.QUEUE_CLOSED),
        (Queue(name="q", capability=Resources({"cpu": 1})), Reason.QUEUE_AT_CAPABILITY),
    ],
)
def test_an_ordinary_pod_that_the_watch_has_not_shown_is_not_told_that_members_are_missing(
    queue: Queue, reason: Reason
) -> None:
    world = World(queue)
    world.turn()

    assert world.ask_single("new", queue="q").outcome == reason.value


def test_who_completes_its_gang_is_not_told_that_members_are_missing() -> None:
    closed = Queue(name="q", state=QueueState.CLOSED)
    world = World(closed, pod_group(min_member=2, queue="q"), seen("p0"))
    world.turn()

    assert world.ask("p0").outcome == Reason.NOT_ENOUGH_MEMBERS.value
    assert world.ask("p1").outcome != Reason.NOT_ENOUGH_MEMBERS.value
