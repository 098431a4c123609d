"""Gangs that are admitted before the next plan, as their members come, while no gang waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.reservation_table import Reservation
from extender.model.gang import PodGroup
from extender.model.pod import HostPort
from extender.model.resources import Resources
from extender.model.snapshot import ResourceQuota
from extender.planner.plan import DirectAdmission, Plan
from extender.reservations.apply_plan import MOST_REFUSALS
from extender.reservations.arrivals import DISTRUST_S, MOST_MEMBERS
from tests.builders import GANG, ONE_CPU, amounts, pod, pod_group, seen, shape, uid
from tests.unit.reservations import world as promises
from tests.unit.reservations.world import GRACE_S, NODES, OPEN


class World(promises.World):
    """A world whose queue is open, as if by a plan."""

    def __init__(self, *items: Any, left: Resources | None = None) -> None:
        super().__init__(*items, plan=Plan(direct_admission={"default": DirectAdmission(left)}))

    def see_members(self, *names: str) -> None:
        self.see(*map(seen, names))

    def admit(
        self,
        name: str,
        min_member: int = 4,
        *,
        queue: str = "default",
        offered: list[str] = NODES,
        **rest: Any,
    ) -> Reservation | None:
        made = PodGroup(namespace="a", name="train", min_member=min_member, **rest)
        return self.arrivals.admit(pod(name), made, queue, offered)

    def claim(self, name: str, **rest: Any) -> Reservation | None:
        return self.arrivals.claim(pod(name, **rest), GANG)


def test_the_first_member_reserves_capacity_for_the_whole_minimum() -> None:
    world = World(pod_group(min_member=4))

    place = world.admit("p0")

    assert place is not None
    assert place.uid == uid("p0")
    assert len(world.kept) == 3


def test_the_fullest_nodes_are_reserved_first() -> None:
    world = World(seen("old", "other", on="n2"))

    assert world.admit("p0", 3)
    assert {each.node for each in world.table.of_gang(GANG)} == {"n2"}


def test_nothing_is_reserved_if_not_all_of_the_gang_fits() -> None:
    world = World()

    assert world.admit("p0", 9) is None
    assert len(world.table) == 0
    world.clock.advance(1.0)
    assert world.admit("p0", 5, offered=["n1"]) is None
    world.publish(replace(OPEN, held_on_nodes={"n1": amounts(cpu=4)}))
    world.clock.advance(1.0)
    assert world.admit("p0", 5) is None
    world.publish(OPEN)
    world.clock.advance(1.0)
    assert world.admit("p0", 8)


def test_full_nodes_are_not_checked_for_every_member_of_a_gang() -> None:
    """Each try would check all nodes during a filter call, which blocks kube-scheduler."""
    world = World(pod_group(min_member=9))
    looks = []
    look, world.ledger.capacity.slots = (
        world.ledger.capacity.slots,
        lambda *asked: looks.append(asked) or 0,
    )
    for number in range(9):
        assert world.admit(f"p{number}", 9) is None
    assert len(looks) == len(NODES)

    world.ledger.capacity.slots = look
    assert first_member_of(world, "small", "a"), "other gangs are not affected"
    assert world.admit("p0", 4) is None
    world.clock.advance(1.0)
    assert world.admit("p0", 4)
    world.arrivals.settle()
    assert world.arrivals.backoffs == 0


def test_a_host_port_is_needed_once_on_every_node() -> None:
    world = World()
    kind = shape(cpu=1, host_ports=(HostPort(8080),))
    made = PodGroup(namespace="a", name="train", min_member=3)

    assert world.arrivals.admit(pod("p0", shape=kind), made, "default", NODES) is None


def test_no_gang_is_admitted_to_a_queue_that_is_not_open() -> None:
    assert World().admit("p0", queue="other") is None


def test_in_a_queue_with_waiting_gangs_pods_may_use_the_remainder_but_no_gang_may() -> None:
    world = World()
    world.publish(Plan(direct_admission={"default": DirectAdmission(is_quiet=False)}))

    assert world.admit("p0") is None
    assert world.ledger.allowance.may_start("default", "a", ONE_CPU.requests)


def test_a_queue_admits_no_more_than_its_remainder_until_the_next_plan() -> None:
    world = World(left=amounts(cpu=5, memory=50, pods=50))
    assert world.admit("p0", 4)

    second = PodGroup(namespace="a", name="second", min_member=2)
    ask = (pod("q0"), second, "default", NODES)
    assert world.arrivals.admit(*ask) is None

    world.cluster.snapshot(world.clock.now())
    assert world.arrivals.admit(*ask) is None, "the plan that counts it is still being made"
    world.publish(
        Plan(direct_admission={"default": DirectAdmission(amounts(cpu=2, memory=9, pods=9))})
    )
    assert world.arrivals.admit(*ask)


def test_pods_admitted_while_a_plan_is_made_count_against_the_next_allowance() -> None:
    world = World(left=amounts(cpu=4, memory=50, pods=50))
    world.cluster.snapshot(world.clock.now())
    assert world.admit("p0", 2)
    world.publish(
        Plan(direct_admission={"default": DirectAdmission(amounts(cpu=3, memory=9, pods=9))})
    )

    assert not world.ledger.allowance.may_start("default", "a", amounts(cpu=2))
    assert world.ledger.allowance.may_start("default", "a", amounts(cpu=1))


def test_roles_backoff_and_very_large_gangs_are_left_to_the_plan() -> None:
    world = World()

    assert world.admit("p0", min_by_role={"worker": 3}) is None
    assert world.admit("p0", MOST_MEMBERS + 1) is None
    world.table.back_off(GANG, 1e6)
    assert world.admit("p0") is None


def test_a_gang_that_has_reservations_or_runs_is_not_admitted_twice() -> None:
    world = World()
    assert world.admit("p0", 2)
    assert world.admit("p9", 2) is None

    running = World(seen("p0", on="n1"))
    assert running.admit("p1", 2) is None


def test_later_members_take_over_the_placeholders() -> None:
    world = World()
    world.admit("p0", 3)
    nodes = sorted(each.node for each in world.table.of_gang(GANG))

    for name in ("p1", "p2"):
        place = world.claim(name)
        assert place is not None
        assert place.uid == uid(name)

    assert world.kept == []
    assert sorted(each.node for each in world.table.of_gang(GANG)) == nodes
    assert world.claim("p3") is None


def test_a_member_that_already_has_a_reservation_takes_no_placeholder() -> None:
    world = World()
    world.admit("p0", 3)

    assert world.claim("p0") == world.table.of(uid("p0"))

    assert len(world.kept) == 2
    assert world.claim("p1")
    assert world.claim("p2")


def test_a_member_of_another_shape_takes_no_placeholder() -> None:
    world = World()
    world.admit("p0", 3)

    assert world.claim("p1", shape=shape(cpu=2)) is None
    assert len(world.kept) == 2


def test_before_a_snapshot_members_that_were_seen_take_over_placeholders() -> None:
    world = World(pod_group(min_member=3))
    world.admit("p0", 3)
    world.see_members("p0", "p1")

    world.arrivals.settle()

    assert world.table.of(uid("p1")) is not None
    assert len(world.kept) == 1
    snapshot = world.cluster.snapshot(world.clock.now())
    assert snapshot.gangs[GANG].ready == 3
    assert snapshot.gangs[GANG].placeholders == 1


def test_a_gated_member_takes_no_placeholder() -> None:
    world = World(pod_group(min_member=3))
    world.admit("p0", 3)
    world.cluster.apply(Upsert(seen("p1", gated=True)))

    world.arrivals.settle()

    assert world.table.of(uid("p1")) is None


def test_placeholders_that_no_member_takes_over_are_released() -> None:
    world = World(pod_group(min_member=3))
    world.admit("p0", 3)
    world.see_members("p0")
    world.clock.advance(GRACE_S / 2)
    world.claim("p1")
    world.clock.advance(GRACE_S / 2 + 1)
    world.arrivals.settle()
    assert len(world.kept) == 1, "the last one came less than the grace ago"

    world.clock.advance(GRACE_S)
    world.arrivals.settle()

    assert world.kept == []
    assert not world.arrivals.is_arriving(GANG)
    assert {each.uid for each in world.table.of_gang(GANG)} == {uid("p0"), uid("p1")}
    assert world.incomplete == [GANG]


AGES = {"p0": 61.0, "p1": 59.0}


def incomplete_gang() -> World:
    """A world in which a gang of three had placeholders, and only one member came."""
    world = World(pod_group(min_member=3))
    world.admit("p0", 3)
    world.see_members("p0")
    expire_incomplete(world)
    return world


def expire_incomplete(world: World) -> None:
    world.clock.advance(GRACE_S + 1)
    world.arrivals.settle()
    world.table.expire(GANG)


def first_member_of(
    world: World, name: str, namespace: str, min_member: int = 2
) -> Reservation | None:
    """Let filter admit the first member of another gang."""
    made = PodGroup(namespace=namespace, name=name, min_member=min_member)
    first = replace(pod(f"{name}-0"), namespace=namespace)
    return world.arrivals.admit(first, made, "default", NODES)


def test_a_gang_that_stayed_incomplete_is_admitted_again_only_when_complete() -> None:
    """Otherwise a pod now and then would keep the capacity of the whole gang for ever."""
    world = incomplete_gang()
    world.clock.advance(DISTRUST_S.longest_s)

    assert world.admit("p0", 3) is None
    world.see_members("p1")
    assert world.admit("p1", 3) is None
    world.see_members("p2")
    assert world.admit("p2", 3)


def test_a_deleted_gang_is_forgotten() -> None:
    world = incomplete_gang()
    world.lose_pod("p0")
    world.clock.advance(DISTRUST_S.first_s + 1)
    world.arrivals.settle()

    world.see_members("p0")
    assert world.admit("p0", 3)


def test_a_gang_that_was_incomplete_before_the_term_is_not_arriving() -> None:
    """After every change of leaders each such gang would get placeholders and wake-ups."""
    made = PodGroup(namespace="a", name="train", min_member=3)
    world = World(pod_group(min_member=3))
    world.see_members("p0", "p1")
    old, new = (pod(each, created=world.clock.now() - age) for each, age in AGES.items())

    assert world.arrivals.admit(old, made, "default", NODES) is None
    assert world.arrivals.admit(new, made, "default", NODES)


def test_an_old_complete_gang_is_admitted() -> None:
    made = PodGroup(namespace="a", name="train", min_member=2)
    world = World(pod_group(min_member=2))
    world.see_members("p0", "p1")
    old = pod("p0", created=world.clock.now() - 600)

    assert world.arrivals.admit(old, made, "default", NODES)


def test_a_namespace_that_left_capacity_unused_gets_no_placeholders_for_a_while() -> None:
    world = incomplete_gang()

    assert first_member_of(world, "next", "a") is None
    assert first_member_of(world, "theirs", "b"), "other namespaces are not affected"
    world.clock.advance(DISTRUST_S.first_s + 1)
    assert first_member_of(world, "next", "a")


def test_a_complete_gang_is_admitted_whatever_its_namespace_left_unused() -> None:
    world = incomplete_gang()
    world.see(seen("q0", "next"), seen("q1", "next"))

    assert first_member_of(world, "next", "a")


def test_the_pause_grows_each_time_capacity_is_left_unused() -> None:
    world = incomplete_gang()
    world.lose_pod("p0")
    world.clock.advance(DISTRUST_S.first_s + 1)
    world.see_members("p0")
    world.arrivals.settle()
    assert world.admit("p0", 3) is None, "the cache never saw all members gone"
    world.lose_pod("p0")
    world.arrivals.settle()
    world.see_members("p0")
    assert world.admit("p0", 3)
    expire_incomplete(world)

    world.clock.advance(DISTRUST_S.first_s + 1)
    assert first_member_of(world, "next", "a") is None
    world.clock.advance(DISTRUST_S.first_s)
    assert first_member_of(world, "next", "a")


def test_several_gangs_that_expire_together_count_once() -> None:
    world = World(pod_group(min_member=3), pod_group("other", min_member=3))
    world.admit("p0", 3)
    first_member_of(world, "other", "a", 3)
    world.see(seen("p0"), seen("other-0", "other"))
    world.clock.advance(GRACE_S + 1)
    world.arrivals.settle()
    assert len(world.incomplete) == 2

    world.clock.advance(DISTRUST_S.first_s + 1)
    assert first_member_of(world, "next", "a")


def test_a_gang_deleted_before_its_grace_ends_has_left_its_capacity_unused_too() -> None:
    """Otherwise pods that are deleted in time, with ever new names, keep the capacity for ever."""
    world = World(pod_group(min_member=3))
    world.admit("p0", 3)
    world.see_members("p0")
    world.lose_pod("p0")
    world.arrivals.settle()

    assert world.kept == []
    assert first_member_of(world, "next", "a") is None
    assert first_member_of(world, "theirs", "b")


def test_a_gang_that_lowers_its_minimum_has_left_its_capacity_unused_too() -> None:
    world = World(pod_group(min_member=4))
    world.admit("p0", 4)
    world.see_members("p0")
    world.see(pod_group(min_member=1))
    world.arrivals.settle()

    assert world.kept == []
    assert first_member_of(world, "next", "a") is None


def test_a_member_deleted_after_its_gang_was_complete_has_no_consequence() -> None:
    world = World(pod_group(min_member=2))
    world.admit("p0", 2)
    assert world.claim("p1")
    world.see_members("p0", "p1")
    world.lose_pod("p1")
    world.arrivals.settle()

    assert first_member_of(world, "next", "a")


def test_members_of_another_shape_that_the_plan_places_have_no_consequence() -> None:
    world = World(pod_group(min_member=2))
    world.admit("p0", 2)
    world.see(seen("p0"), seen("launcher", shape=shape(cpu=2)))
    world.arrivals.settle()

    assert world.kept == []
    assert first_member_of(world, "next", "a")


def test_unused_capacity_of_a_namespace_is_forgotten_after_a_while() -> None:
    world = incomplete_gang()
    world.clock.advance(DISTRUST_S.first_s + DISTRUST_S.longest_s + 1)
    world.arrivals.settle()

    assert world.arrivals.backoffs == 0


def test_placeholders_are_released_when_the_minimum_shrinks_or_all_members_are_gone() -> None:
    world = World(pod_group(min_member=4))
    world.admit("p0", 4)
    world.see_members("p0")
    world.cluster.apply(Upsert(pod_group(min_member=2)))
    world.arrivals.settle()
    assert len(world.kept) == 1

    world.cluster.apply(Delete(Kind.POD, uid("p0")))
    world.arrivals.settle()
    assert world.kept == []


def test_a_member_known_only_from_filter_keeps_the_placeholders() -> None:
    world = World()
    world.admit("p0", 3)

    world.arrivals.settle()

    assert len(world.kept) == 2


def test_a_former_leader_keeps_only_reservations_that_kube_scheduler_counts_on() -> None:
    world = World(pod_group(min_member=4))
    world.see_members("p0", "p1")
    assert world.admit("p0")
    assert world.claim("p1")
    world.ledger.mark_binding(uid("p0"), "n1")

    world.arrivals.forget()
    world.ledger.forget()

    assert [each.uid for each in world.table.of_gang(GANG)] == [uid("p0")]
    assert not world.arrivals.is_arriving(GANG)


def test_a_gang_that_a_quota_of_its_namespace_may_refuse_is_left_to_the_plan() -> None:
    world = World(ResourceQuota(namespace="a", name="compute"))

    assert world.admit("p0", 2, min_resources=amounts(cpu=2)) is None
    assert world.admit("p0", 2), "a gang without minResources is not checked against quotas"


def test_gangs_are_admitted_again_when_the_last_quota_is_deleted() -> None:
    world = World(ResourceQuota(namespace="a", name="compute"))
    world.cluster.apply(Delete(Kind.QUOTA, "a/compute"))

    assert world.admit("p0", 2, min_resources=amounts(cpu=2))


# A launcher and its workers, which arrive one by one


LAUNCHER = shape(cpu=1, memory=2)


def arriving() -> promises.World:
    """A gang of four. The bind of its first worker waits, and its launcher was refused."""
    world = promises.World(pod_group(min_member=4))
    world.turn()
    assert world.ask("w0").nodes
    world.see(seen("w0"), seen("launcher", shape=LAUNCHER))
    assert not world.ask("launcher", shape=LAUNCHER).nodes
    world.ledger.mark_waiting(uid("w0"), world.of("w0").node)
    return world


def test_a_member_of_another_shape_gets_its_reservation_while_the_others_are_created() -> None:
    world = arriving()

    assert world.turn(after_s=0.25) == ["launcher"]

    assert world.ask("launcher", shape=LAUNCHER).nodes
    assert len(world.kept) == 2, "for the workers to come"
    for name in ("w1", "w2"):
        assert world.ask(name).nodes
    assert sorted(world.places()) == ["launcher", "w0", "w1", "w2"]


def test_a_gang_whose_members_come_slowly_gets_no_backoff() -> None:
    world = arriving()

    for number in range(1, 3):
        for _ in range(MOST_REFUSALS):
            world.turn(after_s=0.25)
        world.see(seen(f"w{number}"))
        assert world.ask(f"w{number}").nodes

    assert sorted(world.places()) == ["launcher", "w0", "w1", "w2"]
    assert world.backs_off_for() == 0


def test_a_plan_from_before_the_arrival_adds_no_reservations_to_the_placeholders() -> None:
    """The plan saw all of it waiting. Meanwhile filter reserved capacity for the whole minimum."""
    world = promises.World(pod_group(min_member=2))
    world.turn()
    world.see(seen("w0"), seen("w1"))

    world.turn(meanwhile=lambda: world.ask("w0"))

    assert len(world.published.plan.placements) == 1
    assert sorted(world.places()) == ["train-to-come-0", "w0"]
    assert world.cycle.is_due()
