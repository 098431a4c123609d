"""Which gangs are partial, and which only look like it."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.cluster import Cluster
from extender.cache.gang_history import ARRIVES_S, SPARED_S
from extender.model.gang import Phase
from extender.model.pod import Status
from extender.sim.clock import VirtualClock
from tests.builders import GANG, NOW, cache, node, pod_group, seen, uid

INQUEUE = {"uid": "u1", "phase": Phase.INQUEUE, "dialect": "scheduling.volcano.sh"}
PARTIAL = frozenset({GANG})
NONE = frozenset[str]()


class PartialGangScene:
    """A cluster with a gang of three, of which one member has a node."""

    def __init__(self, **facts: Any) -> None:
        self.clock = VirtualClock()
        self.cluster: Cluster = cache(
            node("n"), pod_group(min_member=3, **(INQUEUE | facts)), clock=self.clock
        )
        self.cluster.partial_gangs.forget()
        self.see("w-0", on="n")
        self.see("w-1")
        self.see("w-2")

    def see(self, name: str, **facts: Any) -> None:
        self.cluster.apply(Upsert(seen(name, **facts)))

    def partial(self, after_s: float = 0.0) -> frozenset[str]:
        self.clock.advance(after_s)
        return self.cluster.snapshot(NOW).partial_gangs

    def settled(self) -> PartialGangScene:
        """Lead for a while with a complete gang."""
        self.see("w-1", on="n")
        self.see("w-2", on="n")
        assert self.partial() == NONE
        self.clock.advance(ARRIVES_S + 1)
        return self

    def fail(self) -> None:
        """Report, as the permit runner does, that a commit bound too few members."""
        written = self.cluster.group(GANG)
        assert written is not None
        self.cluster.partial_gangs.failed(written, self.cluster.pods_of(GANG), self.clock.seconds)


def test_a_gang_with_too_few_members_when_a_term_begins_is_partial() -> None:
    assert PartialGangScene().partial() == PARTIAL


def test_without_any_earlier_term_no_gang_is_partial() -> None:
    saved = cache(node("n"), pod_group(min_member=3, **INQUEUE))
    saved.apply(Upsert(seen("w-0", on="n")))

    assert saved.snapshot(NOW).partial_gangs == NONE
    assert saved.snapshot(NOW).protected == {}


def test_a_partial_gang_stays_partial_until_it_is_complete() -> None:
    scene = PartialGangScene()
    scene.partial()
    assert scene.partial(after_s=3600.0) == PARTIAL
    scene.see("w-1", on="n")
    assert scene.partial() == PARTIAL
    scene.see("w-2", on="n")

    assert scene.partial() == NONE
    scene.see("w-2", on="n", status=Status.FAILED)
    assert scene.partial() == NONE, "it has run whole since"


def test_a_binding_of_the_last_term_may_take_effect_after_the_new_one_began() -> None:
    scene = PartialGangScene()
    scene.see("w-0")
    assert scene.partial() == NONE
    scene.see("w-0", on="n")

    assert scene.partial(after_s=ARRIVES_S - 1) == PARTIAL


def test_a_gang_that_loses_a_member_during_the_term_is_not_partial() -> None:
    scene = PartialGangScene().settled()
    scene.cluster.apply(Delete(Kind.POD, uid("w-2")))
    scene.see("w-3")

    assert scene.partial() == NONE


def test_a_gang_that_raises_its_minimum_after_its_start_is_not_partial() -> None:
    scene = PartialGangScene().settled()
    for number in range(3, 9):
        scene.see(f"w-{number}")
    scene.cluster.apply(Upsert(pod_group(min_member=9, **INQUEUE)))

    assert scene.partial() == NONE


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.UNKNOWN])
def test_a_gang_whose_phase_was_running_before_the_term_is_not_partial(phase: Phase) -> None:
    """It runs with too few members until its controller starts it again."""
    assert PartialGangScene(phase=phase).partial() == NONE


def test_a_commit_that_bound_too_few_members_makes_the_gang_partial() -> None:
    scene = PartialGangScene().settled()
    scene.see("w-1")
    scene.see("w-2")
    assert scene.partial() == NONE
    scene.fail()

    assert scene.partial() == PARTIAL


def test_the_running_members_of_a_partial_gang_are_protected_for_a_while() -> None:
    scene = PartialGangScene()
    assert set(scene.cluster.snapshot(NOW).protected) == {uid("w-0")}
    scene.clock.advance(SPARED_S)

    assert not scene.cluster.snapshot(NOW).protected
    assert scene.partial() == PARTIAL


CHANGES = ["another PodGroup", "a larger minimum", "other members"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_partial_gang_that_is_changed_is_not_partial_any_more(change: str) -> None:
    scene = PartialGangScene()
    assert scene.partial() == PARTIAL
    scene.clock.advance(ARRIVES_S)
    if change == CHANGES[0]:
        scene.cluster.apply(Upsert(pod_group(min_member=3, **(INQUEUE | {"uid": "u2"}))))
    elif change == CHANGES[1]:
        scene.see("w-3")
        scene.cluster.apply(Upsert(pod_group(min_member=4, **INQUEUE)))
    else:
        scene.cluster.apply(Delete(Kind.POD, uid("w-2")))
        scene.see("w-3")

    assert scene.partial(after_s=1.0) == NONE


def test_a_new_term_decides_anew_which_gangs_are_partial() -> None:
    scene = PartialGangScene().settled()
    scene.fail()
    scene.cluster.partial_gangs.forget()
    assert scene.partial() == NONE
    scene.see("w-2")

    assert scene.partial() == PARTIAL


def test_a_partial_gang_found_when_a_term_begins_is_reported_once() -> None:
    scene = PartialGangScene()
    reported: list[str] = []
    scene.cluster.partial_gangs.on_found(reported.append)
    scene.partial()
    scene.partial()
    assert reported == [GANG]
    scene.cluster.partial_gangs.forget()
    scene.partial()

    assert reported == [GANG, GANG], "another term is another beginning"


def test_a_partial_gang_that_the_permit_runner_reported_is_not_reported_back() -> None:
    scene = PartialGangScene().settled()
    reported: list[str] = []
    scene.cluster.partial_gangs.on_found(reported.append)
    scene.see("w-1")
    scene.fail()
    scene.partial()

    assert reported == []
