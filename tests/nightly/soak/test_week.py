"""After a week in which everything came and went nothing more is kept than after a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from extender.cache.cluster import Cluster
from extender.liveness import SchedulerLiveness
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid
from extender.permit import states
from extender.permit.states import MoveHistory
from extender.reservations.wakeups import WakeUps
from extender.status.history import GangHistory
from extender.status.reporter import Reporter

from .containers import grown, sizes
from .week import Week

#: Memories with a bound that a week of this size does not reach. Whatever else grows fails.
BOUNDS = {
    "extender.cache.nodes._REMEMBERED_AMOUNTS": 60,
    "extender.liveness._REMEMBERED": 3,
    "extender.reservations.wakeups._MOST_GONE": 60,
    "extender.status.history._GANGS": 3,
}


def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in BOUNDS.items():
        monkeypatch.setattr(name, most)
    monkeypatch.setattr(states, "MoveHistory", partial(MoveHistory, most_gangs=3))


@pytest.fixture
def week(monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    bound(monkeypatch)
    made = Week()
    yield made
    made.close()


def test_after_a_week_nothing_more_is_kept_than_after_a_day(week: Week) -> None:
    day_one = week.days(1)
    day_seven = week.days(6)

    assert grown(day_one, day_seven) == []
    assert sum(day_seven.values()) <= 1.05 * sum(day_one.values())


def test_gangs_run_in_that_week(week: Week, monkeypatch: pytest.MonkeyPatch) -> None:
    words, tell = set[str](), GangHistory.add_entry

    def record(self: GangHistory, key: GangKey, at: float, *line: Any) -> None:
        words.add(line[1])
        tell(self, key, at, *line)

    monkeypatch.setattr(GangHistory, "add_entry", record)
    week.days(1)

    assert "Running" in words


def keeps_every_pod(monkeypatch: pytest.MonkeyPatch) -> str:
    """A listener that never forgets."""
    seen, heard = SchedulerLiveness.pod_seen, dict[PodUid, Pod | None]()

    def see(self: SchedulerLiveness, uid: PodUid, pod: Pod | None) -> None:
        self.__dict__.setdefault("planted", heard)[uid] = pod
        seen(self, uid, pod)

    monkeypatch.setattr(SchedulerLiveness, "pod_seen", see)
    return "SchedulerLiveness.planted"


def forgets_no_wake_up(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(WakeUps, "forget", lambda self, uid: None)
    monkeypatch.setattr(WakeUps, "clear_nominations", lambda self, promises: None)
    return "WakeUps._woken"


def counts_every_node_for_ever(monkeypatch: pytest.MonkeyPatch) -> str:
    def changed(self: Cluster, node: str) -> None:
        self.versions[node] = next(self._version_numbers)

    monkeypatch.setattr(Cluster, "_usage_changed", changed)
    return "NodeCapacity._versions"


def hides_it_in_a_closure(monkeypatch: pytest.MonkeyPatch) -> str:
    work, kept = Reporter.work, list[object]()

    def also_keep(self: Reporter) -> float:
        self.__dict__["planted"] = lambda: kept
        kept.append(object())
        return work(self)

    monkeypatch.setattr(Reporter, "work", also_keep)
    return "Reporter.planted"


@pytest.mark.parametrize(
    "plant",
    [keeps_every_pod, forgets_no_wake_up, counts_every_node_for_ever, hides_it_in_a_closure],
)
def test_a_leak_that_is_planted_is_named(
    plant: Callable[[pytest.MonkeyPatch], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch)
    where = plant(monkeypatch)
    week = Week()
    try:
        found = grown(week.days(1), week.days(1), spare=4)
    finally:
        week.close()

    assert any(each.startswith(where) for each in found), found


def test_whatever_holds_something_is_looked_into() -> None:
    class Slotted:
        __slots__ = ("inside",)

        def __init__(self, inside: Any) -> None:
            self.inside = inside

    class Holder:
        def __init__(self) -> None:
            self.plain = {"a": [1, 2, 3]}
            self.slotted = Slotted({1, 2})
            self.bound = Slotted([1]).inside.append

    found = sizes(Holder())

    assert found == Counter({"Holder.plain": 1 + 3, "Slotted.inside": 2})
