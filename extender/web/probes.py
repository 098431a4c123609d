"""Alive, ready, warm: what a kubelet asks, answered without waiting for anything."""

from __future__ import annotations

from collections.abc import Callable

from extender.text.plain import lines

#: Nothing we do on the loop of the hooks takes a tenth of this.
_SILENT_S = 20.0


class Probes:
    """Answers from memory, in whatever thread asks.

    *readiness* says what must be mended before we decide anything; *warmth* the same of the mirror
    alone; *standby* who leads while it is not us; *notes* what should be mended although we go on.
    """

    PATHS = ("/healthz", "/readyz", "/warmz")

    def __init__(
        self,
        *,
        readiness: Callable[[], list[str]],
        warmth: Callable[[], list[str]],
        standby: Callable[[], list[str]],
        notes: Callable[[], list[str]],
    ) -> None:
        self._readiness = readiness
        self._warmth = warmth
        self._standby = standby
        self._notes = notes
        self._silent_s: Callable[[], float] = lambda: 0.0

    def listen_for(self, silent_s: Callable[[], float]) -> None:
        """Call us dead when the loop of the hooks, *silent_s* ago last heard of, comes no more."""
        self._silent_s = silent_s

    def ask(self, path: str) -> tuple[int, str]:
        """Give the status of a probe, and what it has to say in lines."""
        if path == "/healthz":
            wrong, besides = self._health(), []
        elif path == "/readyz":
            # Whether the mirror can be trusted, and if not, what is missing.
            wrong, besides = self._readiness(), self._notes()
        else:
            # Whether we could lead: of a standby nothing more can be asked.
            wrong, besides = self._warmth(), self._standby()
        return 503 if wrong else 200, lines(*(wrong or ["ok"]), *besides)

    def _health(self) -> list[str]:
        silent_s = self._silent_s()
        if silent_s <= _SILENT_S:
            return []
        return [f"the hooks have not answered for {silent_s:.0f} s"]
