"""Can the mirror be trusted? Which sources have listed everything, and when each last spoke."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

#: Bookmarks come about every minute; a watch silent for longer is dead or blocked.
STALE_S = 90.0
#: A pulse is felt every few seconds; one missed for this long is no hiccup.
SILENT_S = 10.0
#: Who spoke this shortly before the pulse came back did so after the silence.
_LATELY_S = 2.0
#: The pulse among the sources; it is of no resource, so no resource has this name.
PULSE = "API server"


@dataclass(slots=True)
class _Source:
    listed: bool = False
    heard_at: float = 0.0
    trouble: str = ""
    is_forbidden: bool = False
    #: As of when we knew all before it is listed anew; what changed since is heard of in the end.
    relisted_since: float | None = None


class Freshness:
    """Kept by the watches, read by probes; every fact is one reference, so nobody locks."""

    def __init__(self, stale_s: float = STALE_S, mute_s: float = SILENT_S) -> None:
        self._stale_s = stale_s
        self._mute_s = mute_s
        self._sources: dict[str, _Source] = {}
        #: When the API server last answered anything at all; None while nobody asks it.
        self._pulse_at: float | None = None
        self._pulse_trouble = ""
        #: What a source said before then may have been overtaken while we heard nothing.
        self._trusted_from = float("-inf")
        #: Everything was listed and heard of when last looked at; by then something may be silent.
        self._well_until = float("-inf")

    def expect(self, source: str, now: float) -> None:
        """Wait for *source* before anything is decided."""
        self._well_until = float("-inf")
        # As a whole: whoever looks at all of them looks from another thread.
        self._sources = {**self._sources, source: _Source(heard_at=now)}

    def received(self, source: str, now: float) -> None:
        """Note a sign of life."""
        self._sources[source].heard_at = now

    def listed(self, source: str, now: float) -> None:
        """Note that everything *source* has is known (it may have nothing)."""
        entry = self._sources[source]
        entry.listed, entry.heard_at, entry.trouble = True, now, ""
        entry.relisted_since = None

    def relists(self, source: str, as_of: float) -> None:
        """Note that *source*, known *as_of* then, has to be listed anew, or still has to be.

        Signs of life are no news meanwhile: a list may break off again and again.
        """
        entry = self._sources[source]
        if entry.relisted_since is None:
            entry.relisted_since = as_of
            self._well_until = float("-inf")

    def followed(self, source: str) -> None:
        """Note that we hear of changes from now on."""
        self._sources[source].is_forbidden = False

    def failed(self, source: str, why: str) -> None:
        """Remember why *source* cannot be followed at the moment."""
        self._sources[source].trouble = why

    def forbidden(self, source: str, why: str) -> None:
        """Remember that we may not follow *source*: that does not pass by itself."""
        entry = self._sources[source]
        entry.trouble, entry.is_forbidden = why, True
        self._well_until = float("-inf")

    def expect_probe(self, now: float) -> None:
        """Wait for the API server to answer again and again, whatever its watches say."""
        self._well_until = float("-inf")
        self._pulse_at = now

    def probe_answered(self, now: float) -> float:
        """Note that the API server answers; give how long it was mute, 0 when it was not.

        After that no source is trusted before it has spoken again: its connection may be dead.
        """
        before, self._pulse_trouble = self._pulse_at, ""
        mute_s = 0.0 if before is None else now - before
        if mute_s <= self._mute_s:
            self._pulse_at = now
            return 0.0
        self._well_until = float("-inf")
        self._trusted_from = now - _LATELY_S
        self._pulse_at = now
        return mute_s

    def probe_failed(self, why: str) -> None:
        """Remember why the API server does not answer at the moment."""
        self._pulse_trouble = why

    def is_silent(self, now: float) -> bool:
        """Ask whether the API server has not answered for too long."""
        return self._pulse_at is not None and now - self._pulse_at > self._mute_s

    def current_at(self, source: str) -> float:
        """Give when we last knew that nothing of *source* was missed; later where nobody asks."""
        entry = self._sources.get(source)
        return inf if entry is None else _current_at(entry)

    def is_suspect(self, source: str) -> bool:
        """Ask whether *source* has said nothing since the API server was mute."""
        return self._sources[source].heard_at < self._trusted_from

    def silence(self, now: float) -> dict[str, float]:
        """Give the seconds since each source last spoke, for the metric."""
        found = {name: now - entry.heard_at for name, entry in self._sources.items()}
        return found if self._pulse_at is None else {**found, PULSE: now - self._pulse_at}

    def complaints(self, now: float) -> list[str]:
        """Say in sentences what is missing; nothing when the mirror can be trusted."""
        if now <= self._well_until:
            return []  # asked with every hook call
        # Read first: it may come back while we look, and then the sources must be looked at too.
        pulse_at = self._pulse_at
        if pulse_at is not None and now - pulse_at > self._mute_s:
            why = f" ({self._pulse_trouble})" if self._pulse_trouble else ""
            return [f"{PULSE}: no answer for {now - pulse_at:.0f} s{why}; what we know is as old"]
        found = [
            sentence
            for name, entry in sorted(self._sources.items())
            if (sentence := self._complaint(name, entry, now))
        ]
        if self._sources and not found:
            oldest = min(map(_current_at, self._sources.values()))
            until = oldest + self._stale_s
            self._well_until = until if pulse_at is None else min(until, pulse_at + self._mute_s)
        return found

    def _complaint(self, name: str, entry: _Source, now: float) -> str:
        why = f" ({entry.trouble})" if entry.trouble else ""
        if not entry.listed:
            return f"{name}: first list not complete{why}"
        if entry.is_forbidden:
            return f"{name}: changes are not heard{why}"
        silent_s, current_at = now - entry.heard_at, _current_at(entry)
        behind_s = now - current_at
        if current_at < self._trusted_from:
            return f"{name}: not heard since the API server fell silent {behind_s:.0f} s ago{why}"
        if behind_s > max(silent_s, self._stale_s):
            return f"{name}: new list not complete for {behind_s:.0f} s{why}"
        return f"{name}: watch silent for {silent_s:.0f} s{why}" if silent_s > self._stale_s else ""


def _current_at(entry: _Source) -> float:
    """Give when we last knew that nothing had been missed."""
    since = entry.relisted_since
    return entry.heard_at if since is None else min(entry.heard_at, since)
