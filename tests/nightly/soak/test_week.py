"""After a week of creation and deletion, the extender keeps no more than after a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
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

#: Limits that a week of this size does not reach, lowered; everything else that grows fails.
LIMITS = {
    "extender.cache.nodes._REMEMBERED_AMOUNTS": 60,
    "extender.liveness._REMEMBERED": 3,
    "extender.reservations.wakeups._MOST_GONE": 60,
    "extender.status.history._GANGS": 3,
}


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setattr(name, limit)
    monkeypatch.setattr(states, "MoveHistory", partial(MoveHistory, most_gangs=3))


@pytest.fixture
def week(monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    lower_limits(monkeypatch)
    with closing(Week()) as week:
        yield week


def test_after_a_week_no_more_is_kept_than_after_a_day(week: Week) -> None:
    day_one = week.days(1)
    day_seven = week.days(6)

    assert grown(day_one, day_seven) == []
    assert sum(day_seven.values()) <= 1.05 * sum(day_one.values())


def test_gangs_run_in_that_week(week: Week, monkeypatch: pytest.MonkeyPatch) -> None:
    phases, add_entry = set[str](), GangHistory.add_entry

    def record(self: GangHistory, key: GangKey, at: float, *line: Any) -> None:
        phases.add(line[1])
        add_entry(self, key, at, *line)

    monkeypatch.setattr(GangHistory, "add_entry", record)
    week.days(1)

    assert "Running" in phases


def keeps_every_pod(monkeypatch: pytest.MonkeyPatch) -> str:
    pod_seen, pods = SchedulerLiveness.pod_seen, dict[PodUid, Pod | None]()

    def keep(self: SchedulerLiveness, uid: PodUid, pod: Pod | None) -> None:
        self.__dict__.setdefault("planted", pods)[uid] = pod
        pod_seen(self, uid, pod)

    monkeypatch.setattr(SchedulerLiveness, "pod_seen", keep)
    return "SchedulerLiveness.planted"


def keeps_every_wake_up(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(WakeUps, "forget", lambda self, uid: None)
    monkeypatch.setattr(WakeUps, "clear_nominations", lambda self, promises: None)
    return "WakeUps._woken"


def keeps_every_node(monkeypatch: pytest.MonkeyPatch) -> str:
    def changed(self: Cluster, node: str) -> None:
        self.versions[node] = next(self._version_numbers)

    monkeypatch.setattr(Cluster, "_usage_changed", changed)
    return "NodeCapacity._versions"


def keeps_in_a_closure(monkeypatch: pytest.MonkeyPatch) -> str:
    work, kept = Reporter.work, list[object]()

    def also_keep(self: Reporter) -> float:
        self.__dict__["planted"] = lambda: kept
        kept.append(object())
        return work(self)

    monkeypatch.setattr(Reporter, "work", also_keep)
    return "Reporter.planted"


@pytest.mark.parametrize(
    "plant",
    [keeps_every_pod, keeps_every_wake_up, keeps_every_node, keeps_in_a_closure],
)
def test_a_planted_leak_is_found(
    plant: Callable[[pytest.MonkeyPatch], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lower_limits(monkeypatch)
    where = plant(monkeypatch)
    with closing(Week()) as week:
        found = grown(week.days(1), week.days(1), spare=4)

    assert any(each.startswith(where) for each in found), found


def test_attributes_slots_and_closures_are_counted() -> None:
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
