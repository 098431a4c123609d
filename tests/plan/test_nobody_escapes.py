"""What invalid gangs occupy counts in their queue, and they may be made to leave like others."""

from __future__ import annotations

from dataclasses import replace

from extender.model.gang import Gang
from extender.model.reason import Problem, Reason
from extender.plan.decision import Standing
from extender.plan.planner import make_plan
from tests.builders import amounts, cluster, gang, nodes, queue

MISSING = Problem(Reason.POD_GROUP_MISSING, "PodGroup a/lost does not exist")


def orphaned(key: str, size: int, name: str, where: str, **rest: object) -> Gang:
    """A gang whose PodGroup is gone, all of it running on one node."""
    left = gang(key, size, on=[where] * size, queue=name, least=1, cpu=1, **rest)  # type: ignore[arg-type]
    return replace(left, problem=MISSING)


def test_what_an_invalid_gang_occupies_is_used_by_its_queue() -> None:
    plan = make_plan(cluster(nodes(1), [orphaned("a/lost", 4, "left", "n1")], [queue("left")]))

    assert plan.queues["left"].allocated == amounts(cpu=4, pods=4)
    assert plan.verdicts["a/lost"].standing is Standing.INVALID


def test_a_queue_starts_nothing_beyond_its_ceiling_because_a_pod_group_was_deleted() -> None:
    plan = make_plan(
        cluster(
            nodes(2),
            [orphaned("a/lost", 4, "left", "n1"), gang("a/next", 4, queue="left", cpu=1)],
            [queue("left", capability=amounts(cpu=4))],
        )
    )

    assert not plan.tickets
    assert plan.verdicts["a/next"].reason is Reason.QUEUE_AT_CAPABILITY


def test_an_invalid_gang_has_to_give_back_what_another_queue_deserves() -> None:
    plan = make_plan(
        cluster(
            nodes(2),
            [
                orphaned("a/lost", 4, "left", "n1"),
                orphaned("a/stray", 4, "left", "n2"),
                gang("b/due", 2, queue="right", cpu=1),
            ],
            [queue("left"), queue("right")],
        )
    )

    assert len(plan.evictions) == 2
    assert {each.beneficiary for each in plan.evictions} == {"b/due"}


def test_what_members_of_an_invalid_gang_wait_for_is_nobodys_wish() -> None:
    lost = replace(gang("a/lost", 4, on=["n1"], queue="left", cpu=1), problem=MISSING)
    plan = make_plan(cluster(nodes(2), [lost], [queue("left")]))

    assert plan.queues["left"].requested == amounts(cpu=1, pods=1)
    assert not plan.tickets


def test_an_invalid_gang_with_too_few_members_is_not_the_last_to_leave() -> None:
    torn = gang("a/torn", 4, on=["n1"], queue="left", cpu=1)

    assert torn.is_torn
    assert not replace(torn, problem=MISSING).is_torn


def test_what_people_should_know_of_a_gang_is_told_with_its_verdict() -> None:
    waiting = replace(gang("a/large", 9, cpu=1), remark="priority class high does not count")
    running = replace(gang("a/small", 1, on=["n1"], cpu=1), remark="and so on")
    plan = make_plan(cluster(nodes(1), [waiting, running]))

    assert plan.verdicts["a/large"].message.endswith("; priority class high does not count")
    assert plan.verdicts["a/small"].message == "1 of at least 1 members run; and so on"
