from __future__ import annotations

from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy
from extender.model.gang import Gang, GangKey, Membership
from extender.model.queue import Namespace, NamespaceShare, PriorityClass, Queue, QueueState
from extender.model.queue_tree import MAX_DEPTH
from extender.model.reason import Reason
from extender.model.resources import Resources
from tests.builders import GANG, NOW, cache, pod, pod_group, seen


def gang_of(made: Cluster) -> Gang:
    return made.snapshot(NOW).gangs[GANG]


def listed(*queues: str) -> Namespace:
    return Namespace(name="a", allowed=frozenset(queues))


def reason(made: Cluster) -> Reason | None:
    problem = gang_of(made).problem
    return problem.reason if problem else None


def test_without_any_policy_everything_is_in_the_default_queue() -> None:
    made = cache(pod_group())

    assert gang_of(made).queue == "default"
    assert list(made.snapshot(NOW).queues) == ["default"]


def test_the_queue_a_group_names_is_its_queue() -> None:
    made = cache(pod_group(queue="gold"), Queue(name="gold"))

    assert (gang_of(made).queue, gang_of(made).problem) == ("gold", None)


def test_a_queue_that_does_not_exist_is_a_problem_until_it_does() -> None:
    made = cache(pod_group(queue="gold"))

    assert reason(made) is Reason.QUEUE_NOT_FOUND

    made.apply(Upsert(Queue(name="gold")))

    assert reason(made) is None

    made.apply(Delete(Kind.QUEUE, "gold"))

    assert reason(made) is Reason.QUEUE_NOT_FOUND


def test_gangs_of_a_queue_that_cannot_be_used_report_why() -> None:
    made = cache(pod_group(queue="gold"), Queue(name="gold", problem="its weight is -1"))

    problem = gang_of(made).problem

    assert problem is not None
    assert problem.message == "queue gold cannot be used: its weight is -1"


def test_a_queue_too_far_below_the_top_starts_nothing_until_it_is_nearer() -> None:
    line = [Queue(name=f"q{n}", parent=f"q{n - 1}" if n else "") for n in range(MAX_DEPTH + 1)]
    made = cache(pod_group(queue=f"q{MAX_DEPTH}"), *line)

    problem = gang_of(made).problem
    assert problem is not None
    assert problem.reason is Reason.QUEUE_NOT_FOUND
    assert problem.message == (
        f"queue q{MAX_DEPTH} cannot be used: it is more than {MAX_DEPTH - 1} levels below the top;"
        " change spec.parent"
    )

    made.apply(Upsert(Queue(name="q7")))

    assert gang_of(made).problem is None


@pytest.mark.parametrize("written", ["", "default"])
def test_a_gang_that_names_no_queue_or_default_uses_the_queue_of_its_namespace(
    written: str,
) -> None:
    """The CRD fills in `default`, so it counts as no choice."""
    made = cache(pod_group(queue=written), Namespace(name="a", queue="gold"), Queue(name="gold"))

    assert gang_of(made).queue == "gold"


def test_a_queue_of_the_namespaces_name_is_its_queue() -> None:
    made = cache(pod_group(), Queue(name="a"))

    assert gang_of(made).queue == "a"


def test_namespaces_can_be_queues() -> None:
    policy = QueuePolicy(namespaces_are_queues=True)
    made = cache(pod_group(), Namespace(name="a"), policy=policy)
    snapshot = made.snapshot(NOW)

    assert snapshot.gangs[GANG].queue == "a"
    assert snapshot.gangs[GANG].problem is None
    assert snapshot.queues["a"] == Queue(name="a")


def test_the_queue_of_last_resort_can_have_another_name() -> None:
    made = cache(pod_group(), policy=QueuePolicy(default_queue="batch"))

    assert gang_of(made).queue == "batch"
    assert list(made.snapshot(NOW).queues) == ["batch"]


def test_tenants_cannot_promote_themselves() -> None:
    made = cache(
        pod_group(queue="gold"),
        Queue(name="gold"),
        Namespace(name="a", allowed=frozenset({"silver", "bronze"})),
    )

    problem = gang_of(made).problem

    assert problem is not None
    assert problem.reason is Reason.QUEUE_NOT_ALLOWED
    assert "namespace a may not use queue gold" in problem.message
    assert "allows bronze, silver" in problem.message


def test_pods_cannot_promote_themselves_either() -> None:
    ambitious = Membership(key=GANG, named=True, min_member=1, queue="gold")
    made = cache(
        SeenPod(pod("w-0"), ambitious),
        Queue(name="gold"),
        Namespace(name="a", allowed=frozenset()),
    )

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED


def test_a_queue_that_an_administrator_allows_later_is_allowed_at_once() -> None:
    made = cache(
        pod_group(queue="gold"), Queue(name="gold"), Namespace(name="a", allowed=frozenset())
    )
    made.snapshot(NOW)
    made.apply(Upsert(Namespace(name="a", allowed=frozenset({"gold"}))))

    assert reason(made) is None


def test_a_namespace_may_always_name_its_own_queue() -> None:
    made = cache(
        pod_group(queue="gold"),
        Queue(name="gold"),
        Namespace(name="a", queue="gold", allowed=frozenset()),
    )

    assert reason(made) is None


UNSAID = pytest.mark.parametrize("named", ["", "default"])


def message(made: Cluster) -> str:
    problem = gang_of(made).problem
    return problem.message if problem else ""


@UNSAID
def test_a_gang_that_names_no_queue_uses_the_only_queue_of_the_list(named: str) -> None:
    made = cache(pod_group(queue=named), Queue(name="silver"), listed("silver"))

    assert (gang_of(made).queue, reason(made)) == ("silver", None)


@UNSAID
def test_a_gang_has_to_name_a_queue_where_the_list_has_several(named: str) -> None:
    made = cache(
        pod_group(queue=named),
        Queue(name="silver"),
        Queue(name="bronze"),
        listed("silver", "bronze"),
    )

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED
    assert message(made) == (
        "namespace a may not use queue default, the queue of gangs that name none; name one of"
        " bronze, silver, or have the annotation scheduling.volcano.sh/queue-name of the namespace"
        " name it for all"
    )


@UNSAID
def test_an_empty_list_allows_not_even_the_default_queue(named: str) -> None:
    made = cache(pod_group(queue=named), Namespace(name="a", allowed=frozenset()))

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED
    assert "may use no queue: its annotation gang-extender.io/queues is empty" in message(made)


def test_a_gang_that_names_no_queue_uses_the_default_queue_if_it_is_listed() -> None:
    made = cache(pod_group(), Queue(name="silver"), listed("silver", "default"))

    assert (gang_of(made).queue, reason(made)) == ("default", None)


def test_the_queue_with_the_name_of_the_namespace_is_not_used_if_the_list_lacks_it() -> None:
    made = cache(pod_group(), Queue(name="a"), Queue(name="silver"), listed("silver"))

    assert (gang_of(made).queue, reason(made)) == ("silver", None)


@UNSAID
def test_a_written_home_queue_is_allowed_in_addition_to_the_list(named: str) -> None:
    home = Namespace(name="a", queue="gold", allowed=frozenset({"silver", "bronze"}))
    made = cache(pod_group(queue=named), Queue(name="gold"), home)

    assert (gang_of(made).queue, reason(made)) == ("gold", None)


def test_a_namespace_not_seen_yet_may_use_no_queue() -> None:
    made = cache(pod_group(queue="gold"), pod_group("other"), Queue(name="gold"))
    made.require_namespaces()

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED
    assert made.snapshot(NOW).gangs[GangKey("a/other")].problem is not None

    made.apply(Upsert(Namespace(name="a")))

    assert reason(made) is None
    assert made.snapshot(NOW).gangs[GangKey("a/other")].problem is None


DENY = QueuePolicy(deny_unlisted=True)


@pytest.mark.parametrize("named", ["", "default", "a", "gold"])
def test_unlisted_namespaces_can_be_denied_every_queue(named: str) -> None:
    items = (pod_group(queue=named), Queue(name="gold"), Queue(name="a"), Namespace(name="a"))
    made = cache(*items, policy=DENY)

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED
    assert message(made) == (
        "namespace a may use no queue: unlisted namespaces are denied; an administrator has to"
        " list queues in its annotation gang-extender.io/queues"
    )
    assert reason(cache(*items)) is None


def test_a_namespace_that_is_denied_every_queue_is_not_a_queue_itself() -> None:
    policy = QueuePolicy(deny_unlisted=True, namespaces_are_queues=True)

    assert (
        reason(cache(pod_group(), Namespace(name="a"), policy=policy)) is Reason.QUEUE_NOT_ALLOWED
    )


@pytest.mark.parametrize("said", [{"queue": "gold"}, {"allowed": frozenset({"gold"})}])
def test_a_namespace_with_a_list_or_a_home_is_not_denied(said: dict[str, Any]) -> None:
    made = cache(pod_group(), Queue(name="gold"), Namespace(name="a", **said), policy=DENY)

    assert (gang_of(made).queue, reason(made)) == ("gold", None)


def test_an_unknown_namespace_is_unlisted() -> None:
    assert reason(cache(pod_group(), policy=DENY)) is Reason.QUEUE_NOT_ALLOWED


def test_a_running_gang_of_a_denied_namespace_counts_in_the_queue_of_last_resort() -> None:
    running = seen("w-0", on="n1", started_in="gold")
    made = cache(pod_group(), running, Queue(name="gold"), Namespace(name="a"), policy=DENY)

    assert gang_of(made).queue == "default"


def test_a_running_gang_without_a_home_queue_counts_where_it_started_or_in_the_last_resort() -> (
    None
):
    silver, bronze = Queue(name="silver"), Queue(name="bronze")
    started = seen("w-0", on="n1", started_in="silver")
    lists = listed("silver", "bronze")

    assert gang_of(cache(pod_group(), started, silver, bronze, lists)).queue == "silver"
    assert (
        gang_of(cache(pod_group(), seen("w-0", on="n1"), silver, bronze, lists)).queue == "default"
    )


AT_MOST_THREE = NamespaceShare(queue="gold", namespace="a", limit=Resources({"cpu": 3000}))


def test_the_share_of_a_namespace_is_in_the_snapshot_while_the_queue_exists() -> None:
    made = cache(Namespace(name="a", shares=(AT_MOST_THREE,)))
    assert made.snapshot(NOW).shares == {}

    made.apply(Upsert(Queue(name="gold")))
    assert made.snapshot(NOW).shares == {"gold/a": AT_MOST_THREE}

    made.apply(Upsert(Namespace(name="a")))
    assert made.snapshot(NOW).shares == {}


def test_a_namespace_has_no_share_in_a_queue_it_may_not_use() -> None:
    lists = Namespace(name="a", shares=(AT_MOST_THREE,), allowed=frozenset({"silver"}))

    assert cache(lists, Queue(name="gold")).snapshot(NOW).shares == {}


def test_a_typo_in_the_policy_admits_no_gang() -> None:
    made = cache(pod_group(), Namespace(name="a", problem="the annotation x cannot be read"))

    assert (reason(made), message(made)) == (
        Reason.QUEUE_NOT_ALLOWED,
        "the annotation x cannot be read",
    )

    made.apply(Upsert(Namespace(name="a")))

    assert reason(made) is None


def test_a_gang_that_breaks_two_rules_reports_the_problem_of_its_group_first() -> None:
    made = cache(pod_group(queue="nowhere", problem="minMember is negative"))

    assert reason(made) is Reason.POD_GROUP_MISSING


def test_queues_are_sorted_and_keep_their_state() -> None:
    made = cache(Queue(name="z"), Queue(name="b", state=QueueState.CLOSED))
    queues = made.snapshot(NOW).queues

    assert list(queues) == ["b", "default", "z"]
    assert queues["b"].state is QueueState.CLOSED


def test_a_written_default_queue_is_not_replaced() -> None:
    made = cache(Queue(name="default", weight=5))

    assert made.snapshot(NOW).queues["default"].weight == 5


def test_a_change_of_weight_does_not_rebuild_gangs() -> None:
    made = cache(pod_group(queue="gold"), Queue(name="gold"))
    before = gang_of(made)
    made.apply(Upsert(Queue(name="gold", weight=7)))
    after = made.snapshot(NOW)

    assert after.gangs[GANG] is before
    assert after.queues["gold"].weight == 7


def test_a_priority_class_gives_a_group_its_priority() -> None:
    made = cache(pod_group(priority_class="high"), PriorityClass(name="high", value=9))

    assert gang_of(made).priority == 9


@pytest.mark.parametrize("named", ["", "unknown"])
def test_without_a_known_class_the_default_one_counts(named: str) -> None:
    classes = [
        PriorityClass(name="usual", value=3, is_default=True),
        PriorityClass(name="high", value=9),
    ]

    assert gang_of(cache(pod_group(priority_class=named), *classes)).priority == 3
    assert gang_of(cache(pod_group(priority_class=named))).priority == 0


def test_a_change_of_a_priority_class_changes_its_gangs() -> None:
    made = cache(pod_group(priority_class="high"), PriorityClass(name="high", value=9))
    made.snapshot(NOW)
    made.apply(Upsert(PriorityClass(name="high", value=1)))

    assert gang_of(made).priority == 1


def test_a_lone_pod_has_its_own_priority() -> None:
    made = cache(seen("x", "", priority=4))

    assert made.snapshot(NOW).gangs[GangKey("a/pod:x")].priority == 4
