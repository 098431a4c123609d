"""Every series we count ourselves, each with its meaning, which docs/operations.md prints too."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.context_managers import Timer
from prometheus_client.metrics import MetricWrapperBase

from extender import __version__

# Else every counter and histogram has a second series with the time of its birth, which nobody
# asks for: one that begins anew tells so itself.
disable_created_metrics()  # type: ignore[no-untyped-call]

_HOOK_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2)
_WAIT_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_HOLD_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 45)
_BUILD = ("version", "python")
CYCLE_STEPS = ("snapshot", "plan", "publish", "report")
_API_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Metrics:
    """The series of one running extender; a registry of their own lets tests have many."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.hook_seconds = histogram(
            "gang_extender_hook_seconds",
            "Time spent answering a hook, holds not counted.",
            ["verb"],
            buckets=_HOOK_SECONDS,
        )
        self.hook_answers = counter(
            "gang_extender_hook_answers_total",
            "Answers by verb and outcome: passed, steered, error, or the reason of a refusal.",
            ["verb", "outcome"],
        )
        self.delayed_refusals = counter(
            "gang_extender_delayed_refusals_total",
            "Refusals that left 5 ms later, of pods that kube-scheduler tries over and over: their"
            " pauses are not kept while it has nobody else to try.",
        )
        self.refused_pods = counter(
            "gang_extender_namespace_refusals_total",
            "How often filter refused pods of a namespace; of the 50 namespaces with most, from a"
            " hundred on. kube-scheduler tries each again after every event of the cluster.",
            ["namespace"],
        )
        self.waiting_binds = gauge(
            "gang_extender_waiting_binds", "Binds that wait for their gang now."
        )
        self.bind_wait_seconds = histogram(
            "gang_extender_bind_wait_seconds",
            "How long binds waited for their gang, by what ended the wait.",
            ["cause"],
            buckets=_HOLD_SECONDS,
        )
        self.partial_commits = counter(
            "gang_extender_partial_commits_total",
            "Gangs that ended short of minMember after their binds went out; alert on any.",
        )
        self.abandoned_binds = counter(
            "gang_extender_abandoned_binds_total",
            "Held binds whose caller went away first; if it grows, the timeouts do not match.",
        )
        self.learned_bind_timeout = gauge(
            "gang_extender_learned_bind_timeout_seconds",
            "When kube-scheduler really gives up binds, if that is sooner than --bind-timeout-s;"
            " else 0. Mend its httpTimeout.",
        )
        self.last_hook = gauge(
            "gang_extender_last_hook_timestamp_seconds",
            "When kube-scheduler last called a hook for a pod of this name, in seconds since"
            " 1970; 0 when it has not since we lead.",
            ["scheduler"],
        )
        self.pods_without_scheduler = gauge(
            "gang_extender_pods_without_scheduler",
            "Pods, by their scheduler's name, for which kube-scheduler should have come longer than"
            " --ticket-s ago, new ones and those we woke, while it gives no sign at all; else 0.",
            ["scheduler"],
        )
        self.other_extenders = gauge(
            "gang_extender_other_extenders",
            "Other extenders that woke pods of our scheduler names in the last ten minutes; alert"
            " on any: two that act undo each other's work.",
        )
        self.wakes = counter("gang_extender_wakes_total", "Wake-ups ordered for parked pods.")
        self.cycle_seconds = histogram(
            "gang_extender_cycle_seconds",
            "Duration of one cycle by step: snapshot, plan, publish, report.",
            ["step"],
            buckets=_HOOK_SECONDS,
        )
        self.policy_refused = gauge(
            "gang_extender_policy_refused",
            "1 while the policy file cannot be used and the last good one is in force.",
        )
        self.last_cycle = gauge(
            "gang_extender_last_cycle_timestamp_seconds",
            "When the last cycle that went well ended, in seconds since 1970; 0 before the first.",
        )
        self.ready = gauge(
            "gang_extender_ready",
            "1 while we answer: we lead, the mirror can be trusted and there is a plan.",
        )
        self.cache_synced = gauge(
            "gang_extender_cache_synced",
            "1 while we could lead: the mirror of the cluster can be trusted.",
        )
        self.leader = gauge(
            "gang_extender_leader",
            "1 while we may act: while we hold the lease, and always without one (--lease).",
        )
        self.leader.set(1)
        self.leader_changes = counter(
            "gang_extender_leader_changes_total",
            "How often leadership changed: got, lost.",
            ["change"],
        )
        self.leader_label_failures = counter(
            "gang_extender_leader_label_failures_total",
            "How often the leader's label could not be read, put on or taken off.",
        )
        self.action_seconds = histogram(
            "gang_extender_action_seconds",
            "Duration of one action of a cycle: enqueue, allocate, backfill, reclaim, preempt.",
            ["action"],
            buckets=_HOOK_SECONDS,
        )
        self.evictions = counter(
            "gang_extender_evictions_total",
            "Victims by action (reclaim, preempt, follow: the rest of a gang of which others were"
            " made to leave) and outcome: evicted, blocked (the API server says no), failed (no"
            " answer, or it does not leave), refused (by a check of ours), dry-run.",
            ["action", "outcome"],
        )
        self.admission_seconds = histogram(
            "gang_extender_admission_seconds",
            "How long gangs waited until they were admitted, by queue.",
            ["queue"],
            buckets=_WAIT_SECONDS,
        )
        self.start_seconds = histogram(
            "gang_extender_start_seconds",
            "How long gangs took from creation (of the PodGroup or the first pod, whichever came"
            " last) until minMember were bound, by queue.",
            ["queue"],
            buckets=_WAIT_SECONDS,
        )
        self.status_writes = counter(
            "gang_extender_status_writes_total",
            "Writes of status and events by kind (PodGroup, Queue, Event) and outcome: written,"
            " failed, gone (the object or its namespace goes away), dropped (too much was said, or"
            " we do not lead).",
            ["kind", "outcome"],
        )

        self.tls_refused = counter(
            "gang_extender_tls_refused_total",
            "Callers of the hooks that were refused in the handshake, by reason: no_certificate,"
            " unknown_ca, expired, not_yet_valid, name, bad_certificate, not_tls, old_tls,"
            " caller_refused_us (kube-scheduler does not trust our certificate), other.",
            ["reason"],
        )
        self.connections = gauge(
            "gang_extender_connections", "Open connections by port: hooks, operations.", ["port"]
        )
        self.calls_refused = counter(
            "gang_extender_calls_refused_total",
            "Callers that were turned away, by port (hooks, operations) and reason: not_http, head"
            " (too long), body (too long), memory (of all bodies), slow (the call), unread (the"
            " answer), impatient (asked again before it), full (too many connections), left (before"
            " it was let in), crowd (too many newcomers of one address), no_hook, browser, host,"
            " media_type, secret; and with --ops-auth no_token, bad_token, not_allowed, paced (too"
            " many unknown tokens), unanswered (by the API server).",
            ["port", "reason"],
        )
        self.certificate_refused = gauge(
            "gang_extender_certificate_refused",
            "1 while new certificates of a port cannot be used and the last good ones are in"
            " force.",
            ["port"],
        )
        self.certificate_expiry = gauge(
            "gang_extender_certificate_expiry_seconds",
            "When the certificate in force expires, in seconds since 1970, by the setting that"
            " names its file.",
            ["setting"],
        )
        self.api_requests = counter(
            "gang_extender_api_requests_total",
            "Requests to the API server by verb, resource and code: 2xx to 5xx, or none where no"
            " answer came.",
            ["verb", "resource", "code"],
        )
        self.api_seconds = histogram(
            "gang_extender_api_seconds",
            "How long the API server took to answer; of a list or watch, to begin to.",
            ["verb", "resource"],
            buckets=_API_SECONDS,
        )
        self.relists = counter(
            "gang_extender_relists_total",
            "Lists of a resource from the beginning, the first one counted too.",
            ["resource"],
        )
        self.watch_ends = counter(
            "gang_extender_watch_ends_total",
            "Watches that ended, by cause: ended (in time, by itself), expired (our version is too"
            " old), broken (what came could not be used), failed (cut off, refused or silent).",
            ["resource", "cause"],
        )
        self.recorded_cycles = counter(
            "gang_extender_recorded_cycles_total",
            "Passes by what became of them in the recording (--record): written, skipped (the one"
            " before was still being written), lost (the recording has ended).",
            ["outcome"],
        )
        build_info = gauge(
            "gang_extender_build_info", "1; which version runs, on which Python.", _BUILD
        )
        build_info.labels(__version__, platform.python_version()).set(1)
        init_labels(self.leader_changes, ("got",), ("lost",))
        init_labels(self.recorded_cycles, ("written",), ("skipped",), ("lost",))
        init_labels(self.cycle_seconds, *((step,) for step in CYCLE_STEPS))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def time_action(self, action: str) -> Timer:
        """Time what runs inside as one action of a cycle."""
        return self.action_seconds.labels(action).time()

    def forget_queue(self, name: str) -> None:
        """Drop the series of a queue that is gone, so that their number stays bounded."""
        for series in (self.admission_seconds, self.start_seconds):
            with suppress(KeyError):
                series.remove(name)


def init_labels(series: MetricWrapperBase, *outcomes: Iterable[str]) -> None:
    """Let *outcomes*, one or more values of labels each, be there as 0 before the first of them.

    Of a series that begins with 1 Prometheus cannot tell that it grew.
    """
    for labels in outcomes:
        series.labels(*labels)
