"""Who was cut short, and who only looks like it."""

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
CUT_SHORT = frozenset({GANG})
NOBODY = frozenset[str]()


class Mirror:
    """A cluster with a gang of three, of which one has a node."""

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

    def cut_short(self, after_s: float = 0.0) -> frozenset[str]:
        self.clock.advance(after_s)
        return self.cluster.snapshot(NOW).partial_gangs

    def settled(self) -> Mirror:
        """Have led for a while, when nothing was wrong."""
        self.see("w-1", on="n")
        self.see("w-2", on="n")
        assert self.cut_short() == NOBODY
        self.clock.advance(ARRIVES_S + 1)
        return self

    def fail(self) -> None:
        """Hear from the barrier that a commit has ended with too few."""
        written = self.cluster.group(GANG)
        assert written is not None
        self.cluster.partial_gangs.failed(written, self.cluster.pods_of(GANG), self.clock.seconds)


def test_a_gang_with_too_few_members_when_a_term_begins_is_partial() -> None:
    assert Mirror().cut_short() == CUT_SHORT


def test_without_any_earlier_term_no_gang_is_partial() -> None:
    saved = cache(node("n"), pod_group(min_member=3, **INQUEUE))
    saved.apply(Upsert(seen("w-0", on="n")))

    assert saved.snapshot(NOW).partial_gangs == NOBODY
    assert saved.snapshot(NOW).protected == {}


def test_a_partial_gang_stays_partial_until_it_is_complete() -> None:
    mirror = Mirror()
    mirror.cut_short()
    assert mirror.cut_short(after_s=3600.0) == CUT_SHORT
    mirror.see("w-1", on="n")
    assert mirror.cut_short() == CUT_SHORT
    mirror.see("w-2", on="n")

    assert mirror.cut_short() == NOBODY
    mirror.see("w-2", on="n", status=Status.FAILED)
    assert mirror.cut_short() == NOBODY, "it has run whole since"


def test_a_binding_of_the_last_term_may_take_effect_after_the_new_one_began() -> None:
    mirror = Mirror()
    mirror.see("w-0")
    assert mirror.cut_short() == NOBODY
    mirror.see("w-0", on="n")

    assert mirror.cut_short(after_s=ARRIVES_S - 1) == CUT_SHORT


def test_a_gang_that_loses_a_member_during_the_term_is_not_partial() -> None:
    mirror = Mirror().settled()
    mirror.cluster.apply(Delete(Kind.POD, uid("w-2")))
    mirror.see("w-3")

    assert mirror.cut_short() == NOBODY


def test_a_gang_that_raises_its_minimum_after_its_start_is_not_partial() -> None:
    mirror = Mirror().settled()
    for number in range(3, 9):
        mirror.see(f"w-{number}")
    mirror.cluster.apply(Upsert(pod_group(min_member=9, **INQUEUE)))

    assert mirror.cut_short() == NOBODY


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.UNKNOWN])
def test_a_gang_whose_phase_was_running_before_the_term_is_not_partial(phase: Phase) -> None:
    """It waits with too few members for somebody to begin anew."""
    assert Mirror(phase=phase).cut_short() == NOBODY


def test_a_commit_that_bound_too_few_members_makes_the_gang_partial() -> None:
    mirror = Mirror().settled()
    mirror.see("w-1")
    mirror.see("w-2")
    assert mirror.cut_short() == NOBODY
    mirror.fail()

    assert mirror.cut_short() == CUT_SHORT


def test_the_running_members_of_a_partial_gang_are_protected_for_a_while() -> None:
    mirror = Mirror()
    assert set(mirror.cluster.snapshot(NOW).protected) == {uid("w-0")}
    mirror.clock.advance(SPARED_S)

    assert not mirror.cluster.snapshot(NOW).protected
    assert mirror.cut_short() == CUT_SHORT


CHEATS = ["another PodGroup", "a larger minimum", "other members"]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_partial_gang_that_is_changed_is_not_partial_any_more(cheat: str) -> None:
    mirror = Mirror()
    assert mirror.cut_short() == CUT_SHORT
    mirror.clock.advance(ARRIVES_S)
    if cheat == CHEATS[0]:
        mirror.cluster.apply(Upsert(pod_group(min_member=3, **(INQUEUE | {"uid": "u2"}))))
    elif cheat == CHEATS[1]:
        mirror.see("w-3")
        mirror.cluster.apply(Upsert(pod_group(min_member=4, **INQUEUE)))
    else:
        mirror.cluster.apply(Delete(Kind.POD, uid("w-2")))
        mirror.see("w-3")

    assert mirror.cut_short(after_s=1.0) == NOBODY


def test_a_new_term_decides_anew_which_gangs_are_partial() -> None:
    mirror = Mirror().settled()
    mirror.fail()
    mirror.cluster.partial_gangs.forget()
    assert mirror.cut_short() == NOBODY
    mirror.see("w-2")

    assert mirror.cut_short() == CUT_SHORT


def test_a_partial_gang_found_when_a_term_begins_is_reported_once() -> None:
    mirror = Mirror()
    told: list[str] = []
    mirror.cluster.partial_gangs.on_found(told.append)
    mirror.cut_short()
    mirror.cut_short()
    assert told == [GANG]
    mirror.cluster.partial_gangs.forget()
    mirror.cut_short()

    assert told == [GANG, GANG], "another term is another beginning"


def test_a_partial_gang_that_the_permit_runner_reported_is_not_reported_back() -> None:
    mirror = Mirror().settled()
    told: list[str] = []
    mirror.cluster.partial_gangs.on_found(told.append)
    mirror.see("w-1")
    mirror.fail()
    mirror.cut_short()

    assert told == []
