"""Our own Lease: taken when it is free or was not renewed in time, renewed, given back at the end.

Whether another's lease has run out is judged by when we saw it change last, never by the times
written in it: clocks differ and step. Our own term is counted from before the renewal was sent,
and ends well before anybody who saw that renewal may think that it has run out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from extender.errors import ApiError
from extender.leadership.spans import Spans
from extender.leadership.succession import Succession
from extender.logs import event
from extender.ports import Clock, Lease, Leases

log = logging.getLogger(__name__)

#: What is written on a lease that was given back: it lasts for nobody.
_GIVEN_BACK_S = 1.0


class OwnLease:
    """Stands for the lease of one name, in a thread of its own."""

    def __init__(
        self,
        leases: Leases,
        identity: str,
        spans: Spans,
        clock: Clock,
        succession: Succession,
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
