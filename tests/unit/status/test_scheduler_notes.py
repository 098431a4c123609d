"""Missing kube-scheduler calls: one log line, and series and notes while it lasts."""

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


class NotesHarness:
    """Watches the schedulers `mine` and `other`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.liveness = SchedulerLiveness(("mine", "other"), self.clock, me="us")
        self.notes = SchedulerNotes(self.liveness, self.metrics, self.clock)
        self.liveness.on_change(self.notes.liveness_changed)
        self.woken: list[WakeOrder] = []
        self.liveness.update()

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        self.woken.extend(orders)

    def see(self, name: str, refusal: str = "") -> None:
        member = pod(name, scheduler="mine", refusal=refusal)
        self.liveness.pod_seen(member.uid, member)

    def ask(self, name: str) -> None:
        self.liveness.hook_called(pod(name, scheduler="mine"))

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.liveness.update()

    def value(self, name: str, scheduler: str = "mine") -> float | None:
        return self.metrics.registry.get_sample_value(name, {"scheduler": scheduler})


@pytest.fixture
def harness() -> NotesHarness:
    return NotesHarness()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records]


def test_the_last_call_has_a_timestamp_for_each_of_our_scheduler_names(
    harness: NotesHarness,
) -> None:
    name = "gang_extender_last_hook_timestamp_seconds"
    assert (harness.value(name), harness.value(name, "other")) == (0, 0)

    harness.ask("p")

    assert (harness.value(name), harness.value(name, "other")) == (harness.clock.now(), 0)


def test_names_of_other_schedulers_have_no_series(harness: NotesHarness) -> None:
    harness.liveness.hook_called(pod("p", scheduler="made-up-by-a-tenant"))

    assert harness.value("gang_extender_pods_without_scheduler", "made-up-by-a-tenant") is None


def test_missing_calls_are_logged_once_and_so_is_their_end(
    harness: NotesHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.ask("before")
    harness.see("p")
    for _ in range(30):
        harness.wait(10)
    assert lines(caplog) == [("WARNING", "kube-scheduler does not call")]
    assert caplog.records[0].facts["pods"] == 1  # type: ignore[attr-defined]
    assert harness.value("gang_extender_pods_without_scheduler") == 1
    assert harness.notes.notes() == [
        "scheduler mine: no kube-scheduler has called for pods of scheduler name mine for 5 min: is"
        " it running, and does a profile have that name?"
    ]

    harness.ask("p")

    assert lines(caplog)[1:] == [("INFO", "kube-scheduler calls again")]
    assert harness.value("gang_extender_pods_without_scheduler") == 0
    assert harness.notes.notes() == []


def test_the_first_call_ever_is_not_logged(
    harness: NotesHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.see("p")
    harness.ask("p")

    assert lines(caplog) == []


def test_calls_through_another_extender_are_logged_once_and_counted(
    harness: NotesHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.ask("p")
    harness.see("p", "0/2 nodes are available")
    harness.wait(15)
    for name in ("them", "us", "them"):
        member = pod("p", scheduler="mine", refusal="0/2 nodes are available", woken_by=name)
        harness.liveness.pod_seen(member.uid, member)

    assert lines(caplog) == [("WARNING", "another extender acts on the same pods")]
    assert harness.metrics.registry.get_sample_value("gang_extender_other_extenders") == 1
    assert harness.notes.notes() == [
        "scheduler mine: another extender (them) also acts on pods of scheduler name mine; stop"
        " one of the two, or run one as standby (--lease)"
    ]


def test_wake_ups_are_counted_and_waited_for(harness: NotesHarness) -> None:
    harness.ask("before")
    harness.see("p", refusal="0/2 nodes are available: 2 InsufficientCapacity: no room")
    order = WakeOrder(uid=uid("p"), namespace="a", name="p", node="n1")
    harness.notes.counted(harness)([order])
    harness.wait(21)

    assert harness.woken == [order]
    assert harness.metrics.registry.get_sample_value("gang_extender_wakes_total") == 1
    assert harness.value("gang_extender_pods_without_scheduler") == 1
