"""Log lines, series and notes about schedulers, waiting binds and refused namespaces."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from extender.cache.changes import Upsert
from extender.cache.cluster import Cluster
from extender.liveness import SchedulerLiveness
from extender.metrics import Metrics
from extender.model.gang import GangKey, PodGroup
from extender.ports import WakeOrder
from extender.sim.clock import VirtualClock
from extender.status.notes import (
    LOUD,
    MINUTE_S,
    MOST_SHOWN,
    PARTIALLY_BOUND,
    SHOWN,
    BindNotes,
    RefusedNamespaces,
    SchedulerNotes,
)
from tests.builders import pod, uid
from tests.doubles import RecordingAnnouncer
from tests.series import value


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


GROUP = PodGroup(namespace="team", name="train", min_member=2, uid="g-1", dialect="volcano")


def bind_notes() -> tuple[BindNotes, Metrics, RecordingAnnouncer]:
    clock = VirtualClock()
    cluster, metrics, events = Cluster(clock), Metrics(), RecordingAnnouncer()
    cluster.apply(Upsert(GROUP))
    return BindNotes(metrics, cluster, events, clock, bind_timeout_s=45), metrics, events


def test_a_partly_bound_gang_is_counted_and_has_an_event_on_its_podgroup() -> None:
    notes, metrics, events = bind_notes()
    notes.partial_commit(GROUP.key)
    notes.partial_commit(GangKey("team/gone"))

    assert value(metrics, "partial_commits_total") == 2
    (notice,) = events.notices
    assert (notice.subject.name, notice.reason, notice.warning) == ("train", PARTIALLY_BOUND, True)


def test_a_learned_timeout_has_a_series_until_it_is_forgotten() -> None:
    notes, metrics, _ = bind_notes()
    notes.learnt_timeout(5.0)
    assert value(metrics, "learned_bind_timeout_seconds") == 5.0
    assert notes.notes() == [
        "binds: kube-scheduler gives up after 5 s; set httpTimeout of its bind entry to 45s"
    ]
    notes.learnt_timeout(None)

    assert value(metrics, "learned_bind_timeout_seconds") == 0.0
    assert notes.notes() == []


class NamespacesHarness:
    """Counted refusals with a clock that the test sets."""

    def __init__(self, **limits: int) -> None:
        self.metrics = Metrics()
        self.namespaces = RefusedNamespaces(self.metrics, **limits)
        self.now = 1000.0

    def refuse(self, namespace: str, times: int = 1) -> None:
        for _ in range(times):
            gang = GangKey(f"{namespace}/train")
            self.namespaces.refused(namespace, gang, "InsufficientCapacity", self.now)

    def value(self, namespace: str) -> float | None:
        name = "gang_extender_namespace_refusals_total"
        return self.metrics.registry.get_sample_value(name, {"namespace": namespace})


def test_a_namespace_has_a_series_after_many_refusals() -> None:
    harness = NamespacesHarness()
    harness.refuse("quiet", SHOWN - 1)
    harness.refuse("busy", SHOWN + 5)

    assert (harness.value("quiet"), harness.value("busy")) == (None, SHOWN + 5)


def test_the_number_of_namespaces_with_series_is_limited_and_includes_the_busiest() -> None:
    harness = NamespacesHarness()
    for number in range(MOST_SHOWN):
        harness.refuse(f"n{number}", SHOWN + number + 1)
    harness.refuse("one-more", SHOWN)
    assert harness.value("one-more") is None

    harness.refuse("one-more", 2)

    assert (harness.value("one-more"), harness.value("n0")) == (SHOWN + 2, None)


def test_unlimited_namespaces_are_forgotten_except_the_busiest() -> None:
    harness = NamespacesHarness(most_counted=20)
    harness.refuse("busy", SHOWN - 1)
    for number in range(1000):
        harness.refuse(f"made-up-{number}")
        assert len(harness.namespaces) <= 20
    harness.refuse("busy")

    assert harness.value("busy") == SHOWN


def test_the_namespaces_refused_most_often_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = NamespacesHarness()
    with caplog.at_level(logging.WARNING):
        harness.refuse("busy", LOUD)
        harness.refuse("quiet", LOUD - 1)
        assert caplog.records == []
        harness.now += MINUTE_S
        harness.refuse("quiet")

    (record,) = caplog.records
    assert getattr(record, "facts") == {  # noqa: B009 - set by our own logging
        "namespace": "busy",
        "refused": LOUD,
        "gang": "busy/train",
        "reason": "InsufficientCapacity",
    }


def test_a_minute_with_few_refusals_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    harness = NamespacesHarness()
    for _ in range(5):
        harness.refuse("quiet", LOUD - 1)
        harness.now += MINUTE_S

    assert caplog.records == []
