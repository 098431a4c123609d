"""What becomes of promises and holds, told to those who look: series, and events on PodGroups."""

from __future__ import annotations

import logging
from functools import cache

from extender.cache.cluster import Cluster
from extender.logs import event
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.reason import Happening
from extender.ports import Announcer, Clock, Notice, Subject

log = logging.getLogger(__name__)

#: The word of the event about a gang of which only a part got bound.
BOUND_IN_PART = Happening.BOUND_IN_PART.value


class HoldNews:
    """The barrier's `Observer`."""

    def __init__(
        self,
        metrics: Metrics,
        cluster: Cluster,
        announcer: Announcer,
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
        self._waits = cache(metrics.hold_seconds.labels)

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
        self._cluster.cut_short.failed(group, pods, self._clock.monotonic())
        subject = Subject.of_gang(Gang(group=group, pods=pods))
        if subject is not None:
            self._announcer.announce(
                Notice(
                    subject=subject,
                    reason=BOUND_IN_PART,
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
        self._metrics.peer_closes.inc()

    def learnt_timeout(self, seconds: float | None) -> None:
        """kube-scheduler seems to give up sooner than configured; None when it does not."""
        self._metrics.learnt_timeout.set(seconds or 0.0)
        self._learnt_s = seconds

    def notes(self) -> list[str]:
        """Say what should be mended although we go on."""
        if self._learnt_s is None:
            return []
        return [
            f"binds: kube-scheduler gives up after {self._learnt_s:.0f} s; set httpTimeout of its"
            f" bind entry to {self._bind_timeout_s:g}s"
        ]
