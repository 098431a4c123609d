"""A running gang counts in a queue, whatever its tenant writes or deletes later."""

from __future__ import annotations

from typing import Any

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
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


def test_a_running_gang_without_its_pod_group_stays_where_its_pods_say_they_were_started() -> None:
    made = running(pod_group(queue="left"), HOME, started_in="left")
    made.apply(Delete(Kind.GROUP, GANG, VOLCANO))

    assert gang_of(made).queue == "left"


def test_a_running_gang_that_is_pointed_to_another_queue_stays_where_it_was_started() -> None:
    made = running(pod_group(queue="left"), started_in="left")
    made.apply(Upsert(pod_group(queue="right")))

    assert (gang_of(made).queue, gang_of(made).problem) == ("left", None)


def test_waiting_members_of_a_running_gang_are_requested_in_the_queue_where_it_runs() -> None:
    made = running(pod_group(queue="right"), started_in="left")

    assert made.queue_of(GANG, "a", "right") == ("left", None)


def test_once_no_member_runs_the_group_decides_the_queue_again() -> None:
    made = running(pod_group(queue="right"), started_in="left")
    for each in range(2):
        done = seen(f"w-{each}", on="n1", started_in="left", status=Status.SUCCEEDED)
        made.apply(Upsert(done))

    assert gang_of(made).queue == "right"


def test_the_group_decides_the_queue_if_the_pods_do_not_say_where_they_started() -> None:
    made = running(pod_group(queue="left"))
    made.apply(Upsert(pod_group(queue="right")))

    assert gang_of(made).queue == "right"


def test_pods_that_were_started_in_different_queues_count_where_most_of_them_were() -> None:
    made = running(pod_group(queue="right"), started_in="left")
    made.apply(Upsert(seen("w-2", on="n1", started_in="right")))

    assert gang_of(made).queue == "left"


def test_of_two_queues_with_equally_many_pods_the_first_by_name_counts_in_any_order() -> None:
    members = [seen("w-0", on="n1", started_in="left"), seen("w-1", on="n1", started_in="right")]
    first = cache(node("n1"), *QUEUES, pod_group(), *members)
    second = cache(node("n1"), *QUEUES, pod_group(), *reversed(members))

    assert gang_of(first).queue == gang_of(second).queue == "left"


def test_a_pod_cannot_say_that_it_was_started_in_a_queue_its_namespace_may_not_use() -> None:
    allowed = Namespace(name="a", allowed=frozenset({"left"}))
    made = running(pod_group(queue="left"), allowed, started_in="right")

    assert gang_of(made).queue == "left"


def test_a_running_gang_in_a_queue_that_its_namespace_may_not_use_counts_at_home() -> None:
    allowed = Namespace(name="a", queue="home", allowed=frozenset({"left"}))
    made = running(pod_group(queue="right"), allowed)

    assert gang_of(made).queue == "home"
    assert gang_of(made).problem is not None


def test_running_gangs_of_a_deleted_queue_count_in_their_home_queue() -> None:
    made = running(pod_group(queue="left"), HOME, started_in="left")
    made.apply(Delete(Kind.QUEUE, "left"))

    assert gang_of(made).queue == "home"

    made.apply(Delete(Kind.QUEUE, "home"))

    assert gang_of(made).queue == "default"


def test_without_any_queue_left_the_queue_of_last_resort_counts() -> None:
    policy = QueuePolicy(default_queue="batch")
    made = running(pod_group(queue="gone"), Namespace(name="a", queue="gone"), policy=policy)

    assert gang_of(made).queue == "batch"


def test_gangs_without_a_group_count_in_a_namespace_that_is_its_own_queue() -> None:
    policy = QueuePolicy(namespaces_are_queues=True)
    made = running(Namespace(name="a"), policy=policy)

    assert gang_of(made).queue == "a"


def test_a_new_home_queue_of_a_namespace_moves_no_running_gang() -> None:
    made = running(pod_group(queue=""), HOME, started_in="home")
    made.apply(Upsert(Namespace(name="a", queue="right")))

    assert gang_of(made).queue == "home"


def test_a_gang_that_waits_in_an_invalid_queue_is_shown_with_that_queue() -> None:
    made = cache(*QUEUES, pod_group(queue="gone"), seen("w-0"))

    assert gang_of(made).queue == "gone"


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
