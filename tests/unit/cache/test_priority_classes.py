"""Which priority classes count for the gangs of a namespace: naming a class is not enough."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from extender.cache.changes import ObjectStore, Upsert
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy, QueueResolver
from extender.model.gang import COSCHEDULING, VOLCANO, Gang, GangKey, PodGroup
from extender.model.pod import Pod, Status
from extender.model.queue import Namespace, PriorityClass
from tests.builders import GANG, NOW, ONE_CPU, cache, pod_group, seen, uid

CLASSES = (
    PriorityClass(name="system-cluster-critical", value=2_000_000_000),
    PriorityClass(name="high", value=900),
    PriorityClass(name="low", value=-5),
    PriorityClass(name="usual", value=10, is_default=True),
)


def gang_of(made: Cluster) -> Gang:
    return made.snapshot(NOW).gangs[GANG]


def limited(*names: str) -> Namespace:
    return Namespace(name="a", classes=frozenset(names))


def test_a_system_class_gives_a_tenants_pod_group_no_priority_and_reports_why() -> None:
    made = cache(*CLASSES, Namespace(name="a"), pod_group(priority_class="system-cluster-critical"))

    assert gang_of(made).priority == 10
    assert gang_of(made).remark == (
        "priority class system-cluster-critical does not count in namespace a;"
        " its annotation gang-extender.io/priority-classes would have to list it"
    )


def test_a_class_without_effect_is_reported_in_addition_to_other_problems() -> None:
    made = cache(
        *CLASSES,
        Namespace(name="a"),
        pod_group(priority_class="system-cluster-critical", remark="it does nothing here"),
    )

    assert gang_of(made).remark.endswith("would have to list it; it does nothing here")


def test_without_a_default_class_such_a_gang_has_no_priority() -> None:
    made = cache(CLASSES[0], pod_group(priority_class="system-cluster-critical"))

    assert gang_of(made).priority == 0


def test_a_system_class_counts_in_the_namespace_of_the_system() -> None:
    ours = PodGroup(
        namespace="kube-system", name="dns", priority_class=CLASSES[0].name, dialect=VOLCANO
    )
    made = cache(*CLASSES, Namespace(name="kube-system"), ours)
    found = made.snapshot(NOW).gangs[GangKey("kube-system/dns")]

    assert (found.priority, found.remark) == (2_000_000_000, "")


def test_a_system_class_counts_where_administrators_list_it() -> None:
    made = cache(
        *CLASSES,
        limited("system-cluster-critical"),
        pod_group(priority_class="system-cluster-critical"),
    )

    assert (gang_of(made).priority, gang_of(made).remark) == (2_000_000_000, "")


def test_an_unlisted_class_counts_no_higher_than_the_priority_of_the_pods() -> None:
    made = cache(
        *CLASSES, Namespace(name="a"), pod_group(priority_class="high"), seen("w-0"), seen("w-1")
    )

    assert gang_of(made).priority == 10
    assert gang_of(made).remark == (
        "priority class high counts as 10, which is what the pods have together, and not as 900;"
        " give it to all of them, or have the annotation gang-extender.io/priority-classes of"
        " namespace a list it"
    )


@pytest.mark.parametrize(
    ("priorities", "counts"),
    [
        pytest.param((900, 900), 900, id="all have it"),
        pytest.param((0, 900), 10, id="one has it, and the gang needs two"),
        pytest.param((0, 900, 0, 900), 900, id="the minimum has it"),
        pytest.param((500, 40), 40, id="they have less"),
        pytest.param((5000, 5000), 900, id="they have more than the group"),
        pytest.param((-5, -7), 10, id="less than pods without a class"),
        pytest.param((), 900, id="there is no pod yet"),
    ],
)
def test_a_gang_has_the_priority_that_the_api_server_admitted_for_its_pods(
    priorities: tuple[int, ...], counts: int
) -> None:
    members = [seen(f"w-{n}", priority=each) for n, each in enumerate(priorities)]
    made = cache(*CLASSES, Namespace(name="a"), pod_group(priority_class="high"), *members)

    assert gang_of(made).priority == counts
    assert bool(gang_of(made).remark) is (counts < 900)


def test_a_finished_pod_gives_its_gang_no_priority() -> None:
    made = cache(
        *CLASSES,
        pod_group(priority_class="high"),
        seen("w-0", priority=900, status=Status.SUCCEEDED),
        seen("w-1"),
    )

    assert gang_of(made).priority == 10


def test_a_low_class_counts_whatever_priority_the_pods_have() -> None:
    made = cache(*CLASSES, pod_group(priority_class="low"), seen("w-0", priority=900))

    assert (gang_of(made).priority, gang_of(made).remark) == (-5, "")


def test_a_listed_class_counts_whatever_priority_the_pods_have() -> None:
    made = cache(*CLASSES, limited("high"), pod_group(priority_class="high"), seen("w-0"))

    assert (gang_of(made).priority, gang_of(made).remark) == (900, "")


def test_the_priority_of_the_pods_counts_as_soon_as_they_have_it() -> None:
    first = seen("w-0", priority=900)
    made = cache(
        *CLASSES, Namespace(name="a"), pod_group(priority_class="high"), first, seen("w-1")
    )
    assert gang_of(made).priority == 10

    made.apply(Upsert(seen("w-2", priority=900)))

    assert gang_of(made).priority == 900


def test_a_namespace_may_be_limited_to_a_list_of_classes() -> None:
    made = cache(*CLASSES, limited("low", "usual"), pod_group(priority_class="high"))

    assert gang_of(made).priority == 10
    assert gang_of(made).remark == (
        "priority class high does not count in namespace a;"
        " its annotation gang-extender.io/priority-classes allows low, usual"
    )


def test_an_empty_list_allows_none() -> None:
    made = cache(*CLASSES, limited(), pod_group(priority_class="high"))

    assert gang_of(made).remark.endswith("allows none")


def test_a_namespace_not_seen_yet_has_no_class() -> None:
    made = cache(*CLASSES, pod_group(priority_class="high"))
    made.require_namespaces()

    assert gang_of(made).priority == 10
    assert "has not been seen yet" in gang_of(made).remark


@pytest.mark.parametrize("written", ["", "unknown"])
def test_a_gang_without_an_existing_class_gets_no_message(written: str) -> None:
    made = cache(*CLASSES, limited("low"), pod_group(priority_class=written))

    assert (gang_of(made).priority, gang_of(made).remark) == (10, "")


def test_the_list_also_applies_to_gangs_that_have_the_priority_of_their_pods() -> None:
    made = cache(
        *CLASSES,
        limited("low"),
        pod_group(dialect=COSCHEDULING),
        seen("w-0", priority=900, priority_class="high"),
        seen("w-1", priority=900, priority_class="high"),
        seen("w-2", priority=-5, priority_class="low"),
    )

    assert gang_of(made).priority == 10
    assert "priority class high does not count" in gang_of(made).remark


@pytest.mark.parametrize("dialect", [COSCHEDULING, VOLCANO, ""])
@pytest.mark.parametrize(
    "one",
    [
        pytest.param({"gated": True}, id="a gate keeps it"),
        pytest.param({"priority_class": "system-cluster-critical"}, id="it is critical"),
        pytest.param({"exempt": True}, id="its namespace is exempt"),
        pytest.param({"status": Status.SUCCEEDED, "on": "n1"}, id="it has succeeded"),
        pytest.param({"status": Status.FAILED}, id="it has failed"),
        pytest.param({"status": Status.RELEASING, "on": "n1"}, id="it is leaving"),
        pytest.param({"status": Status.UNKNOWN, "on": "n1"}, id="its state is unknown"),
    ],
)
def test_a_pod_that_cannot_start_gives_its_gang_no_priority(
    one: dict[str, Any], dialect: str
) -> None:
    made = cache(
        *CLASSES,
        pod_group(min_member=1, dialect=dialect, priority_class="high"),
        seen("w-0", priority=3),
        seen("w-1", **({"priority": 2_000_000_000} | one)),
    )

    assert gang_of(made).priority == (10 if dialect == VOLCANO else 3)


def test_running_members_give_their_priority_to_waiting_members() -> None:
    running = [seen(f"w-{n}", on="n1", priority=900) for n in range(2)]
    made = cache(*CLASSES, pod_group(dialect=COSCHEDULING), *running, seen("w-2", priority=3))

    assert gang_of(made).priority == 900


@pytest.mark.parametrize(
    ("needed", "counts"), [(0, 900), (1, 900), (2, 40), (3, 7), (4, 7), (9, 7)]
)
def test_a_gang_has_the_priority_that_at_least_its_minimum_of_members_has(
    needed: int, counts: int
) -> None:
    members = [seen(f"w-{n}", priority=each) for n, each in enumerate((7, 900, 40))]
    made = cache(pod_group(min_member=needed, dialect=COSCHEDULING), *members)

    assert gang_of(made).priority == counts


def test_a_gang_whose_members_are_all_gated_has_their_priority() -> None:
    members = [seen(f"w-{n}", priority=900, gated=True) for n in range(2)]
    made = cache(pod_group(dialect=COSCHEDULING), *members, seen("w-2", gated=True))

    assert gang_of(made).priority == 900


@pytest.mark.parametrize(
    ("namespace", "counts"), [(Namespace(name="a"), 10), (limited(CLASSES[0].name), 2_000_000_000)]
)
def test_a_system_class_of_the_pods_counts_where_administrators_list_it_alone(
    namespace: Namespace, counts: int
) -> None:
    one = seen("w-0", priority=2_000_000_000, priority_class=CLASSES[0].name)
    made = cache(*CLASSES, namespace, pod_group(dialect=COSCHEDULING), one)

    # In both cases the pod does not wait, so no message says why its class counts for less.
    assert (gang_of(made).priority, gang_of(made).remark) == (counts, "")


class ReadCounter(Pod):
    """Counts how often its attributes are read."""

    __slots__ = ()
    looks: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        ReadCounter.looks += 1
        return super().__getattribute__(name)


def reads_of(size: int) -> int:
    members = [
        ReadCounter(uid=uid(f"w-{n}"), namespace="a", name=f"w-{n}", shape=ONE_CPU, priority=n % 7)
        for n in range(size)
    ]
    policy = QueueResolver(
        QueuePolicy(),
        *(ObjectStore[Any](lambda *_: None) for _ in ("queues", "namespaces", "classes")),
    )
    before = ReadCounter.looks
    assert policy.rank(pod_group(min_member=size, dialect=COSCHEDULING), members).value == 0
    return ReadCounter.looks - before


def test_the_cost_of_the_priority_is_linear_in_the_number_of_members() -> None:
    assert reads_of(400) <= 2 * reads_of(200)


def test_without_a_list_the_priority_that_the_api_server_set_counts() -> None:
    made = cache(*CLASSES, seen("x", "", priority=900, priority_class="high"))

    assert made.snapshot(NOW).gangs[GangKey("a/pod:x")].priority == 900


def test_a_pod_gives_its_gang_no_priority_by_an_annotation() -> None:
    made = cache(seen("x", "", priority=3, task_priority=2_000_000_000))

    assert made.snapshot(NOW).gangs[GangKey("a/pod:x")].priority == 3


def test_gangs_of_a_class_that_never_preempts_evict_no_pod() -> None:
    patient = PriorityClass(name="patient", value=900, may_preempt=False)
    made = cache(
        patient,
        pod_group(priority_class="patient"),
        seen("w-0", priority=900),
        seen("w-1", on="n1", priority=900),
    )

    assert gang_of(made).priority == 900
    assert [each.may_preempt for each in gang_of(made).pods] == [False, True]
