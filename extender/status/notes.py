"""Log lines, series and health notes about schedulers, binds and refused namespaces."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from heapq import nlargest
from typing import NamedTuple

from extender.cache.cluster import Cluster
from extender.liveness import SchedulerLiveness
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.reason import Happening
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.ports import Clock, EventRecord, EventWriter, ObjectReference, WakeOrder, Waker

log = logging.getLogger(__name__)
#: Limit of the other extenders that are remembered as logged.
_MOST_RIVALS = 100
_SILENT = (Liveness.SILENT, Liveness.ELSEWHERE)


class SchedulerNotes:
    """Logs once when a scheduler falls silent or calls again; notes those that are silent."""

    def __init__(self, liveness: SchedulerLiveness, metrics: Metrics, clock: Clock) -> None:
        self._liveness = liveness
        self._metrics = metrics
        self._clock = clock
        self._silent: set[str] = set()
        self._rivals: set[str] = set()
        self._limited_log = RateLimitedLog(log)
        metrics.other_extenders.set_function(self._count_rivals)
        for name in liveness.names:
            metrics.last_hook.labels(name).set_function(partial(self._called_at, name))
            metrics.pods_without_scheduler.labels(name).set_function(
                partial(liveness.overdue, name)
            )

    def notes(self) -> list[str]:
        """Return a note for each scheduler that is silent or calls another extender."""
        now = self._clock.now()
        return [
            f"scheduler {each.name}: {each.problem(now)}"
            for each in self._liveness.statuses().values()
            if each.liveness in _SILENT or each.rival
        ]

    def counted(self, waker: Waker) -> Callable[[Sequence[WakeOrder]], None]:
        """Return a wake function that counts the orders and expects calls for the woken pods."""

        def wake(orders: Sequence[WakeOrder]) -> None:
            self._metrics.wakes.inc(len(orders))
            for order in orders:
                self._liveness.pod_woken(order.uid, order.nomination)
            waker.wake(orders)

        return wake

    def _count_rivals(self) -> float:
        return len({each.rival for each in self._liveness.statuses().values()} - {""})

    def _called_at(self, name: str) -> float:
        return self._liveness.statuses()[name].called_at

    def liveness_changed(self, status: SchedulerStatus) -> None:
        """Called with a scheduler name whose liveness has changed."""
        if status.rival and status.rival not in self._rivals:
            # Tenants may write any name on their pods.
            if len(self._rivals) >= _MOST_RIVALS:
                self._rivals.clear()
            self._rivals.add(status.rival)
            self._limited_log.event(
                logging.WARNING,
                "another extender acts on the same pods",
                scheduler=status.name,
                rival=status.rival,
                why=status.problem(self._clock.now()),
            )
        if status.liveness in _SILENT:
            self._silent.add(status.name)
            message = (
                "kube-scheduler does not call"
                if status.liveness is Liveness.SILENT
                else "kube-scheduler calls another extender"
            )
            event(
                log,
                logging.WARNING,
                message,
                scheduler=status.name,
                pods=self._liveness.overdue(status.name),
                why=status.problem(self._clock.now()),
            )
        elif status.name in self._silent:
            self._silent.discard(status.name)
            event(log, logging.INFO, "kube-scheduler calls again", scheduler=status.name)


#: The reason of the event about a gang of which only a part is bound.
PARTIALLY_BOUND = Happening.PARTIALLY_BOUND.value


class BindNotes:
    """Reports waiting binds and partial commits: the `Observer` of the permit package."""

    def __init__(
        self,
        metrics: Metrics,
        cluster: Cluster,
        events: EventWriter,
        clock: Clock,
        bind_timeout_s: float,
    ) -> None:
        self._metrics = metrics
        #: The required httpTimeout of kube-scheduler's bind entry, and the one learned.
        self._bind_timeout_s = bind_timeout_s
        self._learned_s: float | None = None
        self._cluster = cluster
        self._events = events
        self._clock = clock
        # Finding a series costs more than counting, and there are few.
        self._waits = cache(metrics.bind_wait_seconds.labels)

    def released(self, cause: str, waited_s: float) -> None:
        """Called when a bind call is answered."""
        self._waits(cause).observe(waited_s)

    def partial_commit(self, gang: GangKey) -> None:
        """Called when too few members of a gang are bound after its bindings were sent."""
        self._metrics.partial_commits.inc()
        group = self._cluster.group(gang)
        if group is None:
            return
        subject = ObjectReference.of_gang(Gang(group=group, pods=self._cluster.pods_of(gang)))
        if subject is not None:
            self._events.write(
                EventRecord(
                    subject=subject,
                    reason=PARTIALLY_BOUND,
                    message="fewer than minMember members are bound; the others are bound as they"
                    " arrive",
                    warning=True,
                    at=self._clock.now(),
                )
            )

    def reservation_released(self, gang: GangKey, pause_s: float) -> None:
        """Called when a gang could not use its reservation."""
        event(log, logging.INFO, "reservation released", gang=gang, pause_s=pause_s)

    def peer_closed(self, age_s: float) -> None:
        """Called when the caller of a bind closed its connection."""
        self._metrics.abandoned_binds.inc()

    def learnt_timeout(self, seconds: float | None) -> None:
        """Called when kube-scheduler gives up sooner than configured; None when it does not."""
        self._metrics.learned_bind_timeout.set(seconds or 0.0)
        self._learned_s = seconds

    def notes(self) -> list[str]:
        """Return a note when the configured timeout should be fixed."""
        if self._learned_s is None:
            return []
        return [
            f"binds: kube-scheduler gives up after {self._learned_s:.0f} s; set httpTimeout of its"
            f" bind entry to {self._bind_timeout_s:g}s"
        ]


#: A namespace gets a series after so many refusals; limit of the namespaces with a series.
SHOWN = 100
MOST_SHOWN = 50
#: Limit of the namespaces that are counted; those with fewer refusals are dropped.
_MOST_COUNTED = 2000
#: So many refusals within a minute are logged: ten times a second.
MINUTE_S = 60.0
LOUD = 600


class _Example(NamedTuple):
    gang: GangKey
    reason: str


class RefusedNamespaces:
    """Counts refusals of filter by namespace; owned by the event loop."""

    def __init__(self, metrics: Metrics, most_counted: int = _MOST_COUNTED) -> None:
        self._series = metrics.refused_pods
        self._most_counted = most_counted
        self._counts: Counter[str] = Counter()
        self._shown: set[str] = set()
        #: The current minute.
        self._since = float("-inf")
        self._minute: Counter[str] = Counter()
        self._examples: dict[str, _Example] = {}

    def __len__(self) -> int:
        """Return the number of namespaces that are counted."""
        return len({*self._counts, *self._minute, *self._examples})

    def refused(self, namespace: str, gang: GangKey, reason: str, now: float) -> None:
        """Count that a pod of *gang* was refused."""
        if now - self._since >= MINUTE_S:
            self._log_minute()
            self._since = now
        self._counts[namespace] += 1
        self._minute[namespace] += 1
        self._examples[namespace] = _Example(gang, reason)
        count = self._counts[namespace]
        if namespace in self._shown:
            self._series.labels(namespace).inc()
        elif count >= SHOWN:
            self._show(namespace, count)
        elif len(self._counts) > self._most_counted:
            self._counts = self._busiest(self._counts)
            self._minute = self._busiest(self._minute)
            self._examples = {each: self._examples[each] for each in self._minute}

    def _show(self, namespace: str, count: int) -> None:
        if len(self._shown) >= MOST_SHOWN:
            least = min(self._shown, key=lambda each: self._counts[each])
            if self._counts[least] >= count:
                return
            self._shown.discard(least)
            self._series.remove(least)
        self._shown.add(namespace)
        self._series.labels(namespace).inc(count)

    def _log_minute(self) -> None:
        """Log the namespace with the most refusals in the past minute, if they were many."""
        for namespace, count in nlargest(1, self._minute.items(), key=lambda pair: pair[1]):
            if count >= LOUD:
                example = self._examples[namespace]
                event(
                    log,
                    logging.WARNING,
                    "kube-scheduler keeps retrying refused pods of a namespace",
                    namespace=namespace,
                    refused=count,
                    gang=example.gang,
                    reason=example.reason,
                )
        self._minute.clear()
        self._examples.clear()

    def _busiest(self, counts: Counter[str]) -> Counter[str]:
        return Counter(dict(counts.most_common(self._most_counted // 2)))
