"""What we hear of kube-scheduler, told to those who operate it: log, series and notes."""

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
#: Other extenders that we remember to have named.
_MOST_RIVALS = 100
_TROUBLES = (Liveness.SILENT, Liveness.ELSEWHERE)


class SchedulerNotes:
    """Says once who falls silent and who is heard again, and as long as it lasts who is missing."""

    def __init__(self, hearing: SchedulerLiveness, metrics: Metrics, clock: Clock) -> None:
        self._hearing = hearing
        self._metrics = metrics
        self._clock = clock
        self._troubled: set[str] = set()
        self._rivals: set[str] = set()
        self._seldom = RateLimitedLog(log)
        hearing.on_change(self._changed)
        metrics.other_extenders.set_function(self._count_rivals)
        for name in hearing.names:
            metrics.last_hook.labels(name).set_function(partial(self._asked_at, name))
            metrics.pods_without_scheduler.labels(name).set_function(partial(hearing.overdue, name))

    def notes(self) -> list[str]:
        """Say who is missing, and where kube-scheduler asks another."""
        now = self._clock.now()
        return [
            f"scheduler {each.name}: {each.complaint(now)}"
            for each in self._hearing.statuses().values()
            if each.liveness in _TROUBLES or each.rival
        ]

    def counted(self, waker: Waker) -> Callable[[Sequence[WakeOrder]], None]:
        """Count what *waker* is ordered, and listen whether somebody comes."""

        def wake(orders: Sequence[WakeOrder]) -> None:
            self._metrics.wakes.inc(len(orders))
            for order in orders:
                self._hearing.pod_woken(order.uid, order.nomination)
            waker.wake(orders)

        return wake

    def _count_rivals(self) -> float:
        return len({each.rival for each in self._hearing.statuses().values()} - {""})

    def _asked_at(self, name: str) -> float:
        return self._hearing.statuses()[name].called_at

    def _changed(self, caller: SchedulerStatus) -> None:
        if caller.rival and caller.rival not in self._rivals:
            # Tenants may write any name on their pods.
            if len(self._rivals) >= _MOST_RIVALS:
                self._rivals.clear()
            self._rivals.add(caller.rival)
            self._seldom.event(
                logging.WARNING,
                "another extender acts beside us",
                scheduler=caller.name,
                rival=caller.rival,
                why=caller.complaint(self._clock.now()),
            )
        if caller.liveness in _TROUBLES:
            self._troubled.add(caller.name)
            said = (
                "kube-scheduler does not ask"
                if caller.liveness is Liveness.SILENT
                else "kube-scheduler asks another extender"
            )
            event(
                log,
                logging.WARNING,
                said,
                scheduler=caller.name,
                pods=self._hearing.overdue(caller.name),
                why=caller.complaint(self._clock.now()),
            )
        elif caller.name in self._troubled:
            self._troubled.discard(caller.name)
            event(log, logging.INFO, "kube-scheduler is heard again", scheduler=caller.name)


#: The word of the event about a gang of which only a part got bound.
PARTIALLY_BOUND = Happening.PARTIALLY_BOUND.value


class BindNotes:
    """The barrier's `Observer`."""

    def __init__(
        self,
        metrics: Metrics,
        cluster: Cluster,
        announcer: EventWriter,
        clock: Clock,
        bind_timeout_s: float,
    ) -> None:
        self._metrics = metrics
        #: What httpTimeout of kube-scheduler's bind entry should be, and what it seems to be.
        self._bind_timeout_s = bind_timeout_s
        self._learnt_s: float | None = None
        self._cluster = cluster
        self._announcer = announcer
        self._clock = clock
        # Looking a series up costs more than counting, and there are few.
        self._waits = cache(metrics.bind_wait_seconds.labels)

    def released(self, cause: str, waited_s: float) -> None:
        """A bind call was answered."""
        self._waits(cause).observe(waited_s)

    def partial_commit(self, gang: GangKey) -> None:
        """A gang ended short of minMember after its bindings were sent."""
        self._metrics.partial_commits.inc()
        group = self._cluster.group(gang)
        if group is None:
            return
        pods = self._cluster.pods_of(gang)
        self._cluster.partial_gangs.failed(group, pods, self._clock.monotonic())
        subject = ObjectReference.of_gang(Gang(group=group, pods=pods))
        if subject is not None:
            self._announcer.write(
                EventRecord(
                    subject=subject,
                    reason=PARTIALLY_BOUND,
                    message="fewer than minMember members got bound; the rest is bound as it comes",
                    warning=True,
                    at=self._clock.now(),
                )
            )

    def ticket_given_back(self, gang: GangKey, pause_s: float) -> None:
        """A gang could not use the room promised to it."""
        event(log, logging.INFO, "ticket given back", gang=gang, pause_s=pause_s)

    def peer_closed(self, age_s: float) -> None:
        """A caller gave up."""
        self._metrics.abandoned_binds.inc()

    def learnt_timeout(self, seconds: float | None) -> None:
        """kube-scheduler seems to give up sooner than configured; None when it does not."""
        self._metrics.learned_bind_timeout.set(seconds or 0.0)
        self._learnt_s = seconds

    def notes(self) -> list[str]:
        """Say what should be mended although we go on."""
        if self._learnt_s is None:
            return []
        return [
            f"binds: kube-scheduler gives up after {self._learnt_s:.0f} s; set httpTimeout of its"
            f" bind entry to {self._bind_timeout_s:g}s"
        ]


#: Refused so often, a namespace has a series; and so many namespaces have one, at most.
SHOWN = 100
MOST_SHOWN = 50
#: Namespaces that are counted; those of which less was refused are forgotten.
_MOST_COUNTED = 2000
#: Refused so often within a minute, it is told: ten times a second.
MINUTE_S = 60.0
LOUD = 600


class _Example(NamedTuple):
    gang: GangKey
    reason: str


class RefusedNamespaces:
    """Counts refusals of filter by namespace; belongs to the event loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._series = metrics.refused_pods
        self._counts: Counter[str] = Counter()
        self._shown: set[str] = set()
        #: Of the minute that runs.
        self._since = float("-inf")
        self._minute: Counter[str] = Counter()
        self._examples: dict[str, _Example] = {}

    def refused(self, namespace: str, gang: GangKey, reason: str, now: float) -> None:
        """Count that a pod of *gang* was refused."""
        if now - self._since >= MINUTE_S:
            self._tell()
            self._since = now
        self._counts[namespace] += 1
        self._minute[namespace] += 1
        self._examples[namespace] = _Example(gang, reason)
        count = self._counts[namespace]
        if namespace in self._shown:
            self._series.labels(namespace).inc()
        elif count >= SHOWN:
            self._show(namespace, count)
        elif len(self._counts) > _MOST_COUNTED:
            self._counts = _busiest(self._counts)
            self._minute = _busiest(self._minute)
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

    def _tell(self) -> None:
        """Say whose pods took most attempts in the minute that is over, if they were many."""
        for namespace, count in nlargest(1, self._minute.items(), key=lambda pair: pair[1]):
            if count >= LOUD:
                example = self._examples[namespace]
                event(
                    log,
                    logging.WARNING,
                    "kube-scheduler tries pods of a namespace again and again in vain",
                    namespace=namespace,
                    refused=count,
                    gang=example.gang,
                    reason=example.reason,
                )
        self._minute.clear()
        self._examples.clear()


def _busiest(counts: Counter[str]) -> Counter[str]:
    return Counter(dict(counts.most_common(_MOST_COUNTED // 2)))
