"""Status, events and metrics of a planning cycle, with few writes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from extender.errors import ApiError, NamespaceTerminating
from extender.findings.audit import Audit
from extender.metrics import Metrics
from extender.model.gang import Gang, Phase
from extender.model.pod import PLACEHOLDER, PodUid, Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import QueueFigures, Verdict
from extender.ports import ObjectReference
from extender.sim.clock import VirtualClock
from extender.status.findings import Findings
from extender.status.history import GangHistory
from extender.status.reporter import Reporter
from tests.builders import NOW, pod
from tests.doubles import RecordingAnnouncer, RecordingWriter
from tests.scene import gang, plan, snapshot, verdict
from tests.series import labels, value

NEW = NOW + 1  # created after the start of the process, so that no status needs to be read
WAITS = gang("train", 2, status=Status.PENDING, created=NEW)
RUNS = gang("train", 2, created=NEW)
NO_ROOM = verdict(
    "a/train", Reason.INSUFFICIENT_CAPACITY, message="needs 2 x 1 cpu; 1 slot is free"
)
BEHIND = verdict("a/train", Reason.BEHIND_IN_ORDER, message="a/other goes first")
RUNNING = verdict("a/train")


@dataclass
class ReporterHarness:
    """A reporter that runs in the thread of the test."""

    writer: RecordingWriter = field(default_factory=RecordingWriter)
    announcer: RecordingAnnouncer = field(default_factory=RecordingAnnouncer)
    clock: VirtualClock = field(default_factory=VirtualClock)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.history = GangHistory()
        self.findings = Findings(Audit(), self.announcer, self.clock)
        self.reporter = Reporter(
            writer=self.writer,
            events=self.announcer,
            history=self.history,
            findings=self.findings,
            metrics=self.metrics,
            clock=self.clock,
        )

    def report(self, *said: tuple[Gang, Verdict], wait_s: float = 0.0, **rest: Any) -> None:
        """Report a cycle and advance the time in steps as small as the thread's."""
        seen = snapshot(*(each for each, _ in said), now=self.clock.now())
        self.reporter.report(seen, plan(*(each for _, each in said), **rest))
        self.settle(wait_s)

    def settle(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        self.reporter.work()
        while self.clock.now() < end:
            self.clock.advance(0.05)
            self.reporter.work()

    def reasons(self) -> list[str]:
        return [status["conditions"][0]["reason"] for status in self.writer.of("train")]


def test_a_waiting_gang_has_its_reason_in_status_and_event_within_a_second() -> None:
    harness = ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=0.9)

    assert [status["phase"] for status in harness.writer.of("train")] == ["Inqueue"]
    assert harness.writer.of("train")[0]["conditions"][0]["message"] == NO_ROOM.message
    assert harness.announcer.said() == [("train", "InsufficientCapacity")]
    assert harness.announcer.notices[0].message == NO_ROOM.message


def test_nothing_is_written_while_nothing_changes() -> None:
    harness = ReporterHarness()
    for _ in range(50):
        harness.report((WAITS, replace(NO_ROOM)), wait_s=1)

    assert len(harness.writer.writes) == 1
    assert len(harness.announcer.notices) == 1


def test_a_gang_that_starts_at_once_costs_one_write_and_no_event() -> None:
    harness = ReporterHarness()
    harness.report((WAITS, verdict("a/train", Reason.NOT_ENOUGH_MEMBERS)), wait_s=0.2)
    harness.report((WAITS, verdict("a/train", Reason.ADMITTED)), wait_s=0.1)
    bound = gang("train", 2, status=Status.BOUND, created=NEW)
    harness.report((bound, RUNNING), wait_s=0.3)
    harness.report(
        (
            gang("train", [pod("x", on="n"), pod("y", on="n", status=Status.BOUND)], created=NEW),
            RUNNING,
        ),
        wait_s=0.2,
    )
    harness.report((RUNS, RUNNING), wait_s=5)

    assert [(status["phase"], status["running"]) for status in harness.writer.of("train")] == [
        ("Running", 2)
    ]
    assert harness.announcer.notices == []


def test_a_field_without_effect_has_one_event_unless_its_group_is_older_than_the_process() -> None:
    harness = ReporterHarness()
    for created in (NOW - 1, NEW):
        group = replace(RUNS.group, remark="it does nothing here", created=created)
        wishful = Gang(group=replace(group, uid=f"created-{created}"), pods=RUNS.pods)
        for _ in range(3):
            harness.report((wishful, RUNNING), wait_s=2)

    (notice,) = harness.announcer.notices
    assert (notice.reason, notice.message, notice.warning, notice.subject.uid) == (
        "IgnoredField",
        "it does nothing here",
        True,
        f"created-{NEW}",
    )


def test_every_change_of_reason_has_one_event() -> None:
    harness = ReporterHarness()
    for said in (NO_ROOM, BEHIND, BEHIND, NO_ROOM):
        harness.report((WAITS, said), wait_s=2)

    assert harness.reasons() == ["InsufficientCapacity", "BehindInOrder", "InsufficientCapacity"]
    assert [word for _, word in harness.announcer.said()] == harness.reasons()


def test_the_end_of_a_long_wait_has_an_event() -> None:
    harness = ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=42)
    harness.report((RUNS, RUNNING), wait_s=3)

    assert harness.announcer.said() == [("train", "InsufficientCapacity"), ("train", "Running")]
    assert harness.announcer.notices[1].message.startswith("runs after waiting 4")


def test_a_wait_that_an_earlier_process_reported_counts_from_its_start() -> None:
    before, after = ReporterHarness(), ReporterHarness()
    before.report((WAITS, NO_ROOM), wait_s=2)
    after.writer.statuses = before.writer.statuses
    old = gang("train", 2, status=Status.PENDING, created=NOW - 100)
    after.report((old, NO_ROOM), wait_s=5)
    after.report((replace(RUNS, group=old.group), RUNNING), wait_s=3)

    assert [each.message for each in after.announcer.notices] == ["runs after waiting 106 s"]


def test_the_end_of_a_wait_that_was_not_observed_has_an_event_without_its_length() -> None:
    before, after = ReporterHarness(), ReporterHarness()
    before.report((WAITS, NO_ROOM), wait_s=2)
    after.writer.statuses = before.writer.statuses
    after.report((gang("train", 2, created=NOW - 100), RUNNING), wait_s=5)

    assert [each.message for each in after.announcer.notices] == ["runs"]


def test_a_gang_that_ends_stays_scheduled_without_an_event() -> None:
    harness = ReporterHarness()
    harness.report((RUNS, RUNNING), wait_s=3)
    over = verdict("a/train", Reason.COMPLETED, phase=Phase.COMPLETED)
    harness.report((gang("train", 2, created=NEW, status=Status.SUCCEEDED), over), wait_s=8)

    status = harness.writer.of("train")[-1]
    assert (status["phase"], status["running"], status["succeeded"]) == ("Completed", 0, 2)
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Unschedulable", "False"),
        ("Scheduled", "True"),
    ]
    assert harness.announcer.notices == []


def test_a_gang_has_a_log_line_for_every_transition(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "extender.status.reporter")
    harness = ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=4)
    harness.report((WAITS, verdict("a/train", Reason.ADMITTED)), wait_s=3)
    assert harness.announcer.said() == [("train", "InsufficientCapacity")]
    harness.report((RUNS, RUNNING), wait_s=3)
    harness.report()

    told = [(each.message, each.facts) for each in caplog.records]  # type: ignore[attr-defined]
    lasted = [round(facts.get("waited_s", facts.get("ran_s"))) for _, facts in told]
    assert [*zip([sentence for sentence, _ in told], lasted, strict=True)] == [
        ("gang admitted", 4),
        ("gang started", 7),
        ("gang ended", 3),
    ]
    assert all(facts["gang"] == "a/train" and facts["queue"] == "left" for _, facts in told)


def test_the_end_of_a_short_wait_has_no_event() -> None:
    harness = ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=2)
    harness.report((RUNS, RUNNING), wait_s=3)

    assert harness.announcer.said() == [("train", "InsufficientCapacity")]
    assert harness.reasons() == ["InsufficientCapacity", "Running"]


def test_events_of_a_gang_without_a_pod_group_are_on_its_first_pod() -> None:
    harness = ReporterHarness()
    bare = gang("train", 2, status=Status.PENDING, dialect="")
    missing = verdict("a/train", Reason.POD_GROUP_MISSING)
    harness.report((bare, missing), wait_s=2)

    assert harness.writer.writes == []
    assert harness.announcer.said() == [("train-0", "PodGroupMissing")]
    assert harness.announcer.notices[0].warning


def test_a_pod_group_without_pods_has_a_status_but_no_event() -> None:
    harness = ReporterHarness()
    missing = verdict("a/train", Reason.NOT_ENOUGH_MEMBERS, message="has 0 of 2")
    harness.report((gang("train", 0, min_member=2, created=NEW), missing), wait_s=2)
    assert harness.reasons() == ["NotEnoughMembers"]
    assert harness.announcer.notices == []

    one = gang("train", 1, min_member=2, status=Status.PENDING, created=NEW)
    harness.report((one, replace(missing, message="has 1 of 2")), wait_s=2)

    assert [notice.message for notice in harness.announcer.notices] == ["has 1 of 2"]


def test_a_gang_created_in_an_old_group_costs_one_more_write_and_no_event() -> None:
    harness = ReporterHarness()
    missing = verdict("a/train", Reason.NOT_ENOUGH_MEMBERS, message="has 0 of 2")
    harness.report((gang("train", 0, min_member=2, created=NEW), missing), wait_s=60)
    place = replace(
        pod("to-come", on="n", status=Status.ALLOCATED), uid=PodUid(f"{PLACEHOLDER}a/train:0")
    )
    arriving = gang(
        "train", [pod("x", on="n", status=Status.ALLOCATED), place], min_member=2, created=NEW
    )

    harness.report((arriving, replace(missing, message="has 1 of 2")), wait_s=0.3)
    harness.report((RUNS, RUNNING), wait_s=5)

    assert harness.reasons() == ["NotEnoughMembers", "Running"]
    assert harness.announcer.notices == []


def test_pods_without_a_gang_have_only_the_events_of_kube_scheduler() -> None:
    harness = ReporterHarness()
    single = gang("pod:web", 1, status=Status.PENDING, dialect="")
    harness.report((single, verdict("a/pod:web", Reason.INSUFFICIENT_CAPACITY)), wait_s=2)

    assert harness.announcer.notices == []


def test_a_failed_status_write_is_retried() -> None:
    harness = ReporterHarness()
    harness.writer.failures = [ApiError("busy", status=503)]
    harness.report((WAITS, NO_ROOM), wait_s=5)

    assert harness.reasons() == ["InsufficientCapacity"]
    assert value(harness.metrics, "status_writes_total", kind="PodGroup", outcome="failed") == 1


def test_a_failed_status_write_in_a_terminating_namespace_is_not_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = ReporterHarness()
    harness.writer.failures = [NamespaceTerminating("it is being terminated", status=403)]
    harness.report((WAITS, NO_ROOM), wait_s=1)

    assert value(harness.metrics, "status_writes_total", kind="PodGroup", outcome="gone") == 1
    assert caplog.records == []


def test_a_pod_group_recreated_under_its_old_name_gets_its_own_status() -> None:
    harness = ReporterHarness()
    harness.report((WAITS, NO_ROOM), wait_s=2)
    again = Gang(group=replace(WAITS.group, uid="another"), pods=WAITS.pods, queue="left")
    harness.report((again, NO_ROOM), wait_s=2)

    assert [subject.uid for subject, _ in harness.writer.writes] == ["uid-group-train", "another"]


def figures(cpu: int) -> QueueFigures:
    return QueueFigures(name="left", weight=1, allocated=Resources({"cpu": cpu}))


def test_a_queue_is_written_as_open_once_and_then_only_its_figures_change() -> None:
    harness = ReporterHarness()
    for cpu in (1000, 2000):
        harness.report(queues={"left": figures(cpu)}, wait_s=3)

    said = harness.writer.of("left")
    assert [status.get("state") for status in said] == ["Open", None]
    assert [status["allocated"] for status in said] == [{"cpu": "1"}, {"cpu": "2"}]


def test_a_queue_that_becomes_empty_keeps_no_amounts_of_before() -> None:
    harness = ReporterHarness()
    used = Resources({"cpu": 1000, "memory": 2**30})
    harness.writer.statuses["q-l"] = {"deserved": {"nvidia.com/gpu": "8"}}
    harness.report(queues={"left": replace(figures(0), allocated=used)}, wait_s=3)
    for _ in range(20):
        harness.report(queues={"left": replace(figures(0), allocated=Resources({}))}, wait_s=5)

    there = harness.writer.statuses["q-l"]
    assert (there["allocated"], there["deserved"]) == ({}, {})
    assert len(harness.writer.of("left")) == 2


class DroppingWriter(RecordingWriter):
    """An API server with Volcano's own Queue CRD, which drops some fields."""

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        answer = super().write(subject, status)
        for dropped in ("conditions", "deserved", "share"):
            self.statuses[subject.uid].pop(dropped, None)
        return answer


def test_fields_that_a_crd_drops_are_not_written_repeatedly() -> None:
    harness = ReporterHarness(writer=DroppingWriter())
    for _ in range(20):
        harness.report(queues={"left": figures(1000)}, wait_s=5)

    assert len(harness.writer.of("left")) == 1
    assert "conditions" not in harness.writer.statuses["q-l"]


def test_a_queue_shows_when_it_becomes_invalid_and_when_it_is_valid_again() -> None:
    harness = ReporterHarness()
    lost, org = Queue(name="left", uid="q-l", parent="org"), Queue(name="org", uid="q-o")
    for queues in ([lost], [lost, org]):
        seen = snapshot(queues=queues, now=harness.clock.now())
        harness.reporter.report(seen, plan(queues={"left": figures(1000)}))
        harness.settle(3)

    said = [status["conditions"][0] for status in harness.writer.of("left")]
    assert [(each["status"], each["reason"]) for each in said] == [
        ("False", "ParentMissing"),
        ("True", "NoFindings"),
    ]
    assert harness.announcer.said() == [("left", "ParentMissing")]


def test_a_closed_queue_is_never_reopened() -> None:
    harness = ReporterHarness()
    harness.writer.statuses["q-l"] = {"state": "Closed"}
    harness.report(queues={"left": figures(1000)}, wait_s=3)

    assert harness.writer.statuses["q-l"]["state"] == "Closed"


def test_a_queue_that_is_closed_while_it_is_written_as_open_stays_closed() -> None:
    harness = ReporterHarness()
    harness.writer.overtaken["q-l"] = {"state": "Closed"}
    harness.report(queues={"left": figures(1000)}, wait_s=9)

    assert harness.writer.statuses["q-l"]["state"] == "Closed"
    assert harness.writer.statuses["q-l"]["allocated"] == {"cpu": "1"}


def test_the_time_to_admission_is_observed_once_per_wait() -> None:
    harness = ReporterHarness()
    waits = gang("train", 2, status=Status.PENDING, created=NOW)
    queues = {"left": figures(1)}
    harness.report((waits, NO_ROOM), wait_s=30, queues=queues)
    for said in (verdict("a/train", Reason.ADMITTED), RUNNING):
        harness.report((waits, said), queues=queues)
    harness.report((gang("pod:web", 1, dialect=""), verdict("a/pod:web")), queues=queues)

    observed_s = value(harness.metrics, "admission_seconds_sum", queue="left")
    assert observed_s == pytest.approx(30)
    assert value(harness.metrics, "admission_seconds_count", queue="left") == 1


def test_the_series_of_a_queue_that_is_gone_are_dropped() -> None:
    harness = ReporterHarness()
    harness.metrics.admission_seconds.labels("left").observe(1)
    harness.report(queues={"left": figures(1)}, wait_s=1)
    seen = snapshot(queues=[Queue(name="right", uid="q-r")], now=harness.clock.now())
    harness.reporter.report(seen, plan())
    harness.settle(1)

    assert not labels(harness.metrics, "admission_seconds_count")


def test_the_reporter_runs_in_its_own_thread() -> None:
    harness, before = ReporterHarness(), set(threading.enumerate())
    harness.reporter.start()
    (thread,) = (each for each in {*threading.enumerate()} - before if each.name == "report")
    harness.reporter.stop()

    assert not thread.is_alive()
