"""What kube-scheduler would not have is left alone for a while, and then tried again."""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.misfits import Misfits
from extender.model.gang import GangKey
from tests.cache.building import GANG, NOW, VOLCANO, StoppedClock, cluster, group, node, pod, uid

OTHER = GangKey("a/other")


def test_a_misfit_is_forgotten_when_its_time_is_over() -> None:
    clock = StoppedClock()
    misfits = Misfits(clock.monotonic)
    misfits.note(GANG, "n1", 30.0)
    misfits.note(GANG, "n2", 300.0)
    assert misfits.by_gang() == {GANG: {"n1", "n2"}}

    clock.time += 31
    assert misfits.by_gang() == {GANG: {"n2"}}

    clock.time += 300
    assert misfits.by_gang() == {}


def test_a_whole_gang_is_noted_without_looking_at_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It happens in the event loop: with some gangs of a thousand it took seconds each time."""
    misfits, nodes = Misfits(StoppedClock().monotonic), [f"n{number}" for number in range(1000)]
    looks: list[int] = []
    sort = Misfits._sort
    monkeypatch.setattr(Misfits, "_sort", lambda self: (looks.append(1), sort(self)))
    misfits.note(OTHER, "n1", 30.0)

    misfits.note_all(GANG, nodes, 300.0)

    assert misfits.of(GANG) == set(nodes)
    assert misfits.of(OTHER) == {"n1"}
    assert not looks
    assert misfits.by_gang() == {OTHER: {"n1"}, GANG: set(nodes)}


def test_a_snapshot_bars_the_node_to_that_gang_alone() -> None:
    mirror = cluster(node("n1"), group(), pod("p0"), group("other"), pod("q0", "other"))
    mirror.misfits.note(GANG, "n1", 30.0)

    seen = mirror.snapshot(NOW)

    (mine,), (theirs,) = seen.gangs[GANG].pods, seen.gangs[OTHER].pods
    assert seen.misfits == {mine.shape: {"n1"}}
    assert theirs.shape not in seen.misfits
    assert mirror.snapshot(NOW).gangs[GANG].pods[0].shape is mine.shape


def test_when_it_is_over_its_pods_are_like_all_others_again() -> None:
    clock = StoppedClock()
    mirror = cluster(node("n1"), group(), pod("p0"), clock=clock)
    before = mirror.snapshot(NOW).gangs[GANG].pods[0].shape
    mirror.misfits.note(GANG, "n1", 30.0)
    assert mirror.snapshot(NOW).gangs[GANG].pods[0].shape is not before

    clock.time += 31

    seen = mirror.snapshot(NOW)
    assert seen.misfits == {}
    assert seen.gangs[GANG].pods[0].shape is before


def test_a_gang_that_is_gone_takes_its_misfits_along() -> None:
    for gone in (Delete(Kind.POD, uid("p0")), Delete(Kind.GROUP, GANG, VOLCANO)):
        mirror = cluster(node("n1"), group(), pod("p0"))
        mirror.misfits.note(GANG, "n1", 30.0)

        mirror.apply(gone)

        assert mirror.misfits.by_gang() == {}


def test_a_group_made_anew_under_the_same_name_begins_without_any() -> None:
    mirror = cluster(node("n1"), group(uid="first"), pod("p0"))
    mirror.misfits.note(GANG, "n1", 30.0)

    mirror.apply(Upsert(group(uid="second")))

    assert mirror.misfits.by_gang() == {}
