"""Leader election for the rest of the extender: fencing, readiness, start and shutdown.

`--lease` selects the lease: our own Lease, that of the kube-scheduler beside us, or none.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from uuid import uuid4

from extender.errors import InvalidConfiguration
from extender.leader.fencing import Term
from extender.leader.label import LeaderLabel
from extender.leader.lease import CallsSoon, FollowedLease, LeaseTiming, LeaseTracker, OwnLease
from extender.metrics import Metrics
from extender.ports import AlwaysLeader, Clock, Fencing, LeaderLabels, Leases
from extender.settings import Settings

log = logging.getLogger(__name__)
#: The delay after a step that failed.
RETRY_S = 1.0
#: How long the shutdown waits for a step that is in progress.
_JOIN_S = 5.0


class LeaseThread:
    """Runs the steps of a lease in a thread until `release`."""

    def __init__(
        self,
        lease: OwnLease | FollowedLease,
        tracker: LeaseTracker,
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        self._lease = lease
        self._tracker = tracker
        self._retry_s = retry_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def release(self) -> None:
        """End the term, then release the lease; waits a bounded time for the API server."""
        self._tracker.resign()
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=_JOIN_S)
        # While a renewal is in flight, it is not known which write the API server applies last.
        if not self._thread.is_alive():
            self._lease.release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                delay_s = self._lease.step()
            except Exception:
                # Without further steps the term expires, and no new one would ever begin.
                log.exception("lease step failed")
                delay_s = self._retry_s
            self._stopping.wait(delay_s)


class LeaderElection:
    """Elects the leader by the lease of the settings; without a lease we always lead."""

    def __init__(self, settings: Settings, clock: Clock, loop: CallsSoon, metrics: Metrics) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._term = Term(clock.monotonic)
        self._lease_thread: LeaseThread | None = None
        self._leader_label: LeaderLabel | None = None
        self._is_ending = False
        self.is_shared = settings.lease != "none"
        self.fencing: Fencing = self._term if self.is_shared else AlwaysLeader()
        self._tracker = LeaseTracker(self._term, loop, metrics) if self.is_shared else None

    def on_change(self, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call *begun* when a term of ours begins, and *ended* when it ends."""
        if self._tracker is not None:
            self._tracker.on_change(begun=begun, ended=ended)

    def run(
        self, leases: Leases | None, labels: LeaderLabels | None, *, is_warm: Callable[[], bool]
    ) -> None:
        """Set up the threads of the lease and of the label; *is_warm*: whether we can lead."""
        if self._tracker is None:
            return
        if leases is None:
            raise InvalidConfiguration("--lease needs a cluster that has leases")
        settings = self._settings
        timing = LeaseTiming(
            duration_s=settings.lease_duration_s,
            renew_s=settings.lease_renew_s,
            retry_s=settings.lease_retry_s,
        )
        name = settings.lease_identity or os.uname().nodename
        keeper = (
            # Unique for this process: an earlier process of this name may be frozen, not dead.
            OwnLease(
                leases,
                f"{name}_{uuid4()}",
                timing,
                self._clock,
                self._tracker,
                is_warm=lambda: is_warm() and not self._is_ending,
            )
            if settings.lease == "own"
            else FollowedLease(leases, name, timing, self._clock, self._tracker)
        )
        self._lease_thread = LeaseThread(keeper, self._tracker)
        if labels is not None:
            self._leader_label = LeaderLabel(labels, self.fencing, self._metrics)
            self.on_change(begun=self._leader_label.begun, ended=lambda: None)

    def why_not_ready(self) -> list[str]:
        """Return why we are not ready: the name of the leader, unless we lead."""
        return self._tracker.why_not_ready() if self._tracker is not None else []

    def check_term(self) -> bool:
        """Report a term that has ended; the event loop calls this periodically."""
        return self._tracker.check_term() if self._tracker is not None else False

    def start(self) -> None:
        """Start the threads."""
        for each in (self._lease_thread, self._leader_label):
            if each is not None:
                each.start()

    def drain(self) -> None:
        """Prepare the shutdown.

        Our own lease is kept for the requests that are in flight, but not acquired again: we
        would answer no call. With `--lease=scheduler` the term ends now, as the kube-scheduler
        beside us releases its lease now.
        """
        self._is_ending = True
        if self._leader_label is not None:
            self._leader_label.retire()
        if self._tracker is not None and self._settings.lease == "scheduler":
            self._tracker.resign()

    def resign(self) -> None:
        """End the term and release the lease; waits a bounded time for the API server."""
        if self._leader_label is not None:
            self._leader_label.wait_until_retired()
        if self._lease_thread is not None:
            self._lease_thread.release()
