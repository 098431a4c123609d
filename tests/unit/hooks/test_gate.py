"""The filter and prioritize results for a pod, given the plan and the reservations."""

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
from tests.unit.reservations import world as reservation_world
from tests.unit.reservations.world import NODES, OPEN


class World(reservation_world.World):
    """A world with a plan that admits everything."""

    def __init__(self, *items: Any, plan: Plan = OPEN, prefer: str = "nothing") -> None:
        super().__init__(*items, plan=plan, prefer=prefer)


def verdict(reason: Reason, standing: GangStatus = GangStatus.WAITING, key: GangKey = GANG) -> Plan:
    told = Verdict(gang=key, queue="default", status=standing, reason=reason, message="")
    return Plan(verdicts={key: told}, direct_admission={"default": DirectAdmission()})


def test_a_member_with_a_reservation_is_allowed_only_on_its_node() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")

    answer = world.ask("p0")

    assert list(answer.nodes) == ["n2"]
    assert not answer.refused
    assert world.of("p0").stage is Stage.FILTERED


def test_a_member_of_a_missing_role_is_refused_without_the_placement_its_bind_needs() -> None:
    roles = pod_group(min_member=3, min_by_role={"ps": 1, "worker": 2})
    workers = [seen(f"w{index}", on="n1", role="worker") for index in range(3)]
    world = World(roles, *workers, seen("ps", role="ps"))
    assert not world.ask("ps", role="ps").nodes, "its bind would be refused: it has no placement"

    assert world.turn() == ["ps"]
    (chosen,) = world.ask("ps", role="ps").nodes
    assert world.of("ps").node == chosen


def test_a_member_beyond_the_minimum_of_every_role_passes_without_a_placement() -> None:
    roles = pod_group(min_member=3, min_by_role={"ps": 1, "worker": 2})
    running = [seen(f"w{index}", on="n1", role="worker") for index in range(2)]
    world = World(roles, *running, seen("ps", on="n1", role="ps"), seen("w2", role="worker"))

    assert list(world.ask("w2", role="worker").nodes) == NODES


def test_a_reservation_moves_when_its_node_is_not_offered() -> None:
    world = World(pod_group(), seen("p0"))
    world.promise("p0", "n2")

    assert list(world.ask("p0", offered=["n1"]).nodes) == ["n1"]
    assert world.of("p0").node == "n1"


def test_a_reservation_does_not_move_into_capacity_reserved_for_other_gangs() -> None:
    world = World(pod_group(), seen("p0"))
    world.promise("p0", "n2")
    for index in range(4):
        world.promise(f"other-{index}", "n1", GangKey("a/other"))
        world.ask(f"other-{index}", "other")

    answer = world.ask("p0", offered=["n1"])

    assert not answer.nodes
    assert answer.outcome == "InsufficientCapacity"
    assert world.of("p0").node == "n2", "the placement is kept"
    assert [(order.name, order.node) for order in world.woken] == [("p0", "n2")]


LISTED = Namespace(name="a", allowed=frozenset({"silver", "bronze"}))
TWO = (seen("p0"), seen("p1"))
RUNNING = (seen("p1", on="n1"), seen("p2", on="n1"))


@pytest.mark.parametrize(
    ("items", "plan", "outcome"),
    [
        ((pod_group(), *TWO), verdict(Reason.QUEUE_OVER_DESERVED), "QueueOverDeserved"),
        ((pod_group(), *TWO), verdict(Reason.ADMITTED, GangStatus.ADMITTED), "BehindInOrder"),
        (
            (pod_group(), *TWO),
            replace(verdict(Reason.COMPLETED, GangStatus.FINISHED), direct_admission={}),
            "BehindInOrder",
        ),
        ((pod_group(), seen("p0"), *RUNNING), Plan(), "BehindInOrder"),
        ((pod_group(min_member=3), seen("p0")), Plan(), "NotEnoughMembers"),
        ((pod_group(min_member=1, queue="nowhere"),), OPEN, "QueueNotFound"),
        ((pod_group(), LISTED), OPEN, "QueueNotAllowed"),
        ((seen("p0"),), OPEN, "PodGroupMissing"),
        ((seen("p0"), pod_group(problem="minMember is three")), OPEN, "PodGroupMissing"),
    ],
    ids=[
        "the verdict on its gang",
        "admitted, without a placement",
        "created after its gang ended",
        "surplus, while others wait",
        "newer than the plan",
        "no such queue",
        "a queue must be named",
        "no group",
        "unusable group",
    ],
)
def test_a_member_without_a_placement_is_refused_for_its_reason(
    items: tuple[Any, ...], plan: Plan, outcome: str
) -> None:
    assert World(*items, plan=plan).ask("p0").outcome == outcome


def test_a_gang_recreated_after_all_its_members_ended_is_admitted_like_a_new_one() -> None:
    world = World(pod_group(), plan=verdict(Reason.COMPLETED, GangStatus.FINISHED))

    assert [world.ask(f"p{index}").outcome for index in range(2)] == ["steered"] * 2


def test_the_members_of_a_new_gang_are_admitted_one_after_the_other() -> None:
    world = World(pod_group(min_member=3))

    answers = [world.ask(f"p{index}") for index in range(3)]

    assert [answer.outcome for answer in answers] == ["steered"] * 3
    assert len(world.cluster.reservations.of_gang(GANG)) == 3


def test_a_gang_declared_by_its_pods_is_admitted_before_the_watch_shows_any_of_them() -> None:
    world = World()

    answer = world.gate.filter(pod("p0"), member_of("own", min_member=2), NODES)

    assert answer.outcome == "steered"


def test_a_pod_without_a_group_may_not_use_a_queue_its_namespace_does_not_allow() -> None:
    world = World(seen("web", ""), LISTED)

    assert world.ask_single("web").outcome == "QueueNotAllowed"
    assert world.ask_single("web", queue="default").outcome == "QueueNotAllowed"
    assert world.ask_single("vital", priority_class="system-node-critical").outcome == "passed"


def test_the_next_plan_is_requested_for_a_pod_that_only_a_plan_can_admit() -> None:
    """Others wait for the capacity, and no plan includes this pod yet."""
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
    ids=["incomplete", "behind others", "no capacity"],
)
def test_no_plan_is_requested_for_a_pod_that_waits_for_another_reason(world: World) -> None:
    assert not world.ask("p0").nodes
    assert not world.published.awaited.is_set()


def test_a_surplus_member_of_a_running_gang_passes() -> None:
    world = World(pod_group(), seen("p0", on="n1"), seen("p1", on="n1"), seen("p2"))

    assert list(world.ask("p2").nodes) == NODES


def test_a_gang_that_may_not_start_is_refused_on_every_recently_offered_node() -> None:
    """So kube-scheduler's condition stays the same, and is not written for every new pod."""
    world = World(pod_group(), seen("p0"), plan=verdict(Reason.INSUFFICIENT_CAPACITY))
    before = world.ask("p0")

    assert world.ask("p0", offered=["n2"]) == before
    assert before.refused == dict.fromkeys(NODES, before.refused["n1"])
    assert not before.nodes


def test_a_node_that_is_gone_or_not_offered_recently_is_not_in_the_refusal() -> None:
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


def test_a_pod_that_may_preempt_is_refused_only_on_the_offered_nodes() -> None:
    """Nodes not offered have a reason of kube-scheduler, and preemption may help there."""
    key = seen("web", "").membership.key
    plan = Plan(verdicts=verdict(Reason.QUEUE_OVER_DESERVED, key=key).verdicts)
    world = World(seen("web", ""), plan=plan)
    assert list(world.ask_single("web").refused) == NODES

    assert list(world.ask_single("web", offered=["n2"]).refused) == ["n2"]


def test_an_ordinary_pod_is_refused_reserved_capacity() -> None:
    world = World(seen("web", ""))
    for index in range(4):
        world.promise(f"p{index}", "n1")

    answer = world.ask_single("web")

    assert list(answer.nodes) == ["n2"]
    assert answer.refused == {"n1": Reason.BEHIND_IN_ORDER.sentence}


def test_a_short_pod_may_use_the_backfill_reservation_that_its_placement_is_in() -> None:
    reserved = {"n1": Resources({"cpu": 4000}), "n2": Resources({"cpu": 4000})}
    brief, lengthy = {"deadline_s": 60.0}, {"deadline_s": 3600.0}
    plan = Plan(
        held_on_nodes=reserved, direct_admission={"default": DirectAdmission()}, brief_s=600.0
    )
    world = World(seen("web", "", **brief), seen("long", "", **lengthy), plan=plan)
    world.promise("web", on="n1", gang=GangKey("a/pod:web"), **brief)
    world.promise("long", on="n2", gang=GangKey("a/pod:long"), **lengthy)

    assert list(world.ask_single("web", **brief).nodes) == ["n1"]
    assert world.ledger.may_bind(uid("web"), "n1")
    assert not world.ask_single("web", ["n2"], **brief).nodes
    assert not world.ledger.may_bind(uid("long"), "n2"), "it would stay"
    assert not world.ask_single("long", **lengthy).nodes
    assert not world.ask_single("another", **brief).nodes


def test_capacity_that_becomes_free_on_a_node_with_a_missing_reservation_is_kept_for_it() -> None:
    """Capacity becomes free between two plans, and other pods arrive at any moment."""
    reserved = {"n1": Resources({"cpu": 1000})}
    plan = Plan(held_on_nodes=reserved, direct_admission={"default": DirectAdmission()})

    assert list(World(seen("web", ""), plan=plan).ask_single("web").nodes) == NODES
    with_missing = replace(plan, missing_on_nodes={"n1": Resources({"cpu": 3000})})
    world = World(seen("web", ""), seen("late", ""), plan=with_missing)
    assert list(world.ask_single("web").nodes) == ["n2"]
    world.promise("late", "n1", seen("late", "").membership.key)
    assert world.ledger.may_bind(uid("late"), "n1"), "a pod with a placement there keeps it"


def test_an_ordinary_pod_keeps_its_placement_beside_missing_reservations_of_others() -> None:
    """Missing reservations are filled by evictions; the pod's own placement is no part of them."""
    reserved = {"n1": NOTHING, "n2": NOTHING}
    missing = {"n1": Resources({"cpu": 4000}), "n2": Resources({"cpu": 4000})}
    plan = Plan(
        held_on_nodes=reserved,
        missing_on_nodes=missing,
        direct_admission={"default": DirectAdmission()},
    )
    world = World(seen("web", ""), seen("late", ""), plan=plan)
    world.promise("web", "n1", seen("web", "").membership.key)

    assert list(world.ask_single("web").nodes) == ["n1"]
    assert world.of("web").node == "n1"
    assert world.ledger.may_bind(uid("web"), "n1")
    assert not world.ask_single("web", ["n2"]).nodes
    assert not world.ask_single("late").nodes


def test_an_ordinary_pod_of_a_queue_over_its_deserved_share_is_refused() -> None:
    key = seen("web", "").membership.key
    plan = Plan(verdicts=verdict(Reason.QUEUE_OVER_DESERVED, key=key).verdicts)
    world = World(seen("web", ""), plan=plan)

    answer = world.ask_single("web")

    assert answer.outcome == "QueueOverDeserved"
    assert world.ledger.filter_results.refused_at(uid("web")) is not None


def test_kube_scheduler_chooses_the_node_of_an_ordinary_pod_with_a_reservation() -> None:
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
def test_a_pod_that_is_not_managed_or_is_critical_passes(exempt: dict[str, Any]) -> None:
    world = World()

    assert list(world.gate.filter(pod("p0", **exempt), member_of("none"), NODES).nodes) == NODES


def test_an_exempt_pod_passes_whatever_is_reserved() -> None:
    everything = {name: Resources({"cpu": 4000}) for name in NODES}
    world = World(pod_group(), seen("p0"), plan=Plan(held_on_nodes=everything))
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


def test_an_unknown_node_scores_as_full() -> None:
    world = World(prefer="spread")

    assert world.gate.prioritize(pod("web"), ["n1", "new"]) == {"n1": 9, "new": 0}


def test_managed_pods_are_allowed_only_on_managed_nodes() -> None:
    world = World(pod_group(min_member=1), node("n2", managed=False))

    answers = [world.ask_single("single"), world.ask("p0", offered=["n2", "n1"])]

    assert [list(answer.nodes) for answer in answers] == [["n1"], ["n1"]]
    sentence = (
        "NodeNotManaged: nodes without a label of --node-selector are not managed by this extender"
    )
    assert answers[0].refused == {"n2": sentence}


def test_an_offer_without_managed_nodes_is_refused_and_nothing_is_reserved() -> None:
    world = World(*(node(name, managed=False) for name in NODES))

    answer = world.ask_single("single")

    assert answer.outcome == "NodeNotManaged"
    assert set(answer.refused) == set(NODES)
    assert not len(world.table)


@pytest.mark.parametrize(
    "exempt", [{"namespace": "kube-system"}, {"exempt": True}, {"ours": False}], ids=str
)
def test_pods_that_are_not_managed_may_use_nodes_that_are_not_either(
    exempt: dict[str, Any],
) -> None:
    world = World(*(node(name, managed=False) for name in NODES))

    assert list(world.ask_single("agent", **exempt).nodes) == NODES


def test_a_node_that_becomes_managed_is_allowed_again() -> None:
    world = World(node("n2", managed=False))
    world.see(node("n2"))

    assert list(world.ask_single("single").nodes) == NODES


def test_a_reservation_on_a_node_no_longer_managed_moves_to_a_managed_one() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")
    world.see(node("n2", managed=False))

    assert list(world.ask("p0").nodes) == ["n1"]
    assert world.of("p0").node == "n1"


def test_a_reservation_on_a_node_no_longer_managed_is_released_if_there_is_no_other() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    world.promise("p0", "n2")
    world.ledger.refused(uid("p0"))
    world.wait(1)  # it is woken, with its node as nominated node
    world.see(node("n2", managed=False))
    world.clock.advance(5)

    assert world.ask("p0", offered=["n2"], nominated="n2").outcome == "NodeNotManaged"
    assert not len(world.table)


@pytest.mark.parametrize("named", [True, False])
def test_an_invalid_pod_is_refused_everywhere_with_or_without_a_gang(
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


def test_no_victim_is_allowed_for_a_pod_that_filter_refuses_for_the_capability_of_its_queue() -> (
    None
):
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
def test_a_surplus_member_is_refused_for_its_queue_and_not_because_others_are_ahead(
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
def test_an_ordinary_pod_unknown_to_the_watch_is_not_refused_for_missing_members(
    queue: Queue, reason: Reason
) -> None:
    world = World(queue)
    world.turn()

    assert world.ask_single("new", queue="q").outcome == reason.value


def test_the_member_that_completes_its_gang_is_not_refused_for_missing_members() -> None:
    closed = Queue(name="q", state=QueueState.CLOSED)
    world = World(closed, pod_group(min_member=2, queue="q"), seen("p0"))
    world.turn()

    assert world.ask("p0").outcome == Reason.NOT_ENOUGH_MEMBERS.value
    assert world.ask("p1").outcome != Reason.NOT_ENOUGH_MEMBERS.value
