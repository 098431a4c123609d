"""Pods that are being deleted count in their queue until they are gone.

The owner of a pod sets how long that takes. If pods that take a day to terminate did not count,
their replacements would use twice what the queue may have.
"""

from __future__ import annotations

from dataclasses import replace

from extender.cache.pods import LONGEST_GRACE_S, STUCK_S
from extender.model.gang import Gang, GangKey
from extender.model.pod import Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from extender.sim.clock import VirtualClock
from tests.builders import amounts, cache, gang, node, nodes, queue, seen, share, snapshot
from tests.unit.planner.plans import VOLCANO


def terminating(key: str, size: int, name: str, where: str, **rest: object) -> Gang:
    """A gang of which all members are being deleted."""
    return gang(
        key,
        size,
        on=[where] * size,
        queue=name,
        cpu=1,
        each={"status": Status.RELEASING},
        **rest,  # type: ignore[arg-type]
    )


OLD = terminating("a/old", 4, "q", "n1")
NEW = gang("a/new", 4, queue="q", cpu=1)


def limited(*gangs: Gang, queues: list[Queue] | None = None) -> Snapshot:
    return snapshot(nodes(2), gangs, queues or [queue("q", capability=amounts(cpu=4))])


def test_a_queue_starts_nothing_in_place_of_pods_that_still_terminate() -> None:
    plan = make_plan(limited(OLD, NEW))

    assert not plan.placements
    verdict = plan.verdicts["a/new"]
    assert verdict.reason is Reason.QUEUE_AT_CAPABILITY
    assert verdict.message == (
        "queue q uses 0 of at most 4 cpu, and terminating pods use 4 until they are gone;"
        " 4 more would exceed it"
    )


def test_what_terminating_pods_use_is_missing_from_the_reservation_of_the_next_gang() -> None:
    gangs = [terminating("a/old", 3, "q", "n1"), gang("a/new", cpu=1), gang("a/next", 3, cpu=1)]
    plan = make_plan(snapshot(nodes(1), gangs, [queue("q"), queue("default")]))

    assert plan.placements["a/new"].placements
    assert len(plan.placements["a/next"].pipelined) == 3
    assert plan.held_on_nodes == {"n1": amounts(pods=3)}
    assert plan.missing_on_nodes == {"n1": amounts(cpu=3)}


def test_a_gang_that_fits_beside_terminating_pods_starts() -> None:
    plan = make_plan(
        limited(terminating("a/old", 2, "q", "n1"), gang("a/new", 2, queue="q", cpu=1))
    )

    assert set(plan.placements) == {"a/new"}


def test_an_elastic_gang_grows_only_beside_terminating_pods() -> None:
    grows = gang("a/new", 4, min_member=1, queue="q", cpu=1)

    plan = make_plan(limited(terminating("a/old", 2, "q", "n1"), grows))

    assert len(plan.placements["a/new"].placements) == 2


def test_terminating_pods_count_in_the_queues_above() -> None:
    family = queue("family", capability=amounts(cpu=4))
    plan = make_plan(
        limited(
            terminating("a/old", 4, "left", "n1"),
            gang("b/new", 4, queue="right", cpu=1),
            queues=[family, queue("left", parent="family"), queue("right", parent="family")],
        )
    )

    assert not plan.placements
    assert "queue family uses 0 of at most 4 cpu" in plan.verdicts["b/new"].message


def test_terminating_pods_count_against_the_limit_of_their_namespace() -> None:
    state = snapshot(
        nodes(2),
        [OLD, NEW],
        [queue("q")],
        shares=[share("q/a", at_most=amounts(cpu=4))],
    )

    plan = make_plan(state)

    assert not plan.placements
    assert plan.verdicts["a/new"].reason is Reason.NAMESPACE_OVER_LIMIT


def test_terminating_pods_whose_pod_group_is_gone_count_too() -> None:
    old = terminating("a/old", 4, "q", "n1", group={"dialect": ""})

    plan = make_plan(limited(old, NEW))

    assert not plan.placements


def test_pods_that_should_have_terminated_long_ago_do_not_block_their_queue() -> None:
    stuck = frozenset(pod.uid for pod in OLD.pods)

    plan = make_plan(replace(limited(OLD, NEW), stuck=stuck))

    assert set(plan.placements) == {"a/new"}


def test_a_grace_period_longer_than_the_maximum_frees_nothing_in_its_queue() -> None:
    """Deleting pods that take a day to terminate frees nothing in the queue half an hour later."""
    clock = VirtualClock()
    deleted = {"status": Status.RELEASING, "leaves_by": clock.now() + 86400}
    mirror = cache(
        node("n1", cpu=16),
        queue("q", capability=amounts(cpu=2)),
        *(seen(name, "", queue="q", on="n1", **deleted) for name in ("old-0", "old-1")),
        seen("new", "", queue="q"),
        clock=clock,
    )
    assert not make_plan(mirror.snapshot(clock.now())).placements
    clock.advance(LONGEST_GRACE_S + STUCK_S + 1)
    later = mirror.snapshot(clock.now())
    assert len(later.stuck) == 2

    plan = make_plan(later)

    assert not plan.placements
    assert plan.verdicts[GangKey("a/pod:new")].reason is Reason.QUEUE_AT_CAPABILITY
    clock.advance(86400)
    assert set(make_plan(mirror.snapshot(clock.now())).placements) == {"a/pod:new"}


def test_nothing_is_reserved_for_a_gang_that_waits_for_pods_of_its_own_queue() -> None:
    plan = make_plan(
        limited(
            terminating("a/old", 4, "q", "n1"),
            gang("a/new", 4, queue="q", cpu=1, priority=9),
            gang("b/other", 4, queue="other", cpu=1),
            queues=[queue("q", capability=amounts(cpu=4)), queue("other")],
        )
    )

    assert len(plan.placements["b/other"].placements) == 4
    assert set(plan.placements["a/new"].pipelined.values()) == {"n1"}


def test_a_gang_that_waits_for_victims_of_its_queue_needs_no_more_evictions() -> None:
    """The capacity is reserved for no other gang, and no other pod is evicted meanwhile."""
    state = snapshot(
        nodes(1),
        [terminating("a/old", 4, "q", "n1"), gang("a/new", 4, queue="q", cpu=1, priority=9)],
        [queue("q", capability=amounts(cpu=4))],
    )

    plan = make_plan(state)

    assert plan.verdicts["a/new"].reason is Reason.WAITING_FOR_VICTIMS
    assert not plan.evictions


def test_explain_suggests_more_capability_of_the_queue() -> None:
    state = limited(OLD, NEW)

    found = explain(state, make_plan(state), policy_parser.DEFAULT, GangKey("a/new"))

    assert found is not None
    assert "4 cpu more capability of queue q" in found.remedies


def test_the_queue_limits_of_a_plan_include_terminating_pods() -> None:
    plan = make_plan(limited(OLD))

    (limits,) = [each for each in plan.limits if each.name == "q"]
    assert limits.leaving == amounts(cpu=4, pods=4)


def test_with_the_rules_of_volcano_terminating_pods_do_not_count() -> None:
    state = limited(OLD, NEW)

    assert set(make_plan(state, VOLCANO).placements) == {"a/new"}
