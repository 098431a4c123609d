"""Several preemptions before the watch has shown the result of the first."""

from __future__ import annotations

from typing import Any

from extender.cache.changes import Delete, Kind, Upsert
from extender.evictions.preemption import SHOWN_S
from extender.model.pod import PodUid, Status
from extender.model.queue import Queue
from extender.planner.plan import Plan, ShareFigures
from tests.builders import node, pod, pod_group, seen, uid
from tests.unit.hooks.preemption import test_allowed_victims as allowed_victims
from tests.unit.hooks.preemption.test_allowed_victims import cpus, running


class World(allowed_victims.World):
    """A world in which several ordinary pods preempt."""

    def by(self, preemptor: str, *victims: str, **elsewhere: str) -> list[str]:
        """Return what *preemptor* may preempt, of *victims* on n1 and of those *elsewhere*."""
        chosen: dict[str, list[PodUid]] = {"n1": [uid(name) for name in victims]}
        chosen |= {on: [uid(name)] for on, name in elsewhere.items()}
        boss = seen(preemptor, "")
        answer = self.preemption.allowed_nodes(boss.pod, boss.membership, chosen)
        return [each.removeprefix("a-") for uids in answer.values() for each in uids]

    def see(self, item: Any) -> None:
        self.cluster.apply(Upsert(item))

    def leave(self, name: str, **rest: Any) -> None:
        self.see(seen(name, on="n1", status=Status.RELEASING, **rest))


def test_two_preemptions_at_once_do_not_break_a_gang_with_one_surplus_member() -> None:
    world = World(pod_group(), *running(3))

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == []
    assert world.by("second", "p0") == ["p0"], "a victim of both counts once"


def test_a_second_request_of_a_pod_replaces_its_first() -> None:
    world = World(pod_group(), *running(3))
    world.by("boss", "p0")

    assert world.by("boss", "p1") == ["p1"]


def test_all_surplus_members_of_a_gang_may_be_preempted() -> None:
    world = World(pod_group(), *running(5))

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == ["p1"]
    world.leave("p0")
    assert world.by("third", "p2") == ["p2"]
    assert world.by("fourth", "p3") == []


def test_victims_allowed_on_many_nodes_are_taken_on_one() -> None:
    world = World(node("n2"), pod_group(min_member=3), *running(4), seen("q0", on="n2"))
    assert world.by("boss", "p0", n2="q0") == ["p0", "q0"]

    assert world.by("second", "p1") == ["p1"]
    assert world.by("third", "p2") == []


def test_the_first_preemptor_may_take_another_victim_than_the_second_asks_for() -> None:
    """Both named the same pod; the first may still take the one on another node instead."""
    world = World(node("n2"), pod_group(), *running(2), seen("q0", on="n2"))
    assert world.by("boss", "p0", n2="q0") == ["p0", "q0"]

    assert world.by("second", "p0") == []
    assert world.by("second", n2="q0") == []


def test_a_second_preemptor_may_not_count_on_the_victims_of_the_first() -> None:
    world = World(node("n2"), pod_group(), *running(2), seen("other", "", on="n2"))
    assert world.by("boss", "p0", "p1", n2="other") == ["p0", "p1", "other"]

    assert world.by("second", "p0") == []
    assert world.by("second", "p0", "p1") == ["p0", "p1"], "all of it"


def test_a_nomination_shows_on_which_node_the_victims_are_taken() -> None:
    world = World(node("n2"), pod_group(), *running(3), seen("other", "", on="n2"))
    assert world.by("boss", "p0", n2="other") == ["p0", "other"]
    assert world.by("second", "p1") == []

    world.see(seen("boss", "", nominated="n2"))

    assert world.by("second", "p1") == ["p1"]


def test_a_preemption_that_kube_scheduler_did_not_make_is_forgotten() -> None:
    world = World(pod_group(), *running(3), seen("boss", ""))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_a_preemption_is_not_forgotten_while_its_pod_waits_for_the_victims() -> None:
    world = World(pod_group(), *running(3), seen("boss", "", nominated="n1"))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == []
    world.cluster.apply(Delete(Kind.POD, uid("boss")))
    assert world.by("second", "p1") == ["p1"]


def test_an_earlier_nomination_is_ignored_until_a_new_one_would_have_been_seen() -> None:
    world = World(node("n2"), pod_group(), *running(3), seen("other", "", on="n2"))
    before = seen("boss", "", nominated="n2")
    world.see(before)
    asked = {"n1": [uid("p0")], "n2": [uid("other")]}
    assert world.preemption.allowed_nodes(before.pod, before.membership, asked) == asked
    assert world.by("second", "p1") == []

    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_a_pod_nominated_to_another_node_takes_none_of_its_allowed_victims() -> None:
    world = World(pod_group(), *running(3), seen("boss", "", nominated="n9"))
    world.by("boss", "p0")
    world.now += SHOWN_S + 1

    assert world.by("second", "p1") == ["p1"]


def test_several_preemptions_do_not_break_a_role() -> None:
    servers = [seen(f"ps{index}", on="n1", role="ps") for index in range(3)]
    minima = {"ps": 1, "worker": 3}
    world = World(pod_group(min_member=4, min_by_role=minima), *running(4, role="worker"), *servers)

    assert world.by("boss", "p0") == ["p0"]
    assert world.by("second", "p1") == []
    assert world.by("second", "ps0") == ["ps0"]


class TestQueues:
    """A queue keeps its deserved share, and no other takes more than its own."""

    def world(self, **figures: tuple[int, int]) -> World:
        rich = pod_group(queue="rich", min_member=1)
        return World(Queue(name="rich"), rich, *running(4), **figures)

    def test_several_preemptions_together_take_no_more_than_one_could(self) -> None:
        world = self.world(rich=(4, 2), default=(0, 9))

        assert world.by("boss", "p0") == ["p0"]
        assert world.by("second", "p1") == ["p1"]
        assert world.by("third", "p2") == []

    def test_a_victim_that_is_gone_counts_until_a_plan_includes_it(self) -> None:
        world = self.world(rich=(4, 2), default=(0, 9))
        world.by("boss", "p0")
        world.by("second", "p1")
        world.leave("p0")
        world.leave("p1")
        assert world.by("third", "p2") == []

        world.count(rich=(3, 2), default=(0, 9))
        assert world.by("third", "p2") == ["p2"]

    def test_a_pod_that_waits_for_its_victims_counts_in_the_usage_of_its_queue(self) -> None:
        world = self.world(rich=(4, 0), default=(0, 1))
        assert world.by("boss", "p0") == ["p0"]
        assert world.by("second", "p1") == []

        world.see(seen("boss", "", nominated="n1"))
        world.leave("p0")
        world.now += 60
        assert world.by("second", "p1") == []

        world.cluster.apply(Delete(Kind.POD, uid("boss")))
        assert world.by("second", "p1") == ["p1"]

    def test_a_preemption_inside_a_queue_does_not_change_the_usage_of_the_queue(self) -> None:
        world = self.world(rich=(4, 0), default=(1, 2))
        world.see(seen("old", "", on="n1"))
        assert world.by("boss", "old") == ["old"]

        assert world.by("second", "p0") == ["p0"]


def test_a_pod_of_another_scheduler_does_not_count_in_the_usage_of_a_queue() -> None:
    rich = pod_group(queue="rich", min_member=1)
    world = World(Queue(name="rich"), rich, *running(4), rich=(4, 0), default=(0, 1))
    foreign = pod("foreign", ours=False)

    assert world.ask("p0", by=foreign) == ["p0"]
    assert world.by("boss", "p1") == ["p1"]


def test_several_preemptions_together_leave_a_namespace_its_guarantee() -> None:
    world = World(pod_group(min_member=1), *running(4))
    share = ShareFigures(queue="default", namespace="a", guarantee=cpus(2), allocated=cpus(4))
    world.plan = Plan(shares={"default/a": share})

    def by(preemptor: str, victim: str) -> list[str]:
        boss, member = pod(preemptor, namespace="b"), seen(preemptor, "").membership
        asked = {"n1": [uid(victim)]}
        return [*world.preemption.allowed_nodes(boss, member, asked).get("n1", ())]

    assert by("boss", "p0")
    assert by("second", "p1")
    assert not by("third", "p2")
