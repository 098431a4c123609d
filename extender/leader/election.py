"""Leadership as the rest of the house knows it: a mandate, a readiness, a start and an end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol
from uuid import uuid4

from extender.errors import InvalidConfiguration
from extender.leader.fencing import Term
from extender.leader.label import LeaderLabel
from extender.leader.lease import CallsSoon, FollowedLease, LeaseTiming, LeaseTracker, OwnLease
from extender.metrics import Metrics
from extender.ports import AlwaysLeader, Clock, Fencing, LeaderLabels, Leases
from extender.settings import Settings

log = logging.getLogger(__name__)
#: After a step that stumbled.
AGAIN_S = 1.0
#: How long the end waits for a step under way.
_LAST_S = 5.0


class KeepsLease(Protocol):
    """Our own lease, or one that we follow."""

    def step(self) -> float:
        """Do what is due and give the seconds until the next step."""

    def release(self) -> None:
        """Give it back if it is ours."""


class LeaseThread:
    """Steps until told to stop."""

    def __init__(
        self, lease: KeepsLease, succession: LeaseTracker, *, again_s: float = AGAIN_S
    ) -> None:
        self._lease = lease
        self._succession = succession
        self._again_s = again_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def release(self) -> None:
        """End the term, then give the lease back; waits for the API server, but not for ever."""
        self._succession.resign()
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=_LAST_S)
        # While a renewal is under way nobody could tell whose word is the last.
        if not self._thread.is_alive():
            self._lease.release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause_s = self._lease.step()
            except Exception:
                # Without a next step the term ends by itself, and would never begin again.
                log.exception("lease step failed")
                pause_s = self._again_s
            self._stopping.wait(pause_s)


class LeaderElection:
    """Chooses by the settings whose lease counts; without any, we always lead."""

    def __init__(self, settings: Settings, clock: Clock, loop: CallsSoon, metrics: Metrics) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._term = Term(clock.monotonic)
        self._campaign: LeaseThread | None = None
        self._signpost: LeaderLabel | None = None
        self._is_ending = False
        self.is_shared = settings.lease != "none"
        self.mandate: Fencing = self._term if self.is_shared else AlwaysLeader()
        self._succession = LeaseTracker(self._term, loop, metrics) if self.is_shared else None

    def on_change(self, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call *begun* when a term of ours has begun, and *ended* when it is over."""
        if self._succession is not None:
            self._succession.on_change(begun=begun, ended=ended)

    def run(
        self, leases: Leases | None, signs: LeaderLabels | None, *, is_warm: Callable[[], bool]
    ) -> None:
        """Say where the lease is, and what shows who leads; *is_warm*: whether we could."""
        if self._succession is None:
            return
        if leases is None:
            raise InvalidConfiguration("--lease needs a cluster that has leases")
        settings = self._settings
        spans = LeaseTiming(
            duration_s=settings.lease_duration_s,
            renew_s=settings.lease_renew_s,
            retry_s=settings.lease_retry_s,
        )
        name = settings.lease_identity or os.uname().nodename
        keeper = (
            # A name that no former life of ours had: that one may only be frozen.
            OwnLease(
                leases,
                f"{name}_{uuid4()}",
                spans,
                self._clock,
                self._succession,
                is_warm=lambda: is_warm() and not self._is_ending,
            )
            if settings.lease == "own"
            else FollowedLease(leases, name, spans, self._clock, self._succession)
        )
        self._campaign = LeaseThread(keeper, self._succession)
        if signs is not None:
            self._signpost = LeaderLabel(signs, self.mandate, self._metrics)
            self.on_change(begun=self._signpost.begun, ended=lambda: None)

    def readiness(self) -> list[str]:
        """Say who leads while it is not us."""
        return self._succession.readiness() if self._succession is not None else []

    def look(self) -> bool:
        """Notice the end of a term; in the event loop, again and again."""
        return self._succession.look() if self._succession is not None else False

    def start(self) -> None:
        """Begin to keep the lease."""
        for each in (self._campaign, self._signpost):
            if each is not None:
                each.start()

    def drain(self) -> None:
        """Hear that we are about to end.

        Our own lease we keep for what was sent, but take it no more: we would answer nobody. The
        scheduler beside us gives its back now.
        """
        self._is_ending = True
        if self._signpost is not None:
            self._signpost.retire()
        if self._succession is not None and self._settings.lease == "scheduler":
            self._succession.resign()

    def resign(self) -> None:
        """End the term and give the lease back; waits for the API server, but not for ever."""
        if self._signpost is not None:
            self._signpost.wait_until_retired()
        if self._campaign is not None:
            self._campaign.release()
