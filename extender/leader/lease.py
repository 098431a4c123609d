"""Our own Lease: taken when it is free or was not renewed in time, renewed, given back at the end.

Whether another's lease has run out is judged by when we saw it change last, never by the times
written in it: clocks differ and step. Our own term is counted from before the renewal was sent,
and ends well before anybody who saw that renewal may think that it has run out.
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
    """The three times of a Lease, as client-go has them; others wait longer than we act."""

    #: Others may take it so long after they saw it change.
    duration_s: float = 15.0
    #: Our term ends so long after we sent the last renewal that was taken.
    renew_s: float = 10.0
    #: How often it is renewed.
    retry_s: float = 2.0

    @property
    def look_s(self) -> float:
        """How often somebody else's is looked at: what was given back should not lie around."""
        return self.retry_s / 2

    @property
    def fresh_s(self) -> float:
        """How long a look at a lease that may be given back at any time is believed."""
        return self.renew_s / 2

    @property
    def share(self) -> float:
        """What part of a lease's duration its holder's side may act."""
        return self.renew_s / self.duration_s


log = logging.getLogger(__name__)
#: How often the loop looks whether the term is over though nobody said so.
LOOK_S = 0.1


class CallsSoon(Protocol):
    """The event loop, for those who live in other threads."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as the loop has time."""


class LeaseTracker:
    """Takes what the keeper of the lease saw, and tells of beginnings and ends in turn."""

    def __init__(self, term: Term, loop: CallsSoon, metrics: Metrics) -> None:
        self._term = term
        self._loop = loop
        self._metrics = metrics
        self._listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []
        #: The term of which everybody was told that it began; 0 once they know of its end.
        self._told = 0
        #: Raised when the keeper says that the lease is lost: what it said before is void.
        self._era = 0
        self._is_over = False
        #: Who held the lease when it was seen last, and by what name it was ours.
        self.leader = self._ours = ""
        #: Why the lease could not be read or written, since it last could.
        self.trouble = ""
        metrics.leader.set_function(lambda: float(bool(term.current())))

    def on_change(self, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call *begun* when a term of ours has begun, and *ended* when it is over."""
        self._listeners.append((begun, ended))

    # Told by the keeper of the lease, in its thread

    def renewed(self, until: float, leader: str) -> None:
        """Hear that the lease is ours; we may act until *until*."""
        self.leader = self._ours = leader
        self._loop.call_soon(partial(self._renew, self._era, until))

    def lost(self, leader: str = "") -> None:
        """Hear that the lease is not ours."""
        self.leader = leader
        self._era += 1
        self._term.end()
        self._loop.call_soon(self.look)

    def resign(self) -> None:
        """End the term, and begin none any more; from any thread."""
        self._is_over = True
        self.lost()

    # In the event loop

    def look(self) -> bool:
        """Tell everybody if the term is over; there is never more to do at once."""
        if self._told and not self._term.holds(self._told):
            self._told = 0
            if self.leader == self._ours:
                self.leader = ""  # it ran out, and who leads now nobody has told us
            self._metrics.leader_changes.labels("lost").inc()
            event(log, logging.WARNING, "leadership lost", leader=self.leader)
            for _, ended in self._listeners:
                ended()
        return False

    def _renew(self, era: int, until: float) -> None:
        if era != self._era or self._is_over:
            return
        self.look()
        is_next = not self._told
        (self._term.begin if is_next else self._term.extend)(until)
        if era != self._era:
            self._term.end()  # it was lost while we were at it, and that is the last word
        if not is_next:
            return
        self._told = self._term.current()
        if not self._told:
            return  # it took too long to hear of it
        self._metrics.leader_changes.labels("got").inc()
        event(log, logging.INFO, "leadership got", leader=self.leader)
        for begun, _ in self._listeners:
            begun()

    # Asked by anybody

    def readiness(self) -> list[str]:
        """Say who leads while it is not us."""
        if self._told and self._term.holds(self._told):
            return []
        why = f" ({self.trouble})" if self.trouble else ""
        return [f"standby: {self.leader or 'nobody we know of'} leads{why}"]


#: What is written on a lease that was given back: it lasts for nobody.
_GIVEN_BACK_S = 1.0


class OwnLease:
    """Stands for the lease of one name, in a thread of its own."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        spans: LeaseTiming,
        clock: Clock,
        succession: LeaseTracker,
        *,
        is_warm: Callable[[], bool],
    ) -> None:
        """*is_warm* says whether we could lead: who knows nothing yet must not stand."""
        self._leases = leases
        self._identity = identity
        self._spans = spans
        self._clock = clock
        self._succession = succession
        self._is_warm = is_warm
        #: As we wrote it last; None when it is somebody else's, or nobody knows.
        self._mine: Lease | None = None
        #: Somebody else's as we saw it last, and when we saw it change.
        self._seen: Lease | None = None
        self._changed_at = float("-inf")
        self._failed = False

    def step(self) -> float:
        """Look, take or renew, and give the seconds until the next step."""
        try:
            if self._mine is None:
                self._look()
            else:
                self._write(self._mine)
        except ApiError as error:
            # It may have been written all the same: only a look can tell.
            is_renewal, self._mine = self._mine is not None, None
            self._complain(error)
            # Somebody wrote to ours, or deleted it, by hand: another may lead by it already.
            is_overtaken = is_renewal and error.status in (404, 409)
            return 0.0 if is_overtaken else self._spans.look_s
        self._failed, self._succession.trouble = False, ""
        return self._spans.retry_s if self._mine is not None else self._rest_s()

    def release(self) -> None:
        """Give it back, so that the next one need not wait; after the term was ended."""
        try:
            lease = self._mine or self._leases.read()
            if lease is not None and lease.holder == self._identity:
                self._leases.write(
                    msgspec.structs.replace(
                        lease, holder="", duration_s=_GIVEN_BACK_S, renewed=self._moment()
                    )
                )
                event(log, logging.INFO, "lease given back")
        except ApiError as error:
            event(log, logging.WARNING, "lease not given back", why=str(error))
        self._mine = None

    def _look(self) -> None:
        lease = self._leases.read()
        # Counted from after the answer, however long it took: it may be newer than we think.
        self._note(lease, self._clock.monotonic())
        if lease is not None and lease.holder == self._identity:
            self._write(lease)
            return
        self._succession.lost(lease.holder if lease is not None else "")
        if self._left_s() <= 0 and self._is_warm():
            self._write(lease or Lease())

    def _note(self, lease: Lease | None, now: float) -> None:
        # One that was deleted runs on: its holder does not know yet.
        if lease is not None and (self._seen is None or lease.version != self._seen.version):
            self._seen, self._changed_at = lease, now

    def _left_s(self) -> float:
        """Tell how long the lease is somebody else's at most; nothing when it is free."""
        if self._seen is None or self._seen.holder in ("", self._identity):
            return 0.0
        return self._changed_at + self._seen.duration_s - self._clock.monotonic()

    def _rest_s(self) -> float:
        """Look again soon, and not much later than it runs out."""
        left_s = self._left_s()
        return min(self._spans.look_s, left_s) if left_s > 0 else self._spans.look_s

    def _write(self, lease: Lease) -> None:
        moment, is_new = self._moment(), lease.holder != self._identity
        sent = self._clock.monotonic()
        self._mine = self._leases.write(
            Lease(
                holder=self._identity,
                duration_s=self._spans.duration_s,
                acquired=moment if is_new else lease.acquired,
                renewed=moment,
                transitions=lease.transitions + (is_new and lease.version != ""),
                version=lease.version,
            )
        )
        self._succession.renewed(sent + self._spans.renew_s, self._identity)

    def _moment(self) -> str:
        moment = datetime.fromtimestamp(self._clock.now(), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _complain(self, error: ApiError) -> None:
        # A conflict is news of somebody else, not trouble; and trouble is told once.
        if error.status == 409:
            return
        self._succession.trouble = str(error)
        if not self._failed:
            self._failed = True
            event(log, logging.WARNING, "lease not reached", why=str(error))


class FollowedLease:
    """Reads the lease of somebody whose identity begins with *hostname*."""

    def __init__(
        self,
        leases: Leases,
        hostname: str,
        spans: LeaseTiming,
        clock: Clock,
        succession: LeaseTracker,
    ) -> None:
        self._leases = leases
        self._hostname = hostname
        self._spans = spans
        self._clock = clock
        self._succession = succession
        self._seen: Lease | None = None
        #: When the look was begun that showed what we saw last.
        self._looked_at: float | None = None
        #: It was renewed after this, for all we know.
        self._renewed_after = float("-inf")
        self._failed = False

    def step(self) -> float:
        """Look, and give the seconds until the next look."""
        began = self._clock.monotonic()
        try:
            lease = self._leases.read()
        except ApiError as error:
            self._succession.trouble = str(error)
            if not self._failed:
                self._failed = True
                event(log, logging.WARNING, "lease not reached", why=str(error))
        else:
            self._failed, self._succession.trouble = False, ""
            self._note(lease, began)
        # Counted from when we asked: the term is, too, and an API server may take its time.
        return max(0.0, began + self._spans.look_s - self._clock.monotonic())

    def release(self) -> None:
        """Leave it to whom it belongs."""

    def _note(self, lease: Lease | None, began: float) -> None:
        if lease is None or not self._is_beside_us(lease.holder):
            self._renewed_after = float("-inf")
            self._succession.lost(lease.holder if lease is not None else "")
        else:
            if self._looked_at is not None and _renewal(lease) != _renewal(self._seen):
                self._renewed_after = self._looked_at
            until = min(
                self._renewed_after + lease.duration_s * self._spans.share,
                began + self._spans.fresh_s,
            )
            if until > self._clock.monotonic():
                self._succession.renewed(until, lease.holder)
        self._seen, self._looked_at = lease, began

    def _is_beside_us(self, holder: str) -> bool:
        return holder.rpartition("_")[0] == self._hostname


def _renewal(lease: Lease | None) -> tuple[str, str] | None:
    return (lease.holder, lease.renewed) if lease is not None else None
