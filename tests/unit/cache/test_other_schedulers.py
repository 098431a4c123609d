"""A PodGroup whose pods all belong to other schedulers is not planned."""

from __future__ import annotations

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from tests.builders import GANG, NOW, cache, node, pod_group, seen


def of_another_scheduler(name: str) -> SeenPod:
    return seen(name, ours=False)


def gangs(made: Cluster) -> list[str]:
    return list(made.snapshot(NOW).gangs)


def test_a_group_whose_pods_belong_to_other_schedulers_is_not_planned() -> None:
    made = cache(node("n1"), pod_group())
    assert gangs(made) == [GANG]  # it may still get pods of this scheduler

    made.apply(Upsert(of_another_scheduler("w-0")))
    assert gangs(made) == []


def test_a_group_with_one_pod_of_this_scheduler_is_planned() -> None:
    made = cache(node("n1"), pod_group(), of_another_scheduler("w-0"), seen("w-1"))

    assert gangs(made) == [GANG]


def test_a_group_is_planned_again_when_the_pods_of_other_schedulers_are_deleted() -> None:
    other = of_another_scheduler("w-0")
    made = cache(node("n1"), pod_group(), other)
    assert gangs(made) == []

    made.apply(Delete(Kind.POD, other.pod.uid))
    assert gangs(made) == [GANG]


def test_a_pod_of_another_scheduler_that_changes_its_group_requests_a_cycle() -> None:
    made = cache(node("n1"), pod_group(), pod_group("other"), of_another_scheduler("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))
    before = made.generation
    assert gangs(made) == ["a/other"]

    made.apply(Upsert(seen("w-0", "other", ours=False)))
    assert gangs(made) == [GANG]
    assert woken == [made.generation]
    assert made.generation > before


def test_an_unchanged_pod_of_another_scheduler_requests_no_cycle() -> None:
    made = cache(node("n1"), pod_group(), of_another_scheduler("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))

    made.apply(Upsert(of_another_scheduler("w-0")))
    assert woken == []
