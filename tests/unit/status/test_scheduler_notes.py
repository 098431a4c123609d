"""Who is not heard is told once in the log, and as long as it lasts by series and notes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from extender.liveness import SchedulerLiveness
from extender.metrics import Metrics
from extender.ports import WakeOrder
from extender.sim.clock import VirtualClock
from extender.status.notes import SchedulerNotes
from tests.builders import pod, uid


class Desk:
    """Listens for `mine` and `other`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.hearing = SchedulerLiveness(("mine", "other"), self.clock, me="us")
        self.news = SchedulerNotes(self.hearing, self.metrics, self.clock)
        self.woken: list[WakeOrder] = []
        self.hearing.update()

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        self.woken.extend(orders)

    def see(self, name: str, refusal: str = "") -> None:
        member = pod(name, scheduler="mine", refusal=refusal)
        self.hearing.pod_seen(member.uid, member)

    def ask(self, name: str) -> None:
        self.hearing.hook_called(pod(name, scheduler="mine"))

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.hearing.update()

    def value(self, name: str, scheduler: str = "mine") -> float | None:
        return self.metrics.registry.get_sample_value(name, {"scheduler": scheduler})


@pytest.fixture
def desk() -> Desk:
    return Desk()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records]


def test_the_last_call_has_a_timestamp_for_each_of_our_scheduler_names(desk: Desk) -> None:
    name = "gang_extender_last_hook_timestamp_seconds"
    assert (desk.value(name), desk.value(name, "other")) == (0, 0)

    desk.ask("p")

    assert (desk.value(name), desk.value(name, "other")) == (desk.clock.now(), 0)


def test_names_of_other_schedulers_have_no_series(desk: Desk) -> None:
    desk.hearing.hook_called(pod("p", scheduler="made-up-by-a-tenant"))

    assert desk.value("gang_extender_pods_without_scheduler", "made-up-by-a-tenant") is None


def test_missing_calls_are_logged_once_and_so_is_their_end(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    desk.ask("before")
    desk.see("p")
    for _ in range(30):
        desk.wait(10)
    assert lines(caplog) == [("WARNING", "kube-scheduler does not call")]
    assert caplog.records[0].facts["pods"] == 1  # type: ignore[attr-defined]
    assert desk.value("gang_extender_pods_without_scheduler") == 1
    assert desk.news.notes() == [
        "scheduler mine: no kube-scheduler has called for pods of scheduler name mine for 5 min: is"
        " it running, and does a profile have that name?"
    ]

    desk.ask("p")

    assert lines(caplog)[1:] == [("INFO", "kube-scheduler calls again")]
    assert desk.value("gang_extender_pods_without_scheduler") == 0
    assert desk.news.notes() == []


def test_the_first_call_ever_is_not_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk.see("p")
    desk.ask("p")

    assert lines(caplog) == []


def test_calls_through_another_extender_are_logged_once_and_counted(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ask("p")
    desk.see("p", "0/2 nodes are available")
    desk.wait(15)
    for name in ("them", "us", "them"):
        member = pod("p", scheduler="mine", refusal="0/2 nodes are available", woken_by=name)
        desk.hearing.pod_seen(member.uid, member)

    assert lines(caplog) == [("WARNING", "another extender acts on the same pods")]
    assert desk.metrics.registry.get_sample_value("gang_extender_other_extenders") == 1
    assert desk.news.notes() == [
        "scheduler mine: another extender (them) also acts on pods of scheduler name mine; stop"
        " one of the two, or run one as standby (--lease)"
    ]


def test_wake_ups_are_counted_and_waited_for(desk: Desk) -> None:
    desk.ask("before")
    desk.see("p", refusal="0/2 nodes are available: 2 InsufficientCapacity: no room")
    order = WakeOrder(uid=uid("p"), namespace="a", name="p", node="n1")
    desk.news.counted(desk)([order])
    desk.wait(21)

    assert desk.woken == [order]
    assert desk.metrics.registry.get_sample_value("gang_extender_wakes_total") == 1
    assert desk.value("gang_extender_pods_without_scheduler") == 1
