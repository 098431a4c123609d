"""Certificates that change while we run: new connections get the new, a bad pair changes nothing.

Secrets are mounted behind a link that is swapped, so files are known by where the link leads, not
only by their times. Whoever writes two files writes one of them first: a pair that does not match
is looked at again and again until it does.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from typing import TypeAlias

from extender.errors import BadConfiguration
from extender.logs import event
from extender.metrics import Metrics, expect
from extender.settings import Settings
from extender.timing.clock import timestamp
from extender.tls import files
from extender.tls.contexts import ChangingContext, build, changing
from extender.tls.files import Checked, Files, NamedFile
from extender.tls.guard import REASONS, Guard

log = logging.getLogger(__name__)

#: How often the files are looked at.
LOOK_S = 5.0

#: Enough to see that a file is another: where it really is, and which content that was.
Stamp: TypeAlias = tuple[str, int, int, int] | None


def of_the_hooks(settings: Settings) -> Certificates | None:
    """Load what the hook port shows and demands; none while it speaks plain HTTP."""
    found = files.of_the_hooks(settings)
    return Certificates("hooks", found, Guard(settings.client_name)) if found else None


def of_operations(settings: Settings) -> Certificates | None:
    """Load what the operations port shows; none while it speaks plain HTTP."""
    found = files.of_operations(settings)
    return Certificates("operations", found) if found else None


class Certificates:
    """What one port shows and demands, as the files had it when they were last good."""

    def __init__(
        self,
        port: str,
        shown: Files,
        guard: Guard | None = None,
        now: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
    ) -> None:
        self.port = port
        #: How often they want to be looked at.
        self.look_s = look_s
        self.guard = guard
        #: Why the files as they are now are not in force, in one sentence; empty when they are.
        self.refusal = ""
        self._files = shown
        self._now = now
        self._stamps = self._look_at_files()
        self._checked = files.check(shown, now())
        self._context = build(shown, self._checked, guard)

    @property
    def problem(self) -> str:
        """Say what somebody should mend; empty when nothing."""
        if self.refusal:
            return self.refusal
        for file, at in self.expiries().items():
            if at <= self._now():
                return f"{file}: expired at {timestamp(at)}; renew it"
        return ""

    def expiries(self) -> dict[NamedFile, float]:
        """Give for each file in force the time at which it expires."""
        ends = {self._files.certificate: self._checked.not_after}
        if self._files.client_ca is not None:
            ends[self._files.client_ca] = self._checked.client_ca_not_after
        return ends

    def show_in(self, metrics: Metrics) -> None:
        """Let *metrics* tell what becomes of them, and of those they refuse."""
        metrics.certificate_refused.labels(self.port).set_function(lambda: bool(self.refusal))
        for file in self.expiries():
            expiry = metrics.certificate_expiry.labels(file.flag.removeprefix("--"))
            expiry.set_function(lambda file=file: self.expiries()[file])  # type: ignore[misc]
        if self.guard is not None:
            expect(metrics.tls_refused, *((reason,) for reason in REASONS))
            self.guard.on_refused(lambda reason: metrics.tls_refused.labels(reason).inc())

    def in_force(self) -> ssl.SSLContext:
        """Give the context of connections that begin now."""
        return self._context

    def context(self) -> ChangingContext:
        """Give a context for a server, that is always the one in force."""
        return changing(self.in_force)

    def look(self) -> bool:
        """Take the files if they have changed and can be used; true if they should settle first."""
        stamps = self._look_at_files()
        if stamps == self._stamps and not self.refusal:
            return False
        try:
            checked = files.check(self._files, self._now())
            context = build(self._files, checked, self.guard)
        except BadConfiguration as error:
            self._keep(str(error))
            return False
        if self._look_at_files() != stamps:
            return True  # they changed under our hands
        self._take(stamps, checked, context)
        return False

    def _take(self, stamps: list[Stamp], checked: Checked, context: ssl.SSLContext) -> None:
        self._stamps, self._checked, self._context = stamps, checked, context
        self.refusal = ""
        event(
            log,
            logging.INFO,
            "certificates reloaded",
            port=self.port,
            expires=timestamp(checked.not_after),
        )

    def _keep(self, problem: str) -> None:
        if problem != self.refusal:
            event(
                log,
                logging.ERROR,
                "certificates kept: the new files cannot be used",
                port=self.port,
                why=problem,
            )
        self.refusal = problem

    def _look_at_files(self) -> list[Stamp]:
        return [_stamp(each) for each in self._files]


def _stamp(file: NamedFile) -> Stamp:
    try:
        place = os.path.realpath(file.path)
        about = os.stat(place)
    except OSError:
        return None
    return place, about.st_ino, about.st_mtime_ns, about.st_size
