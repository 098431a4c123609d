from __future__ import annotations

from dataclasses import replace
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
from tests.builders import GANG, NOW, cache, pod, pod_group


def gang_of(made: Cluster) -> Gang:
    return made.snapshot(NOW).gangs[GANG]


def listed(*queues: str) -> Namespace:
    return Namespace(name="a", allowed=frozenset(queues))


def reason(made: Cluster) -> Reason | None:
    problem = gang_of(made).problem
    return problem.reason if problem else None


def message(made: Cluster) -> str:
    problem = gang_of(made).problem
    return problem.message if problem else ""


GOLD, SILVER, BRONZE, OWN = (Queue(name=name) for name in ("gold", "silver", "bronze", "a"))
HOME = Namespace(name="a", queue="gold")
LIST = frozenset({"silver", "bronze"})
DENY = QueuePolicy(deny_unlisted=True)
QUEUES = {
    "last resort, without any policy": ("", (), "default"),
    "its own choice": ("gold", (GOLD,), "gold"),
    "the home of its namespace": ("", (HOME, GOLD), "gold"),
    "the home, as the CRD fills in default": ("default", (HOME, GOLD), "gold"),
    "the queue with the name of its namespace": ("", (OWN,), "a"),
    "the home, whatever the list has": ("gold", (GOLD, replace(HOME, allowed=frozenset())), "gold"),
    "the only one of the list": ("", (SILVER, listed("silver")), "silver"),
    "the only one of the list, for default": ("default", (SILVER, listed("silver")), "silver"),
    "default, if it is listed": ("", (SILVER, listed("silver", "default")), "default"),
    "the list, and not its name": ("", (OWN, SILVER, listed("silver")), "silver"),
    "the home in addition to the list": ("", (GOLD, replace(HOME, allowed=LIST)), "gold"),
}


@pytest.mark.parametrize(("named", "items", "queue"), QUEUES.values(), ids=QUEUES)
def test_a_gang_is_in_the_queue_of(named: str, items: tuple[Any, ...], queue: str) -> None:
    made = cache(pod_group(queue=named), *items)

    assert (gang_of(made).queue, gang_of(made).problem) == (queue, None)
    assert queue in made.snapshot(NOW).queues


@pytest.mark.parametrize("said", [{"queue": "gold"}, {"allowed": frozenset({"gold"})}])
def test_a_namespace_with_a_list_or_a_home_is_not_denied(said: dict[str, Any]) -> None:
    made = cache(pod_group(), GOLD, Namespace(name="a", **said), policy=DENY)

    assert (gang_of(made).queue, reason(made)) == ("gold", None)


def test_the_queue_of_last_resort_can_have_another_name() -> None:
    made = cache(pod_group(), policy=QueuePolicy(default_queue="batch"))

    assert gang_of(made).queue == "batch"
    assert list(made.snapshot(NOW).queues) == ["batch"]


NOT_LISTED = "namespace a may not use queue gold; its annotation gang-extender.io/queues allows "
TO_NAME = (
    "namespace a may not use queue default, the queue of gangs that name none; name one of"
    " bronze, silver, or have the annotation scheduling.volcano.sh/queue-name of the namespace"
    " name it for all"
)
NONE_LISTED = (
    "namespace a may use no queue: its annotation gang-extender.io/queues is empty; an"
    " administrator has to list one there"
)
DENIED = (
    "namespace a may use no queue: unlisted namespaces are denied; an administrator has to"
    " list queues in its annotation gang-extender.io/queues"
)
PROBLEMS = {
    "not in the list": (
        "gold",
        (GOLD, listed("silver", "bronze")),
        None,
        NOT_LISTED + "bronze, silver",
    ),
    "nothing in the list": ("gold", (GOLD, listed()), None, NOT_LISTED + "none by name"),
    "several to choose from": ("", (SILVER, BRONZE, listed("silver", "bronze")), None, TO_NAME),
    "several, for default": (
        "default",
        (SILVER, BRONZE, listed("silver", "bronze")),
        None,
        TO_NAME,
    ),
    "an empty list": ("", (listed(),), None, NONE_LISTED),
    "an empty list, for default": ("default", (listed(),), None, NONE_LISTED),
    "denied": ("", (GOLD, OWN, Namespace(name="a")), DENY, DENIED),
    "denied its own queue": ("a", (GOLD, OWN, Namespace(name="a")), DENY, DENIED),
    "denied any queue": ("gold", (GOLD, OWN, Namespace(name="a")), DENY, DENIED),
    "denied as a queue": (
        "",
        (Namespace(name="a"),),
        replace(DENY, namespaces_are_queues=True),
        DENIED,
    ),
    "unknown and denied": ("", (), DENY, "namespace a has not been seen yet"),
}


@pytest.mark.parametrize(("named", "items", "policy", "says"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_gang_may_not_use_a_queue(
    named: str, items: tuple[Any, ...], policy: QueuePolicy | None, says: str
) -> None:
    made = cache(pod_group(queue=named), *items, policy=policy)

    assert (reason(made), message(made)) == (Reason.QUEUE_NOT_ALLOWED, says)


def test_pods_cannot_promote_themselves_either() -> None:
    ambitious = Membership(key=GANG, named=True, min_member=1, queue="gold")

    assert reason(cache(SeenPod(pod("w-0"), ambitious), GOLD, listed())) is Reason.QUEUE_NOT_ALLOWED


def test_gangs_of_a_queue_that_cannot_be_used_report_why() -> None:
    made = cache(pod_group(queue="gold"), Queue(name="gold", problem="its weight is -1"))

    assert message(made) == "queue gold cannot be used: its weight is -1"


def test_a_queue_that_does_not_exist_is_a_problem_until_it_does() -> None:
    made = cache(pod_group(queue="gold"))

    assert reason(made) is Reason.QUEUE_NOT_FOUND

    made.apply(Upsert(Queue(name="gold")))

    assert reason(made) is None

    made.apply(Delete(Kind.QUEUE, "gold"))

    assert reason(made) is Reason.QUEUE_NOT_FOUND


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


def test_namespaces_can_be_queues() -> None:
    policy = QueuePolicy(namespaces_are_queues=True)
    made = cache(pod_group(), Namespace(name="a"), policy=policy)
    snapshot = made.snapshot(NOW)

    assert snapshot.gangs[GANG].queue == "a"
    assert snapshot.gangs[GANG].problem is None
    assert snapshot.queues["a"] == Queue(name="a")


def test_a_queue_that_an_administrator_allows_later_is_allowed_at_once() -> None:
    made = cache(
        pod_group(queue="gold"), Queue(name="gold"), Namespace(name="a", allowed=frozenset())
    )
    made.snapshot(NOW)
    made.apply(Upsert(Namespace(name="a", allowed=frozenset({"gold"}))))

    assert reason(made) is None


def test_a_namespace_not_seen_yet_may_use_no_queue() -> None:
    made = cache(pod_group(queue="gold"), pod_group("other"), Queue(name="gold"))
    made.require_namespaces()

    assert reason(made) is Reason.QUEUE_NOT_ALLOWED
    assert made.snapshot(NOW).gangs[GangKey("a/other")].problem is not None

    made.apply(Upsert(Namespace(name="a")))

    assert reason(made) is None
    assert made.snapshot(NOW).gangs[GangKey("a/other")].problem is None


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


def test_queues_are_sorted_and_keep_their_state() -> None:
    written = (
        Queue(name="z"),
        Queue(name="b", state=QueueState.CLOSED),
        Queue(name="default", weight=5),
    )
    queues = cache(Queue(name="z"), *written).snapshot(NOW).queues

    assert list(queues) == ["b", "default", "z"]
    assert (queues["b"].state, queues["default"].weight) == (QueueState.CLOSED, 5)


def test_a_change_of_weight_does_not_rebuild_gangs() -> None:
    made = cache(pod_group(queue="gold"), Queue(name="gold"))
    before = gang_of(made)
    made.apply(Upsert(Queue(name="gold", weight=7)))
    after = made.snapshot(NOW)

    assert after.gangs[GANG] is before
    assert after.queues["gold"].weight == 7


def test_a_change_of_a_priority_class_changes_its_gangs() -> None:
    made = cache(pod_group(priority_class="high"), PriorityClass(name="high", value=9))
    made.snapshot(NOW)
    made.apply(Upsert(PriorityClass(name="high", value=1)))

    assert gang_of(made).priority == 1
