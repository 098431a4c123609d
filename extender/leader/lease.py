"""Leases: our own, which we acquire, renew and release; or that of the kube-scheduler beside us.

Whether another holder's lease has expired depends on when we last observed a change of it, never
on the times written in it: clocks differ and step. Our own term counts from before the renewal was
sent. It ends well before any replica that observed that renewal may consider the lease expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import msgspec

from extender.errors import ApiError
from extender.leader.fencing import Term
from extender.logs import event
from extender.metrics import Metrics
from extender.ports import Clock, Lease, Leases


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """The three times of a Lease, as in client-go; others wait longer than our term lasts."""

    #: How long after its last observed change another replica may acquire the lease.
    duration_s: float = 15.0
    #: How long our term lasts after we sent the last successful renewal.
    renew_s: float = 10.0
    #: The interval of renewals.
    retry_s: float = 2.0

    @property
    def poll_s(self) -> float:
        """The interval at which another holder's lease is read: it may be released soon."""
        return self.retry_s / 2

    @property
    def fresh_s(self) -> float:
        """How long a read of a lease that may be released at any time counts as current."""
        return self.renew_s / 2

    @property
    def share(self) -> float:
        """The fraction of a lease's duration for which the holder's side may act."""
        return self.renew_s / self.duration_s


log = logging.getLogger(__name__)
#: How often the event loop checks whether the term has expired.
CHECK_S = 0.1


class CallsSoon(Protocol):
    """The event loop, as other threads use it."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call *callback* once in the event loop, soon."""


class LeaseTracker:
    """Turns observations of the lease into terms, and notifies listeners of begin and end.

    The thread of the lease calls `renewed` and `lost`; listeners are called in the event loop.
    """

    def __init__(self, term: Term, loop: CallsSoon, metrics: Metrics) -> None:
        self._term = term
        self._loop = loop
        self._metrics = metrics
        self._listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []
        #: The term whose begin the listeners were notified of; 0 after they know of its end.
        self._announced = 0
        #: Incremented when the lease is lost: renewals reported before are void then.
        self._generation = 0
        self._is_resigned = False
        #: The last observed holder of the lease, and the holder name under which it was ours.
        self.leader = self._ours = ""
        #: Why the last read or write of the lease failed; empty after a success.
        self.error = ""
        metrics.leader.set_function(lambda: float(bool(term.current())))

    def on_change(self, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call *begun* when a term of ours begins, and *ended* when it ends."""
        self._listeners.append((begun, ended))

    # Called in the thread of the lease

    def renewed(self, until: float, leader: str) -> None:
        """Begin or extend our term: the lease is ours, and we may act until *until*."""
        self.leader = self._ours = leader
        self._loop.call_soon(partial(self._renew, self._generation, until))

    def lost(self, leader: str = "") -> None:
        """End the term: the lease is not ours."""
        self.leader = leader
        self._generation += 1
        self._term.end()
        self._loop.call_soon(self.check_term)

    def failed(self, error: ApiError) -> None:
        """Record why a request failed; only the first failure after a success is logged."""
        if not self.error:
            event(log, logging.WARNING, "lease request failed", why=str(error))
        self.error = str(error)

    def resign(self) -> None:
        """End the term and begin no further one; from any thread."""
        self._is_resigned = True
        self.lost()

    # In the event loop

    def check_term(self) -> bool:
        """Notify the listeners if the term has ended; returns False: no second call is needed."""
        if self._announced and not self._term.holds(self._announced):
            self._announced = 0
            if self.leader == self._ours:
                self.leader = ""  # it expired, and the next holder is not known yet
            self._metrics.leader_changes.labels("lost").inc()
            event(log, logging.WARNING, "leadership lost", leader=self.leader)
            for _, ended in self._listeners:
                ended()
        return False

    def _renew(self, generation: int, until: float) -> None:
        if generation != self._generation or self._is_resigned:
            return
        self.check_term()
        is_next = not self._announced
        (self._term.begin if is_next else self._term.extend)(until)
        if generation != self._generation:
            self._term.end()  # the lease was lost in the meantime, and that is newer
        if not is_next:
            return
        self._announced = self._term.current()
        if not self._announced:
            return  # the term expired before this call
        self._metrics.leader_changes.labels("got").inc()
        event(log, logging.INFO, "leadership acquired", leader=self.leader)
        for begun, _ in self._listeners:
            begun()

    # Called in any thread

    def why_not_ready(self) -> list[str]:
        """Return why we are not ready: the name of the leader, unless we lead."""
        if self._announced and self._term.holds(self._announced):
            return []
        why = f" ({self.error})" if self.error else ""
        return [f"standby: {self.leader or 'no known replica'} leads{why}"]


#: The duration written on release; client-go writes the same.
_RELEASED_S = 1.0


class OwnLease:
    """Acquires, renews and releases one Lease, in a thread of its own."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        timing: LeaseTiming,
        clock: Clock,
        tracker: LeaseTracker,
        *,
        is_warm: Callable[[], bool],
    ) -> None:
        """*is_warm* returns whether we can lead: with empty caches we must not be a candidate."""
        self._leases = leases
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._tracker = tracker
        self._is_warm = is_warm
        #: The lease as we last wrote it; None when another replica holds it, or in doubt.
        self._held: Lease | None = None
        #: The lease as last observed, and when a change of it was observed.
        self._observed: Lease | None = None
        self._changed_at = float("-inf")

    def step(self) -> float:
        """Read, acquire or renew the lease, and return the seconds until the next step."""
        try:
            if self._held is None:
                self._acquire_if_free()
            else:
                self._write(self._held)
        except ApiError as error:
            # The write may have taken effect all the same: only a read shows it.
            is_renewal, self._held = self._held is not None, None
            # A conflict is a write of another client, not a failure.
            if error.status != 409:
                self._tracker.failed(error)
            # Our lease was written or deleted by another client: another replica may lead already.
            is_overtaken = is_renewal and error.status in (404, 409)
            return 0.0 if is_overtaken else self._timing.poll_s
        self._tracker.error = ""
        return self._timing.retry_s if self._held is not None else self._delay_s()

    def release(self) -> None:
        """Release the lease, so that the next leader need not wait; called after the term ended."""
        try:
            lease = self._held or self._leases.read()
            if lease is not None and lease.holder == self._identity:
                self._leases.write(
                    msgspec.structs.replace(
                        lease, holder="", duration_s=_RELEASED_S, renewed=self._timestamp()
                    )
                )
                event(log, logging.INFO, "lease released")
        except ApiError as error:
            event(log, logging.WARNING, "lease not released", why=str(error))
        self._held = None

    def _acquire_if_free(self) -> None:
        lease = self._leases.read()
        # The time after the response counts: the change may be newer than the request.
        self._observe(lease, self._clock.monotonic())
        if lease is not None and lease.holder == self._identity:
            self._write(lease)
            return
        self._tracker.lost(lease.holder if lease is not None else "")
        if self._remaining_s() <= 0 and self._is_warm():
            self._write(lease or Lease())

    def _observe(self, lease: Lease | None, now: float) -> None:
        # A deleted lease still counts until it expires: its holder does not know yet.
        if lease is not None and (
            self._observed is None or lease.version != self._observed.version
        ):
            self._observed, self._changed_at = lease, now

    def _remaining_s(self) -> float:
        """Return how long another replica may still hold the lease; 0 when it is free."""
        if self._observed is None or self._observed.holder in ("", self._identity):
            return 0.0
        return self._changed_at + self._observed.duration_s - self._clock.monotonic()

    def _delay_s(self) -> float:
        """Return the seconds until the next read: soon, and not much later than it expires."""
        left_s = self._remaining_s()
        return min(self._timing.poll_s, left_s) if left_s > 0 else self._timing.poll_s

    def _write(self, lease: Lease) -> None:
        timestamp, is_new = self._timestamp(), lease.holder != self._identity
        sent = self._clock.monotonic()
        self._held = self._leases.write(
            Lease(
                holder=self._identity,
                duration_s=self._timing.duration_s,
                acquired=timestamp if is_new else lease.acquired,
                renewed=timestamp,
                transitions=lease.transitions + (is_new and lease.version != ""),
                version=lease.version,
            )
        )
        self._tracker.renewed(sent + self._timing.renew_s, self._identity)

    def _timestamp(self) -> str:
        timestamp = datetime.fromtimestamp(self._clock.now(), UTC)
        return timestamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FollowedLease:
    """Reads the Lease of a kube-scheduler whose identity begins with *hostname*."""

    def __init__(
        self,
        leases: Leases,
        hostname: str,
        timing: LeaseTiming,
        clock: Clock,
        tracker: LeaseTracker,
    ) -> None:
        self._leases = leases
        self._hostname = hostname
        self._timing = timing
        self._clock = clock
        self._tracker = tracker
        self._observed: Lease | None = None
        #: When the read that returned the last observed state was begun.
        self._read_at: float | None = None
        #: The last renewal was not earlier than this.
        self._renewed_after = float("-inf")

    def step(self) -> float:
        """Read the lease once and return the seconds until the next read."""
        began = self._clock.monotonic()
        try:
            lease = self._leases.read()
        except ApiError as error:
            self._tracker.failed(error)
        else:
            self._tracker.error = ""
            self._observe(lease, began)
        # Counts from when the request was sent, as the term does: the response may be slow.
        return max(0.0, began + self._timing.poll_s - self._clock.monotonic())

    def release(self) -> None:
        """Do nothing: the lease belongs to the kube-scheduler."""

    def _observe(self, lease: Lease | None, began: float) -> None:
        if lease is None or not self._is_our_scheduler(lease.holder):
            self._renewed_after = float("-inf")
            self._tracker.lost(lease.holder if lease is not None else "")
        else:
            if self._read_at is not None and _renewal(lease) != _renewal(self._observed):
                self._renewed_after = self._read_at
            until = min(
                self._renewed_after + lease.duration_s * self._timing.share,
                began + self._timing.fresh_s,
            )
            if until > self._clock.monotonic():
                self._tracker.renewed(until, lease.holder)
        self._observed, self._read_at = lease, began

    def _is_our_scheduler(self, holder: str) -> bool:
        return holder.rpartition("_")[0] == self._hostname


def _renewal(lease: Lease | None) -> tuple[str, str] | None:
    return (lease.holder, lease.renewed) if lease is not None else None
