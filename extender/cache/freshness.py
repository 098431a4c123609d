"""Age of each watch: whether all sources are listed, and when each last received something."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

#: Bookmarks arrive about every minute; a watch silent for longer is dead or blocked.
STALE_S = 90.0
#: The API server is probed every few seconds; no answer for this long is more than a hiccup.
SILENT_S = 10.0
#: What arrived this shortly before the answer to a probe arrived after the silence.
_RECENT_S = 2.0
#: The name of the probe among the sources; no resource has this name.
PULSE = "API server"


@dataclass(slots=True)
class _Source:
    listed: bool = False
    received_at: float = 0.0
    error: str = ""
    is_forbidden: bool = False
    #: Since when a new list is needed; changes after that are known only once it is complete.
    relisted_since: float | None = None


class Freshness:
    """Written by the watches, read by health checks; each fact is one reference, so no lock."""

    def __init__(self, stale_s: float = STALE_S, silent_s: float = SILENT_S) -> None:
        self._stale_s = stale_s
        self._silent_s = silent_s
        self._sources: dict[str, _Source] = {}
        #: When the API server last answered a probe; None while it is not probed.
        self._probed_at: float | None = None
        self._probe_error = ""
        #: Anything older may be outdated, because nothing was received meanwhile.
        self._trusted_from = float("-inf")
        #: Until then no check is needed: everything was complete when last checked.
        self._fresh_until = float("-inf")

    def expect(self, source: str, now: float) -> None:
        """Wait for *source* before anything is decided."""
        self._fresh_until = float("-inf")
        # Replaced as a whole, because other threads iterate over it.
        self._sources = {**self._sources, source: _Source(received_at=now)}

    def received(self, source: str, now: float) -> None:
        """Record that *source* received something."""
        self._sources[source].received_at = now

    def listed(self, source: str, now: float) -> None:
        """Record that the list of *source* is complete (it may be empty)."""
        entry = self._sources[source]
        entry.listed, entry.received_at, entry.error = True, now, ""
        entry.relisted_since = None

    def relists(self, source: str, as_of: float) -> None:
        """Record that *source*, known as of *as_of*, needs a new list, or still needs it.

        What it receives meanwhile does not make it fresh: a list may break off again and again.
        """
        entry = self._sources[source]
        if entry.relisted_since is None:
            entry.relisted_since = as_of
            self._fresh_until = float("-inf")

    def followed(self, source: str) -> None:
        """Record that changes are received from now on."""
        self._sources[source].is_forbidden = False

    def failed(self, source: str, why: str) -> None:
        """Record why *source* cannot be watched at the moment."""
        self._sources[source].error = why

    def forbidden(self, source: str, why: str) -> None:
        """Record that watching *source* is forbidden; that does not end by itself."""
        entry = self._sources[source]
        entry.error, entry.is_forbidden = why, True
        self._fresh_until = float("-inf")

    def expect_probe(self, now: float) -> None:
        """Expect regular answers to probes of the API server, whatever its watches deliver."""
        self._fresh_until = float("-inf")
        self._probed_at = now

    def probe_answered(self, now: float) -> float:
        """Record an answer of the API server; return how long it was silent, 0 when it was not.

        After a silence each source must receive something again: its connection may be dead.
        """
        before, self._probe_error = self._probed_at, ""
        silent_s = 0.0 if before is None else now - before
        if silent_s <= self._silent_s:
            self._probed_at = now
            return 0.0
        self._fresh_until = float("-inf")
        self._trusted_from = now - _RECENT_S
        self._probed_at = now
        return silent_s

    def probe_failed(self, why: str) -> None:
        """Record why the API server does not answer at the moment."""
        self._probe_error = why

    def is_silent(self, now: float) -> bool:
        """Return whether the API server has not answered for too long."""
        return self._probed_at is not None and now - self._probed_at > self._silent_s

    def current_at(self, source: str) -> float:
        """Return as of when *source* is complete; infinite for an unknown source."""
        entry = self._sources.get(source)
        return inf if entry is None else _current_at(entry)

    def is_suspect(self, source: str) -> bool:
        """Return whether *source* has received nothing since the API server was silent."""
        return self._sources[source].received_at < self._trusted_from

    def silence(self, now: float) -> dict[str, float]:
        """Return the seconds since each source last received something, for the metric."""
        found = {name: now - entry.received_at for name, entry in self._sources.items()}
        return found if self._probed_at is None else {**found, PULSE: now - self._probed_at}

    def problems(self, now: float) -> list[str]:
        """Return sentences on what is missing; none when the cache is complete."""
        if now <= self._fresh_until:
            return []  # called for every hook call
        # Read first: if the API server answers meanwhile, the sources must be checked too.
        probed_at = self._probed_at
        if probed_at is not None and now - probed_at > self._silent_s:
            why = f" ({self._probe_error})" if self._probe_error else ""
            return [f"{PULSE}: no answer for {now - probed_at:.0f} s{why}; the cache is as old"]
        found = [
            sentence
            for name, entry in sorted(self._sources.items())
            if (sentence := self._problem(name, entry, now))
        ]
        if self._sources and not found:
            oldest = min(map(_current_at, self._sources.values()))
            until = oldest + self._stale_s
            if probed_at is not None:
                until = min(until, probed_at + self._silent_s)
            self._fresh_until = until
        return found

    def _problem(self, name: str, entry: _Source, now: float) -> str:
        why = f" ({entry.error})" if entry.error else ""
        if not entry.listed:
            return f"{name}: first list not complete{why}"
        if entry.is_forbidden:
            return f"{name}: changes are not received{why}"
        silent_s, current_at = now - entry.received_at, _current_at(entry)
        behind_s = now - current_at
        if current_at < self._trusted_from:
            since = f"since the API server fell silent {behind_s:.0f} s ago"
            return f"{name}: nothing received {since}{why}"
        if behind_s > max(silent_s, self._stale_s):
            return f"{name}: new list not complete for {behind_s:.0f} s{why}"
        return f"{name}: watch silent for {silent_s:.0f} s{why}" if silent_s > self._stale_s else ""


def _current_at(entry: _Source) -> float:
    """Return as of when the source is complete."""
    since = entry.relisted_since
    return entry.received_at if since is None else min(entry.received_at, since)
