"""Can the mirror be trusted? Which sources have listed everything, and when each last spoke."""

from __future__ import annotations

from dataclasses import dataclass

#: Bookmarks come about every minute; a watch silent for longer is dead or blocked.
STALE_S = 90.0


@dataclass(slots=True)
class _Source:
    listed: bool = False
    heard_at: float = 0.0
    trouble: str = ""
    is_forbidden: bool = False


class Freshness:
    """Kept by the watches, read by probes; every fact is one reference, so nobody locks."""

    def __init__(self, stale_s: float = STALE_S) -> None:
        self._stale_s = stale_s
        self._sources: dict[str, _Source] = {}
        #: Everything was listed and heard of when last looked at; by then something may be silent.
        self._well_until = float("-inf")

    def expect(self, source: str, now: float) -> None:
        """Wait for *source* before anything is decided."""
        self._well_until = float("-inf")
        self._sources[source] = _Source(heard_at=now)

    def heard(self, source: str, now: float) -> None:
        """Note a sign of life."""
        self._sources[source].heard_at = now

    def listed(self, source: str, now: float) -> None:
        """Note that everything *source* has is known (it may have nothing)."""
        entry = self._sources[source]
        entry.listed, entry.heard_at, entry.trouble = True, now, ""

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

    def silence(self, now: float) -> dict[str, float]:
        """Give the seconds since each source last spoke, for the metric."""
        return {name: now - entry.heard_at for name, entry in self._sources.items()}

    def complaints(self, now: float) -> list[str]:
        """Say in sentences what is missing; nothing when the mirror can be trusted."""
        if now <= self._well_until:
            return []  # asked with every hook call
        found = [
            sentence
            for name, entry in sorted(self._sources.items())
            if (sentence := self._complaint(name, entry, now))
        ]
        if self._sources and not found:
            oldest = min(entry.heard_at for entry in self._sources.values())
            self._well_until = oldest + self._stale_s
        return found

    def _complaint(self, name: str, entry: _Source, now: float) -> str:
        why = f" ({entry.trouble})" if entry.trouble else ""
        if not entry.listed:
            return f"{name}: first list not complete{why}"
        if entry.is_forbidden:
            return f"{name}: changes are not heard{why}"
        silent_s = now - entry.heard_at
        return f"{name}: watch silent for {silent_s:.0f} s{why}" if silent_s > self._stale_s else ""
