"""The Lease of the kube-scheduler beside us: while it leads, so do we.

Its holder is named `<hostname>_<uuid>`, and the containers of a pod share their hostname. A lease
that we did not write tells only that it was renewed between two looks, so the term is counted
from the earlier. And as its holder may give it back at any time, a term lasts no longer than our
last look is fresh.
"""

from __future__ import annotations

import logging

from extender.errors import ApiError
from extender.leadership.spans import Spans
from extender.leadership.succession import Succession
from extender.logs import event
from extender.ports import Clock, Lease, Leases

log = logging.getLogger(__name__)


class FollowedLease:
    """Reads the lease of somebody whose identity begins with *hostname*."""

    def __init__(
        self,
        leases: Leases,
        hostname: str,
        spans: Spans,
        clock: Clock,
        succession: Succession,
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
