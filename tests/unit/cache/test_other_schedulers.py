"""A PodGroup whose pods all belong to other schedulers is none of our business."""

from __future__ import annotations

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from tests.builders import GANG, NOW, cache, node, pod_group, seen


def strange(name: str) -> SeenPod:
    return seen(name, ours=False)


def gangs(made: Cluster) -> list[str]:
    return list(made.snapshot(NOW).gangs)


def test_it_is_left_to_whoever_schedules_its_pods() -> None:
    made = cache(node("n1"), pod_group())
    assert gangs(made) == [GANG]  # it may get pods of ours

    made.apply(Upsert(strange("w-0")))
    assert gangs(made) == []


def test_it_is_ours_while_one_of_its_pods_is() -> None:
    made = cache(node("n1"), pod_group(), strange("w-0"), seen("w-1"))

    assert gangs(made) == [GANG]


def test_it_may_become_ours_again_when_the_others_are_gone() -> None:
    other = strange("w-0")
    made = cache(node("n1"), pod_group(), other)
    assert gangs(made) == []

    made.apply(Delete(Kind.POD, other.pod.uid))
    assert gangs(made) == [GANG]


def test_it_is_planned_anew_when_a_pod_of_others_names_another_one() -> None:
    made = cache(node("n1"), pod_group(), pod_group("other"), strange("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))
    before = made.generation
    assert gangs(made) == ["a/other"]

    made.apply(Upsert(seen("w-0", "other", ours=False)))
    assert gangs(made) == [GANG]
    assert woken == [made.generation]
    assert made.generation > before


def test_nothing_is_planned_anew_when_a_pod_of_others_says_the_same_again() -> None:
    made = cache(node("n1"), pod_group(), strange("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))

    made.apply(Upsert(strange("w-0")))
    assert woken == []
