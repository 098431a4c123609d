"""Several preemptions before the watch has shown what became of the first."""

from __future__ import annotations

from typing import Any

from extender.cache.changes import Delete, Kind, Upsert
from extender.evictions.preemption import SHOWN_S
from extender.model.pod import PodUid, Status
from extender.model.queue import Queue
from extender.planner.plan import Plan, ShareFigures
from tests.builders import node, pod, pod_group, seen, uid
from tests.unit.hooks.preemption import test_allowed_victims as judgement
from tests.unit.hooks.preemption.test_allowed_victims import cpus, running


class World(judgement.World):
    """One in which several ordinary pods ask."""

    def by(self, who: str, *victims: str, **elsewhere: str) -> list[str]:
        """Give whom *who* may have of *victims* on n1, and of those *elsewhere*."""
        chosen: dict[str, list[PodUid]] = {"n1": [uid(name) for name in victims]}
        chosen |= {on: [uid(name)] for on, name in elsewhere.items()}
        boss = seen(who, "")
        answer = self.preemption.allowed_nodes(boss.pod, boss.membership, chosen, self.now)
        return [each.removeprefix("a-") for uids in answer.values() for each in uids]

    def see(self, item: Any) -> None:
        self.cluster.apply(Upsert(item))

    def leave(self, name: str, **rest: Any) -> None:
        self.see(seen(name, on="n1", status=Status.RELEASING, **rest))


def test_two_that_come_at_once_do_not_tear_a_gang_that_can_spare_one() -> None:
    world = World(pod_group(), *running(3))

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == []
    assert world.by("second", "p0") == ["p0"], "who goes for both is gone once"


def test_who_asks_again_has_thought_better_of_it() -> None:
    world = World(pod_group(), *running(3))
    world.by("boss", "p0")

    assert world.by("boss", "p1") == ["p1"]


def test_a_gang_spares_as_many_as_it_can() -> None:
    world = World(pod_group(), *running(5))

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == ["p1"]
    world.leave("p0")
    assert world.by("third", "p2") == ["p2"]
    assert world.by("fourth", "p3") == []


def test_what_was_granted_on_many_nodes_is_taken_on_one() -> None:
    world = World(node("n2"), pod_group(min_member=3), *running(4), seen("q0", on="n2"))
    assert world.by("boss", "p0", n2="q0") == ["p0", "q0"]

    assert world.by("second", "p1") == ["p1"]
    assert world.by("third", "p2") == []


def test_the_first_may_take_another_than_the_one_the_second_asks_for() -> None:
    """Both named the same pod; the first is free to take the one on another node instead."""
    world = World(node("n2"), pod_group(), *running(2), seen("q0", on="n2"))
    assert world.by("boss", "p0", n2="q0") == ["p0", "q0"]

    assert world.by("second", "p0") == []
    assert world.by("second", n2="q0") == []


def test_nor_may_the_second_count_on_the_first_to_take_the_rest() -> None:
    world = World(node("n2"), pod_group(), *running(2), seen("other", "", on="n2"))
    assert world.by("boss", "p0", "p1", n2="other") == ["p0", "p1", "other"]

    assert world.by("second", "p0") == []
    assert world.by("second", "p0", "p1") == ["p0", "p1"], "all of it"


def test_the_node_it_was_nominated_to_is_where_they_go() -> None:
    world = World(node("n2"), pod_group(), *running(3), seen("other", "", on="n2"))
    assert world.by("boss", "p0", n2="other") == ["p0", "other"]
    assert world.by("second", "p1") == []

    world.see(seen("boss", "", nominated="n2"))

    assert world.by("second", "p1") == ["p1"]


def test_what_kube_scheduler_did_not_do_is_forgotten() -> None:
    world = World(pod_group(), *running(3), seen("boss", ""))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_it_is_not_while_its_pod_waits_for_those_victims() -> None:
    world = World(pod_group(), *running(3), seen("boss", "", nominated="n1"))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == []
    world.cluster.apply(Delete(Kind.POD, uid("boss")))
    assert world.by("second", "p1") == ["p1"]


def test_a_nomination_from_before_says_nothing_until_a_new_one_would_have_come() -> None:
    world = World(node("n2"), pod_group(), *running(3), seen("other", "", on="n2"))
    before = seen("boss", "", nominated="n2")
    world.see(before)
    asked = {"n1": [uid("p0")], "n2": [uid("other")]}
    assert world.preemption.allowed_nodes(before.pod, before.membership, asked, world.now) == asked
    assert world.by("second", "p1") == []

    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_who_is_nominated_elsewhere_takes_nothing_of_what_was_granted() -> None:
    world = World(pod_group(), *running(3), seen("boss", "", nominated="n9"))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_nor_is_a_role_torn() -> None:
    servers = [seen(f"ps{index}", on="n1", role="ps") for index in range(3)]
    minima = {"ps": 1, "worker": 3}
    world = World(pod_group(min_member=4, min_by_role=minima), *running(4, role="worker"), *servers)

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == []
    assert world.by("second", "ps0") == ["ps0"]


class TestQueues:
    """Another queue keeps its due, and nobody takes more than his own."""

    def world(self, **figures: tuple[int, int]) -> World:
        rich = pod_group(queue="rich", min_member=1)
        return World(Queue(name="rich"), rich, *running(4), **figures)

    def test_many_together_take_no_more_than_one_might(self) -> None:
        world = self.world(rich=(4, 2), default=(0, 9))

        assert world.by("boss", "p0") == ["p0"]
        assert world.by("second", "p1") == ["p1"]
        assert world.by("third", "p2") == []

    def test_who_left_counts_until_a_plan_has_seen_it(self) -> None:
        world = self.world(rich=(4, 2), default=(0, 9))
        world.by("boss", "p0")
        world.by("second", "p1")
        world.leave("p0")
        world.leave("p1")
        assert world.by("third", "p2") == []

        world.count(rich=(3, 2), default=(0, 9))
        assert world.by("third", "p2") == ["p2"]

    def test_who_waits_for_his_victims_counts_as_one_who_has_his_due(self) -> None:
        world = self.world(rich=(4, 0), default=(0, 1))
        assert world.by("boss", "p0") == ["p0"]
        assert world.by("second", "p1") == []

        world.see(seen("boss", "", nominated="n1"))
        world.leave("p0")
        world.now += 60
        assert world.by("second", "p1") == []

        world.cluster.apply(Delete(Kind.POD, uid("boss")))
        assert world.by("second", "p1") == ["p1"]

    def test_who_takes_from_his_own_queue_takes_nothing_more_of_its_due(self) -> None:
        world = self.world(rich=(4, 0), default=(1, 2))
        world.see(seen("old", "", on="n1"))
        assert world.by("boss", "old") == ["old"]

        assert world.by("second", "p0") == ["p0"]


def test_who_is_another_schedulers_has_part_in_no_due() -> None:
    rich = pod_group(queue="rich", min_member=1)
    world = World(Queue(name="rich"), rich, *running(4), rich=(4, 0), default=(0, 1))
    foreign = pod("foreign", ours=False)

    assert world.ask("p0", by=foreign) == ["p0"]
    assert world.by("boss", "p1") == ["p1"]


def test_nor_do_many_together_take_what_a_namespace_has_at_least() -> None:
    world = World(pod_group(min_member=1), *running(4))
    share = ShareFigures(queue="default", namespace="a", guarantee=cpus(2), allocated=cpus(4))
    world.plan = Plan(shares={"default/a": share})

    def by(who: str, victim: str) -> list[str]:
        boss, member = pod(who, namespace="b"), seen(who, "").membership
        asked = {"n1": [uid(victim)]}
        return [*world.preemption.allowed_nodes(boss, member, asked, world.now).get("n1", ())]

    assert by("boss", "p0")
    assert by("second", "p1")
    assert not by("third", "p2")
