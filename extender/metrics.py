"""Every series we expose, in one place; docs/operations.md explains each."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.context_managers import Timer

_HOOK_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2)
_WAIT_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_HOLD_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 45)


class Metrics:
    """The series of one running extender; a registry of their own lets tests have many."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.hook_seconds = Histogram(
            "gang_extender_hook_seconds",
            "Time spent answering a hook, holds not counted.",
            ["verb"],
            buckets=_HOOK_SECONDS,
            registry=registry,
        )
        self.hook_answers = Counter(
            "gang_extender_hook_answers_total",
            "Answers by verb and outcome: passed, steered, error, or the reason of a refusal.",
            ["verb", "outcome"],
            registry=registry,
        )
        self.holds = Gauge(
            "gang_extender_holds", "Bind calls that wait for their gang.", registry=registry
        )
        self.hold_seconds = Histogram(
            "gang_extender_hold_seconds",
            "How long binds waited, by what ended the wait.",
            ["cause"],
            buckets=_HOLD_SECONDS,
            registry=registry,
        )
        self.partial_commits = Counter(
            "gang_extender_partial_commits_total",
            "Gangs that ended short of minMember after their binds went out.",
            registry=registry,
        )
        self.peer_closes = Counter(
            "gang_extender_peer_closes_total",
            "Held binds whose caller went away first.",
            registry=registry,
        )
        self.learnt_timeout = Gauge(
            "gang_extender_hold_learnt_timeout_seconds",
            "When kube-scheduler really gives up binds, if that is sooner than configured; else 0.",
            registry=registry,
        )
        self.wakes = Counter(
            "gang_extender_wakes_total", "Wake-ups ordered for parked pods.", registry=registry
        )
        self.cycle_seconds = Histogram(
            "gang_extender_cycle_seconds",
            "Duration of one cycle by step: snapshot, plan, publish.",
            ["step"],
            buckets=_HOOK_SECONDS,
            registry=registry,
        )
        self.policy_refused = Gauge(
            "gang_extender_policy_refused",
            "1 while the policy file cannot be used and the last good one is in force.",
            registry=registry,
        )
        self.ready = Gauge(
            "gang_extender_ready", "1 while the mirror can be trusted.", registry=registry
        )
        self.action_seconds = Histogram(
            "gang_extender_action_seconds",
            "Duration of one action of a cycle: enqueue, allocate, backfill, reclaim, preempt.",
            ["action"],
            buckets=_HOOK_SECONDS,
            registry=registry,
        )
        self.evictions = Counter(
            "gang_extender_evictions_total",
            "Victims by action (reclaim, preempt) and outcome: evicted, blocked, failed, refused"
            " by a check of ours, dry-run.",
            ["action", "outcome"],
            registry=registry,
        )
        self.admission_seconds = Histogram(
            "gang_extender_admission_seconds",
            "How long gangs waited until they were admitted, by queue.",
            ["queue"],
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        self.status_writes = Counter(
            "gang_extender_status_writes_total",
            "Writes of status and events by kind (PodGroup, Queue, Event) and outcome.",
            ["kind", "outcome"],
            registry=registry,
        )

    def time_action(self, action: str) -> Timer:
        """Time what runs inside as one action of a cycle."""
        return self.action_seconds.labels(action).time()

    def forget_queue(self, name: str) -> None:
        """Drop the series of a queue that is gone, so that their number stays bounded."""
        with suppress(KeyError):
            self.admission_seconds.remove(name)
