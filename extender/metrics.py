"""The metrics of the extender, each with its meaning; docs/reference/metrics.md prints them too."""

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

# Otherwise every counter and histogram has a second series with its creation time. It is of no use:
# the start time of the process is a series already.
disable_created_metrics()  # type: ignore[no-untyped-call]

_HOOK_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2)
_WAIT_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_HOLD_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 45)
_BUILD = ("version", "python")
CYCLE_STEPS = ("snapshot", "plan", "publish", "report")
_API_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Metrics:
    """The metrics of one extender; a registry of its own lets tests have many."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.hook_seconds = histogram(
            "gang_extender_hook_seconds",
            "Duration of a hook call, without the time a bind waits.",
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
            "Refusals that were delayed by 5 ms because kube-scheduler retries the pod without"
            " backoff, which it does while it has no other pod to try.",
        )
        self.refused_pods = counter(
            "gang_extender_namespace_refusals_total",
            "Refusals by filter of pods of a namespace, for the 50 namespaces with most, from 100"
            " on. kube-scheduler retries each pod after every cluster event.",
            ["namespace"],
        )
        self.waiting_binds = gauge(
            "gang_extender_waiting_binds", "Binds that currently wait for their gang."
        )
        self.bind_wait_seconds = histogram(
            "gang_extender_bind_wait_seconds",
            "How long binds waited for their gang, by what ended the wait.",
            ["cause"],
            buckets=_HOLD_SECONDS,
        )
        self.partial_commits = counter(
            "gang_extender_partial_commits_total",
            "Gangs that ended with fewer than minMember bound after their binds were sent; alert"
            " on any.",
        )
        self.abandoned_binds = counter(
            "gang_extender_abandoned_binds_total",
            "Waiting binds whose caller disconnected first; growth means mismatched timeouts.",
        )
        self.learned_bind_timeout = gauge(
            "gang_extender_learned_bind_timeout_seconds",
            "The observed timeout of kube-scheduler's binds, if it is shorter than"
            " --bind-timeout-s; else 0. Correct its httpTimeout.",
        )
        self.last_hook = gauge(
            "gang_extender_last_hook_timestamp_seconds",
            "Time of kube-scheduler's last hook call for a pod with this scheduler name, in seconds"
            " since 1970; 0 if it made none since this extender became leader.",
            ["scheduler"],
        )
        self.pods_without_scheduler = gauge(
            "gang_extender_pods_without_scheduler",
            "Pods by scheduler name, new or woken longer than --reservation-s ago, for which no"
            " hook was called, while kube-scheduler shows no activity at all; else 0.",
            ["scheduler"],
        )
        self.other_extenders = gauge(
            "gang_extender_other_extenders",
            "Other extenders that woke pods of our scheduler names in the last ten minutes; alert"
            " on any: two active extenders undo each other's work.",
        )
        self.wakes = counter(
            "gang_extender_wakes_total",
            "Wake-ups requested for pods in kube-scheduler's unschedulable queue.",
        )
        self.cycle_seconds = histogram(
            "gang_extender_cycle_seconds",
            "Duration of one cycle by step: snapshot, plan, publish, report.",
            ["step"],
            buckets=_HOOK_SECONDS,
        )
        self.policy_refused = gauge(
            "gang_extender_policy_refused",
            "1 while the policy file is invalid and the last valid one is in force.",
        )
        self.last_cycle = gauge(
            "gang_extender_last_cycle_timestamp_seconds",
            "Time when the last successful cycle ended, in seconds since 1970; 0 before the first.",
        )
        self.ready = gauge(
            "gang_extender_ready",
            "1 while the hooks answer: the extender leads, its cache is fresh and a plan exists.",
        )
        self.cache_synced = gauge(
            "gang_extender_cache_synced",
            "1 while the extender could lead: its cache of the cluster is fresh.",
        )
        self.leader = gauge(
            "gang_extender_leader",
            "1 while the extender may act: while it holds the lease, and always without one"
            " (--lease).",
        )
        self.leader.set(1)
        self.leader_changes = counter(
            "gang_extender_leader_changes_total",
            "Leadership changes: got, lost.",
            ["change"],
        )
        self.leader_label_failures = counter(
            "gang_extender_leader_label_failures_total",
            "Failures to read, set or remove the leader label.",
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
            " evicted) and outcome: evicted, blocked (the API server refuses), failed (no answer,"
            " or the pod does not terminate), refused (by a check of the extender), dry-run.",
            ["action", "outcome"],
        )
        self.admission_seconds = histogram(
            "gang_extender_admission_seconds",
            "Time until gangs were admitted, by queue.",
            ["queue"],
            buckets=_WAIT_SECONDS,
        )
        self.start_seconds = histogram(
            "gang_extender_start_seconds",
            "Time from creation (of the PodGroup or the first pod, whichever came last) until"
            " minMember were bound, by queue.",
            ["queue"],
            buckets=_WAIT_SECONDS,
        )
        self.status_writes = counter(
            "gang_extender_status_writes_total",
            "Writes of status and events by kind (PodGroup, Queue, Event) and outcome: written,"
            " failed, gone (the object or its namespace is deleted), dropped (too many writes, or"
            " this extender is not the leader).",
            ["kind", "outcome"],
        )

        self.tls_refused = counter(
            "gang_extender_tls_refused_total",
            "Failed TLS handshakes on the hook port, by reason: no_certificate, unknown_ca,"
            " expired, not_yet_valid, name, bad_certificate, not_tls, old_tls, caller_refused_us"
            " (kube-scheduler does not trust our certificate), other.",
            ["reason"],
        )
        self.connections = gauge(
            "gang_extender_connections", "Open connections by port: hooks, operations.", ["port"]
        )
        self.calls_refused = counter(
            "gang_extender_calls_refused_total",
            "Refused callers by port (hooks, operations) and reason: not_http, head (too long),"
            " body (too long), memory (of all bodies), slow (the call), unread (the answer),"
            " impatient (next call before the answer), full (too many connections), left"
            " (disconnected before accept), crowd (too many new connections of one address),"
            " no_hook, browser, host, media_type, secret; and with --ops-auth no_token, bad_token,"
            " not_allowed, paced (too many unknown tokens), unanswered (by the API server).",
            ["port", "reason"],
        )
        self.certificate_refused = gauge(
            "gang_extender_certificate_refused",
            "1 while new certificates of a port are invalid and the last valid ones are in force.",
            ["port"],
        )
        self.certificate_expiry = gauge(
            "gang_extender_certificate_expiry_seconds",
            "Expiry of the certificate in force, in seconds since 1970, by the setting that names"
            " its file.",
            ["setting"],
        )
        self.api_requests = counter(
            "gang_extender_api_requests_total",
            "Requests to the API server by verb, resource and code: 2xx to 5xx, or none without an"
            " answer.",
            ["verb", "resource", "code"],
        )
        self.api_seconds = histogram(
            "gang_extender_api_seconds",
            "Response time of the API server; of a list or watch, until the answer begins.",
            ["verb", "resource"],
            buckets=_API_SECONDS,
        )
        self.relists = counter(
            "gang_extender_relists_total",
            "Lists of a resource from the start, including the first.",
            ["resource"],
        )
        self.watch_ends = counter(
            "gang_extender_watch_ends_total",
            "Watches that ended, by cause: ended (in time, by itself), expired (our version is too"
            " old), broken (unusable data), failed (cut off, refused or silent).",
            ["resource", "cause"],
        )
        self.recorded_cycles = counter(
            "gang_extender_recorded_cycles_total",
            "Cycles by their outcome in the recording (--record): written, skipped (the previous"
            " cycle was still being written), lost (the recording has ended).",
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
        """Time the enclosed code as one action of a cycle."""
        return self.action_seconds.labels(action).time()

    def forget_queue(self, name: str) -> None:
        """Remove the series of a deleted queue, so that their number stays bounded."""
        for series in (self.admission_seconds, self.start_seconds):
            with suppress(KeyError):
                series.remove(name)


def init_labels(series: MetricWrapperBase, *outcomes: Iterable[str]) -> None:
    """Create the series of *outcomes* with the value 0; each is one or more label values.

    Prometheus cannot see the increase of a series that starts with 1.
    """
    for labels in outcomes:
        series.labels(*labels)
