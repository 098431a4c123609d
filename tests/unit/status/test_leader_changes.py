"""Reports across changes of leader, and with late responses."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from extender.errors import NotLeader
from extender.kube.client import PER_S
from extender.model.gang import Gang, Phase
from extender.model.pod import Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.planner.plan import QueueFigures, Verdict
from extender.ports import ObjectReference
from extender.status.findings import AGAIN_S
from tests.builders import NOW
from tests.doubles import RecordingWriter
from tests.scene import gang, plan, snapshot, verdict
from tests.series import labels, value
from tests.unit.status.test_reporter import (
    BEHIND,
    NEW,
    NO_ROOM,
    RUNNING,
    RUNS,
    WAITS,
    ReporterHarness,
)

HOUR_S = 3600.0


class SlowWriter(RecordingWriter):
    """Writes at once, and returns the response when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.unanswered: list[tuple[Future[Any], Future[Any]]] = []

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        done = super().write(subject, status)
        if not self.is_slow:
            return done
        later: Future[Any] = Future()
        self.unanswered.append((later, done))
        return later

    def answer(self) -> None:
        for later, done in self.unanswered:
            later.set_result(done.result())
        self.unanswered, self.is_slow = [], False


def test_a_reason_that_changes_during_a_write_is_reported_afterwards() -> None:
    writer = SlowWriter()
    harness = ReporterHarness(writer=writer)
    harness.report((WAITS, NO_ROOM), wait_s=2)
    writer.is_slow = True
    harness.report((WAITS, BEHIND), wait_s=2)
    harness.report((WAITS, NO_ROOM), wait_s=2)
    writer.answer()
    harness.settle(5)

    assert harness.reasons() == ["InsufficientCapacity", "BehindInOrder", "InsufficientCapacity"]


def test_a_standby_that_takes_over_repeats_no_report_of_the_earlier_leader() -> None:
    leader, standby = ReporterHarness(), ReporterHarness()
    leader.report((WAITS, NO_ROOM), wait_s=2)
    standby.writer.statuses = leader.writer.statuses
    standby.clock.advance(HOUR_S)
    runs = gang("other", 2, created=NEW, phase=Phase.RUNNING)
    standby.report((WAITS, NO_ROOM), (runs, verdict("a/other")), wait_s=5)

    assert [each.name for each in standby.writer.reads] == ["train"]
    assert standby.writer.writes == []
    assert standby.announcer.notices == []


def test_a_wait_keeps_its_start_when_another_leader_takes_over() -> None:
    leader, standby = ReporterHarness(), ReporterHarness()
    leader.report((WAITS, NO_ROOM), wait_s=2)
    standby.writer.statuses = leader.writer.statuses
    (before,) = leader.writer.of("train")
    standby.clock.advance(HOUR_S)
    standby.report((WAITS, BEHIND), wait_s=5)

    (after,) = standby.writer.of("train")
    assert after["conditions"][0]["reason"] == "BehindInOrder"
    assert _since(after) == _since(before)


def test_a_status_written_by_another_leader_is_not_taken_for_an_earlier_write_of_ours() -> None:
    harness, other = ReporterHarness(), ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=2)
    harness.history.forget()
    other.writer.statuses = harness.writer.statuses
    other.clock.advance(60)
    other.report((RUNS, RUNNING), wait_s=5)
    harness.clock.advance(120)
    harness.report((WAITS, NO_ROOM), wait_s=5)

    assert (
        harness.writer.statuses[WAITS.group.uid]["conditions"][0]["reason"]
        == "InsufficientCapacity"
    )
    assert harness.reasons() == ["InsufficientCapacity", "InsufficientCapacity"]


def test_no_status_is_written_after_the_lease_ends() -> None:
    harness = ReporterHarness()
    harness.writer.failures = [NotLeader("we do not lead")] * 100
    harness.report((WAITS, NO_ROOM), wait_s=2)
    tried = 100 - len(harness.writer.failures)
    harness.history.forget()
    harness.settle(120)
    assert 100 - len(harness.writer.failures) == tried

    harness.writer.failures.clear()  # a lease starts, and there is no plan yet
    harness.settle(120)
    assert harness.writer.writes == []


def test_no_finding_is_reported_after_the_lease_ends() -> None:
    harness = ReporterHarness()
    lost = Queue(name="team", uid="q-1", parent="org")
    harness.reporter.report(snapshot(queues=[lost], now=harness.clock.now()), plan())
    harness.settle(5)
    assert harness.announcer.said() == [("team", "ParentMissing")]

    harness.history.forget()
    harness.clock.advance(AGAIN_S)
    harness.settle(5)
    assert harness.announcer.said() == [("team", "ParentMissing")]
    assert harness.findings.current is None


def test_the_series_of_a_queue_without_an_object_are_dropped_with_it() -> None:
    harness = ReporterHarness()
    waits = gang("train", 2, status=Status.PENDING, created=NOW)
    for name in ("ci-1", "ci-2"):
        implicit = {name: QueueFigures(name=name, weight=1)}
        admitted = verdict("a/train", Reason.ADMITTED, queue=name)
        harness.report(
            (waits, verdict("a/train", Reason.INSUFFICIENT_CAPACITY, queue=name)),
            wait_s=1,
            queues=implicit,
        )
        harness.report((waits, admitted), wait_s=1, queues=implicit)

    assert labels(harness.metrics, "admission_seconds_count") == [{"queue": "ci-2"}]


def _since(status: Mapping[str, Any]) -> str:
    return str(status["conditions"][0]["lastTransitionTime"])


def test_an_invalid_response_does_not_stop_other_status_writes() -> None:
    harness = ReporterHarness()
    harness.writer.failures = [ValueError("no JSON")] * 3
    other = gang("other", 1, status=Status.PENDING, created=NEW)
    harness.report(
        (WAITS, NO_ROOM), (other, verdict("a/other", Reason.INSUFFICIENT_CAPACITY)), wait_s=30
    )

    assert {each.name for each, _ in harness.writer.writes} == {"train", "other"}
    assert value(harness.metrics, "status_writes_total", kind="PodGroup", outcome="failed") == 3


class PacedWriter(RecordingWriter):
    """Writes in order, at the rate limit for the API server."""

    def __init__(self) -> None:
        super().__init__()
        self.line: list[tuple[Future[Any], ObjectReference, Mapping[str, Any]]] = []

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        later: Future[Any] = Future()
        self.line.append((later, subject, status))
        return later

    def serve(self, most: float) -> None:
        for later, subject, status in self.line[: round(most)]:
            later.set_result(super().write(subject, status).result())
        del self.line[: round(most)]


def test_a_changed_reason_is_not_queued_behind_details_of_thousands_of_waiting_gangs() -> None:
    writer = PacedWriter()
    harness = ReporterHarness(writer=writer)
    many = [gang(f"job-{each}", 1, status=Status.PENDING, created=NEW) for each in range(150)]

    def told(message: str) -> list[tuple[Gang, Verdict]]:
        return [
            (each, verdict(each.key, Reason.INSUFFICIENT_CAPACITY, message=message))
            for each in many
        ]

    harness.report(*told("1 slot is free"), wait_s=1)
    writer.serve(150)
    harness.clock.advance(5)
    harness.report(*told("2 slots are free"), wait_s=1)
    harness.report(*told("2 slots are free"), (WAITS, NO_ROOM), wait_s=1)
    for _ in range(40):
        writer.serve(PER_S / 20)
        harness.settle(0.05)

    assert [status["phase"] for status in writer.of("train")] == ["Inqueue"]
    # The details are written afterwards.
    for _ in range(300):
        writer.serve(PER_S / 20)
        harness.settle(0.05)
    last = {subject.name: status for subject, status in writer.writes}
    messages = {status["conditions"][0]["message"] for status in last.values()}
    assert messages == {NO_ROOM.message, "2 slots are free"}
