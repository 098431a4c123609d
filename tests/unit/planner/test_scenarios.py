"""What the end-to-end scenarios of kube-batch and Volcano expect, where no other test tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang, Phase
from extender.model.reason import Reason
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, nodes, pod, queue, shape, snapshot
from tests.unit.planner.plans import evicted, started

TWO = [queue("q1"), queue("q2")]
OVERCOMMIT = policy_parser.DEFAULT_TEXT.replace(
    "  - name: gang", "  - name: overcommit\n  - name: gang"
)


def elastic(name: str, on: list[str], **rest: Any) -> Gang:
    """A running gang of one cpu each, of which all members but one may be evicted."""
    return gang(f"a/{name}", len(on), min_member=1, on=on, cpu=1, **rest)


def test_members_without_requests_start_beside_a_full_gang() -> None:
    full = gang("a/full", 2, on=["n1"] * 2, cpu=1)
    plan = make_plan(snapshot(nodes(1, cpu=2), [full, gang("a/modest", 2)]))

    assert started(plan, "a/modest") == 2


def test_a_member_that_fits_nowhere_does_not_keep_the_others_out() -> None:
    members = [pod("job-0", shape(cpu=50)), pod("job-1"), pod("job-2")]
    plan = make_plan(snapshot(nodes(1, cpu=2), [gang("a/job", pods=members, min_member=1)]))

    assert set(plan.placements["a/job"].placements) == {"a-job-1", "a-job-2"}


def test_without_enqueue_gangs_start_in_the_pending_phase() -> None:
    policy = policy_parser.parse(policy_parser.DEFAULT_TEXT.replace("enqueue, ", ""))
    new = gang("a/new", 1, cpu=1, group={"phase": Phase.PENDING})

    assert started(make_plan(snapshot(nodes(1), [new]), policy), "a/new") == 1


# -------------------------------------------------------------------- preempt


def test_no_pod_is_preempted_where_both_gangs_fit() -> None:
    low, top = gang("a/low", 1, on=["n1"], cpu=1), gang("a/top", 1, cpu=1, priority=9)
    plan = make_plan(snapshot(nodes(2, cpu=1), [low, top]))

    assert (started(plan, "a/top"), evicted(plan)) == (1, [])


@pytest.mark.parametrize(
    "top",
    [
        pytest.param(gang("a/top", 4, cpu=1, priority=9), id="not enough for it"),
        pytest.param(
            gang("a/top", 2, cpu=1, priority=9, each={"gated": True}), id="scheduling gates"
        ),
        pytest.param(gang("a/top", 2, cpu=1, priority=9, queue="q2"), id="another queue"),
    ],
)
def test_no_pod_is_preempted_in_vain_or_in_another_queue(top: Gang) -> None:
    full = elastic("low", ["n1"] * 3, queue=top.queue if top.queue == "default" else "q1")
    mine = gang("a/mine", 3, on=["n2"] * 3, cpu=1, queue="q2", priority=9)
    plan = make_plan(snapshot(nodes(2, cpu=3), [full, mine, top], TWO))

    assert evicted(plan) == []


# -------------------------------------------------------------------- reclaim


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            gang("a/new", 2, cpu=1, queue="q2", group={"min_resources": amounts(cpu=100)}),
            Reason.NOT_ENQUEUED,
        ),
        (gang("a/new", 1, cpu=1, queue="nowhere"), Reason.QUEUE_NOT_FOUND),
        (
            gang("a/new", 1, cpu=1, queue="q2", selector=(("disk", "fast"),)),
            Reason.EXCEEDS_CLUSTER,
        ),
    ],
    ids=["not enqueued", "no such queue", "no such node"],
)
def test_nothing_is_reclaimed_for_a_gang_that_could_not_start(new: Gang, reason: Reason) -> None:
    old = elastic("old", ["n1", "n1", "n2", "n2"], queue="q1")
    pending = replace(new, group=replace(new.group, phase=Phase.PENDING))
    before = snapshot(nodes(2, cpu=2), [old, pending], TWO)
    plan = make_plan(before, policy_parser.parse(OVERCOMMIT))

    assert (plan.verdicts["a/new"].reason, evicted(plan)) == (reason, [])


def test_several_queues_give_back_what_they_borrowed() -> None:
    one, two = elastic("one", ["n1", "n2"], queue="q1"), elastic("two", ["n3", "n4"], queue="q2")
    new = gang("a/new", 2, cpu=1, queue="q3")
    members = [node(f"n{number}", cpu=1) for number in range(1, 5)]
    plan = make_plan(snapshot(members, [one, two, new], [*TWO, queue("q3", 2)]))

    assert sorted(name.partition("-")[0] for name in evicted(plan)) == ["one", "two"]
