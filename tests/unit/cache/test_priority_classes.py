"""Which priority classes count for the gangs of a namespace: naming a class is not enough."""

from __future__ import annotations

from dataclasses import replace
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


SYSTEM, HIGH, LOW = (pod_group(priority_class=each.name) for each in CLASSES[:3])
PODS = pod_group(dialect=COSCHEDULING)
SYSTEM_POD = seen("w-0", priority=2_000_000_000, priority_class=CLASSES[0].name)
LISTED = "its annotation gang-extender.io/priority-classes"
NOT_SYSTEM = "priority class system-cluster-critical does not count in namespace a; "
AS_THE_PODS = (
    "priority class high counts as 10, which is what the pods have together, and not as 900;"
    " give it to all of them, or have the annotation gang-extender.io/priority-classes of"
    " namespace a list it"
)
#: The objects beside the classes, the priority that counts, and the remark.
PRIORITIES = {
    "a system class": (
        (Namespace(name="a"), SYSTEM),
        10,
        f"{NOT_SYSTEM}{LISTED} would have to list it",
    ),
    "a system class, beside another remark": (
        (Namespace(name="a"), replace(SYSTEM, remark="it does nothing here")),
        10,
        f"{NOT_SYSTEM}{LISTED} would have to list it; it does nothing here",
    ),
    "a listed system class": ((limited(CLASSES[0].name), SYSTEM), 2_000_000_000, ""),
    "a class that the pods do not have": (
        (Namespace(name="a"), HIGH, seen("w-0"), seen("w-1")),
        10,
        AS_THE_PODS,
    ),
    "a class that a finished pod has": (
        (HIGH, seen("w-0", priority=900, status=Status.SUCCEEDED), seen("w-1")),
        10,
        AS_THE_PODS,
    ),
    "a low class": ((LOW, seen("w-0", priority=900)), -5, ""),
    "a listed class": ((limited("high"), HIGH, seen("w-0")), 900, ""),
    "a class that is not listed": (
        (limited("low", "usual"), HIGH),
        10,
        f"priority class high does not count in namespace a; {LISTED} allows low, usual",
    ),
    "an empty list": (
        (limited(), HIGH),
        10,
        f"priority class high does not count in namespace a; {LISTED} allows none",
    ),
    "no class": ((limited("low"), pod_group()), 10, ""),
    "an unknown class": ((limited("low"), pod_group(priority_class="unknown")), 10, ""),
    "running members": (
        (PODS, *(seen(f"w-{n}", on="n1", priority=900) for n in (1, 2)), seen("w-0", priority=3)),
        900,
        "",
    ),
    "members that are all gated": (
        (
            PODS,
            *(seen(f"w-{n}", priority=900, gated=True) for n in (0, 1)),
            seen("w-2", gated=True),
        ),
        900,
        "",
    ),
    # The pod does not wait, so no message says why its class counts for less.
    "a pod with a system class": ((Namespace(name="a"), PODS, SYSTEM_POD), 10, ""),
    "a pod with a listed system class": (
        (limited(CLASSES[0].name), PODS, SYSTEM_POD),
        2_000_000_000,
        "",
    ),
    "a priority that only an annotation states": (
        (PODS, seen("w-0", priority=3, task_priority=2_000_000_000)),
        3,
        "",
    ),
}


@pytest.mark.parametrize(("items", "counts", "remark"), PRIORITIES.values(), ids=PRIORITIES)
def test_the_priority_of_a_gang_with(items: tuple[Any, ...], counts: int, remark: str) -> None:
    found = gang_of(cache(*CLASSES, *items))

    assert (found.priority, found.remark) == (counts, remark)


def test_a_system_class_counts_in_the_namespace_of_the_system() -> None:
    ours = PodGroup(
        namespace="kube-system", name="dns", priority_class=CLASSES[0].name, dialect=VOLCANO
    )
    made = cache(*CLASSES, Namespace(name="kube-system"), ours)

    assert made.snapshot(NOW).gangs[GangKey("kube-system/dns")].priority == 2_000_000_000


def test_a_namespace_not_seen_yet_has_no_class() -> None:
    made = cache(*CLASSES, HIGH)
    made.require_namespaces()

    assert gang_of(made).priority == 10
    assert "has not been seen yet" in gang_of(made).remark


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


def test_the_priority_of_the_pods_counts_as_soon_as_they_have_it() -> None:
    first = seen("w-0", priority=900)
    made = cache(
        *CLASSES, Namespace(name="a"), pod_group(priority_class="high"), first, seen("w-1")
    )
    assert gang_of(made).priority == 10

    made.apply(Upsert(seen("w-2", priority=900)))

    assert gang_of(made).priority == 900


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


@pytest.mark.parametrize(
    ("needed", "counts"), [(0, 900), (1, 900), (2, 40), (3, 7), (4, 7), (9, 7)]
)
def test_a_gang_has_the_priority_that_at_least_its_minimum_of_members_has(
    needed: int, counts: int
) -> None:
    members = [seen(f"w-{n}", priority=each) for n, each in enumerate((7, 900, 40))]
    made = cache(pod_group(min_member=needed, dialect=COSCHEDULING), *members)

    assert gang_of(made).priority == counts


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
