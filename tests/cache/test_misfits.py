"""What kube-scheduler would not have is left alone for a while, and then tried again."""

from __future__ import annotations

from extender.cache.misfits import Misfits
from extender.model.pod import Shape
from tests.cache.building import SMALL, StoppedClock, cluster, node


def test_a_misfit_is_forgotten_when_its_time_is_over() -> None:
    clock = StoppedClock()
    misfits = Misfits(clock.monotonic)
    misfits.note(SMALL, "n1", 30.0)
    misfits.note(SMALL, "n2", 300.0)
    assert misfits.by_shape() == {SMALL: {"n1", "n2"}}

    clock.time += 31
    assert misfits.by_shape() == {SMALL: {"n2"}}

    clock.time += 300
    assert misfits.by_shape() == {}


def test_only_pods_of_the_same_shape_are_kept_away() -> None:
    misfits = Misfits(StoppedClock().monotonic)
    misfits.note(SMALL, "n1", 30.0)

    assert Shape() not in misfits.by_shape()


def test_a_snapshot_shows_them_to_the_plan() -> None:
    mirror = cluster(node("n1"))
    mirror.misfits.note(SMALL, "n1", 30.0)

    assert mirror.snapshot(0.0).misfits == {SMALL: {"n1"}}
