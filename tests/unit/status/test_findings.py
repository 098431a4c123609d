"""Findings are events and conditions for the administrator, without repetition."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest

from extender.findings.audit import Audit
from extender.findings.finding import Finding
from extender.model.queue import Namespace, Queue
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.sim.clock import VirtualClock
from extender.status.findings import AGAIN_S, SETTLE_S, Findings
from tests.builders import NOW, node, snapshot
from tests.doubles import RecordingAnnouncer

LOST = Queue(name="team", uid="q-1", parent="org")
ORG = Queue(name="org", uid="q-2")


class FindingsHarness:
    """Runs the audit and writes events as the reporting thread does."""

    def __init__(self, extra: Iterable[Finding] = ()) -> None:
        self.announcer, self.clock = RecordingAnnouncer(), VirtualClock()
        audit = Audit()
        self.findings = Findings(lambda seen: (*audit(seen), *extra), self.announcer, self.clock)

    def run_audit(self, seen: Snapshot, wait_s: float = 0.0) -> float:
        self.findings.update(seen, self.clock.monotonic())
        self.clock.advance(wait_s)
        return self.findings.write_due(self.clock.monotonic())


def test_a_finding_is_a_warning_on_its_queue_once_it_has_lasted_a_moment() -> None:
    harness = FindingsHarness()
    seen = snapshot([], queues=[LOST])

    assert harness.run_audit(seen) == harness.clock.monotonic() + SETTLE_S
    assert harness.announcer.notices == []
    harness.run_audit(seen, wait_s=SETTLE_S)

    (notice,) = harness.announcer.notices
    assert (notice.subject.kind, notice.subject.uid) == ("Queue", "q-1")
    assert (notice.reason, notice.warning, notice.at) == ("ParentMissing", True, NOW + SETTLE_S)
    assert notice.message.startswith("queue team is below queue org, which does not exist")


def test_queues_applied_child_first_cause_no_event() -> None:
    harness = FindingsHarness()
    harness.run_audit(snapshot([], queues=[LOST]), wait_s=SETTLE_S / 2)
    harness.run_audit(snapshot([], queues=[LOST, ORG]), wait_s=SETTLE_S)

    assert harness.announcer.notices == []
    assert harness.findings.current == ()


def test_a_failed_audit_is_logged_and_keeps_the_last_findings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(seen: Snapshot) -> tuple[Finding, ...]:
        if "fatal" in seen.queues:
            raise RecursionError("too deep")
        return ()

    findings = Findings(fails, RecordingAnnouncer(), VirtualClock())
    fatal = snapshot([], queues=[Queue(name="fatal")])
    findings.update(fatal, 0.0)
    findings.update(fatal, 0.0)

    assert findings.current == ()
    assert findings.write_due(0.0) == inf
    assert [each.getMessage() for each in caplog.records] == ["findings cannot be computed"]


def test_the_event_of_a_lasting_finding_is_repeated_after_an_hour_and_not_before() -> None:
    harness = FindingsHarness()
    harness.run_audit(snapshot([], queues=[LOST]), wait_s=SETTLE_S)
    harness.run_audit(snapshot([], queues=[LOST]), wait_s=AGAIN_S - 1)
    assert len(harness.announcer.notices) == 1

    harness.run_audit(snapshot([], queues=[LOST]), wait_s=1)
    assert len(harness.announcer.notices) == 2


def test_a_finding_that_returns_has_an_event_again() -> None:
    harness = FindingsHarness()
    for queues in ([LOST], [LOST, ORG], [LOST]):
        harness.run_audit(snapshot([], queues=queues), wait_s=SETTLE_S)

    assert [notice.reason for notice in harness.announcer.notices] == ["ParentMissing"] * 2


def test_changed_figures_in_a_finding_cause_no_event() -> None:
    harness = FindingsHarness()
    for cpu in (9, 10):
        greedy = Queue(name="a", uid="q", guarantee=Resources.parse({"cpu": cpu}))
        harness.run_audit(snapshot([node("n0", cpu=3)], queues=[greedy]), wait_s=SETTLE_S)

    assert [notice.reason for notice in harness.announcer.notices] == ["GuaranteesAboveCluster"]
    assert harness.findings.current is not None
    assert "guaranteed 10 cpu" in harness.findings.current[0].message


def test_a_finding_about_a_namespace_is_an_event_on_the_namespace() -> None:
    harness = FindingsHarness([Finding("Namespace", "a", "UnknownQueue", "mend it")])
    seen = snapshot([], queues=[])
    named = Snapshot(
        generation=1,
        now=NOW,
        nodes=seen.nodes,
        namespaces={"a": Namespace(name="a", uid="n-1")},
    )
    harness.run_audit(named, wait_s=SETTLE_S)

    (notice,) = harness.announcer.notices
    assert (notice.subject.kind, notice.subject.name, notice.subject.uid) == (
        "Namespace",
        "a",
        "n-1",
    )


def test_a_finding_about_an_object_that_does_not_exist_has_no_event() -> None:
    harness = FindingsHarness()
    harness.run_audit(
        snapshot([], queues=[Queue(name="implied", parent="nowhere")]), wait_s=SETTLE_S
    )

    assert harness.announcer.notices == []
    assert harness.findings.current is not None
    assert len(harness.findings.current) == 1


def test_the_audit_runs_again_only_when_something_it_depends_on_has_changed() -> None:
    audit, first = Audit(), snapshot([], queues=[LOST])
    again = Snapshot(generation=2, now=NOW + 1, nodes=first.nodes, queues=first.queues)
    again_named = Snapshot(
        generation=2, now=NOW, nodes=first.nodes, queues=first.queues, namespaces=first.namespaces
    )

    found = audit(first)

    assert audit(again_named) is found
    assert audit(again) == found
    assert audit(snapshot([], queues=[LOST, ORG])) == ()
