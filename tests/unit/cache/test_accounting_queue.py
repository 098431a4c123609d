"""A running gang counts in a queue, whatever its tenant writes or deletes later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy
from extender.model.gang import VOLCANO, Gang, Membership
from extender.model.pod import Status
from extender.model.queue import Namespace, Queue
from extender.model.reason import Reason
from tests.builders import GANG, NOW, cache, node, pod, pod_group, seen

QUEUES = (Queue(name="left"), Queue(name="right"), Queue(name="home"))
HOME = Namespace(name="a", queue="home")


def gang_of(made: Cluster) -> Gang:
    return made.snapshot(NOW).gangs[GANG]


def running(*items: Any, started_in: str = "", policy: QueuePolicy | None = None) -> Cluster:
    """A gang of two that runs."""
    members = [seen(f"w-{each}", on="n1", started_in=started_in) for each in range(2)]
    return cache(node("n1"), *QUEUES, *members, *items, policy=policy)


def test_a_running_gang_without_its_pod_group_counts_in_the_home_queue_of_its_namespace() -> None:
    made = running(pod_group(queue="left"), HOME)

    assert gang_of(made).queue == "left"

    made.apply(Delete(Kind.GROUP, GANG, VOLCANO))

    orphaned = gang_of(made)
    assert (orphaned.queue, orphaned.allocated.amount("cpu")) == ("home", 2000)
    assert orphaned.problem is not None
    assert orphaned.problem.reason is Reason.POD_GROUP_MISSING


LEFT, RIGHT = pod_group(queue="left"), pod_group(queue="right")
LEFT_ONLY = Namespace(name="a", allowed=frozenset({"left"}))
BOTH = Namespace(name="a", allowed=frozenset({"left", "right"}))
BATCH = QueuePolicy(default_queue="batch")
OWN_QUEUE = QueuePolicy(namespaces_are_queues=True)
DENY = QueuePolicy(deny_unlisted=True)
NO_GROUP = Delete(Kind.GROUP, GANG, VOLCANO)
#: Where it was started, its objects, what happens later, the policy, and the queue that counts.
COUNTED = {
    "where it was started": ("left", (LEFT, HOME), (NO_GROUP,), None, "left"),
    "not where the group points later": ("left", (LEFT,), (Upsert(RIGHT),), None, "left"),
    "where the group points": ("", (LEFT,), (Upsert(RIGHT),), None, "right"),
    "where most of its pods started": (
        "left",
        (RIGHT,),
        (Upsert(seen("w-2", on="n1", started_in="right")),),
        None,
        "left",
    ),
    "no queue that is not allowed": ("right", (LEFT, LEFT_ONLY), (), None, "left"),
    "at home instead of there": ("", (RIGHT, replace(LEFT_ONLY, queue="home")), (), None, "home"),
    "at home if its queue is deleted": (
        "left",
        (LEFT, HOME),
        (Delete(Kind.QUEUE, "left"),),
        None,
        "home",
    ),
    "in the last resort if both are": (
        "left",
        (LEFT, HOME),
        (Delete(Kind.QUEUE, "left"), Delete(Kind.QUEUE, "home")),
        None,
        "default",
    ),
    "in the named last resort": (
        "",
        (pod_group(queue="gone"), Namespace(name="a", queue="gone")),
        (),
        BATCH,
        "batch",
    ),
    "in its namespace": ("", (Namespace(name="a"),), (), OWN_QUEUE, "a"),
    "not in a later home": (
        "home",
        (pod_group(), HOME),
        (Upsert(Namespace(name="a", queue="right")),),
        None,
        "home",
    ),
    "in the last resort if denied": ("left", (LEFT, Namespace(name="a")), (), DENY, "default"),
    "without a home, where it was started": ("left", (pod_group(), BOTH), (), None, "left"),
    "without a home and unknown": ("", (pod_group(), BOTH), (), None, "default"),
}


@pytest.mark.parametrize(
    ("started_in", "items", "later", "policy", "queue"), COUNTED.values(), ids=COUNTED
)
def test_a_running_gang_counts(
    started_in: str,
    items: tuple[Any, ...],
    later: tuple[Change, ...],
    policy: QueuePolicy | None,
    queue: str,
) -> None:
    made = running(*items, started_in=started_in, policy=policy)
    for change in later:
        made.apply(change)

    assert gang_of(made).queue == queue


def test_waiting_members_of_a_running_gang_are_requested_in_the_queue_where_it_runs() -> None:
    made = running(pod_group(queue="right"), started_in="left")

    assert made.queue_of(GANG, "a", "right") == ("left", None)


def test_once_no_member_runs_the_group_decides_the_queue_again() -> None:
    made = running(pod_group(queue="right"), started_in="left")
    for each in range(2):
        done = seen(f"w-{each}", on="n1", started_in="left", status=Status.SUCCEEDED)
        made.apply(Upsert(done))

    assert gang_of(made).queue == "right"


def test_of_two_queues_with_equally_many_pods_the_first_by_name_counts_in_any_order() -> None:
    members = [seen("w-0", on="n1", started_in="left"), seen("w-1", on="n1", started_in="right")]
    first = cache(node("n1"), *QUEUES, pod_group(), *members)
    second = cache(node("n1"), *QUEUES, pod_group(), *reversed(members))

    assert gang_of(first).queue == gang_of(second).queue == "left"


def test_a_running_pod_with_an_unreadable_annotation_counts_as_before() -> None:
    spoilt = Membership(key=GANG, named=True, min_member=1, problem="min-member is 'all'")
    made = cache(node("n1"), *QUEUES, SeenPod(pod("x", on="n1", started_in="left"), spoilt))

    assert (gang_of(made).queue, gang_of(made).allocated.amount("cpu")) == ("left", 1000)


def test_a_gang_without_its_pod_group_is_as_old_as_its_oldest_pod() -> None:
    made = cache(node("n1"), seen("w-0", on="n1", created=50.0), seen("w-1", created=70.0))

    assert gang_of(made).group.created == 50.0


def test_members_of_a_native_group_count_at_home() -> None:
    native = Membership(key=GANG, named=True, native=True)
    made = cache(
        node("n1"), *QUEUES, HOME, SeenPod(pod("x", on="n1"), native),
        SeenPod(pod("y"), native),
    )  # fmt: skip

    assert gang_of(made).queue == "home"
    assert [each.name for each in gang_of(made).pods] == ["x"]
