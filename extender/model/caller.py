"""Those who should ask us: what is known of the kube-scheduler behind a scheduler name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Voice(Enum):
    """What we hear of it; only the first two may have room."""

    HEARD = "heard"  # it has asked us since we lead
    EXPECTED = "expected"  # it has looked at pods of that name, and not asked us since we lead
    UNHEARD = "not heard yet"  # no trace of anybody who serves that name
    SILENT = "silent"  # pods wait for it, it was called, and nobody came
    ELSEWHERE = "elsewhere"  # it lives, and another extender answers it


_SERVED = frozenset({Voice.HEARD, Voice.EXPECTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One scheduler name at one moment."""

    name: str
    voice: Voice
    #: When it last asked us, in seconds since the epoch; 0 when it has not since we lead.
    asked_at: float = 0.0
    #: Since when we have listened in vain, in the same seconds.
    quiet_since: float = 0.0
    #: It gave a sign of life since we lead, and if it did not ask us, we have waited for a rival.
    is_alive: bool = True
    #: Another extender that wakes pods of that name, by its own account; empty without.
    rival: str = ""

    @property
    def may_have_room(self) -> bool:
        """Ask whether room for its pods may be kept: somebody will come for it."""
        return self.voice in _SERVED

    @property
    def may_claim(self) -> bool:
        """Ask whether others may have to leave, or be kept out, for its pods.

        Traces from before we led are not enough: by them alone nobody knows that it still runs.
        """
        return self.voice in _SERVED and self.is_alive

    def _of_rival(self) -> str:
        if not self.rival:
            return ""
        return (
            f"another extender ({self.rival}) acts on pods of scheduler name {self.name} beside"
            " us; end one of the two, or let one stand by (--lease)"
        )

    def words(self, now: float) -> str:
        """Say what we hear of it, in a few words."""
        if not self.asked_at:
            return self.voice.value
        return f"{self.voice.value}, asked {span(now - self.asked_at)} ago"

    def complaint(self, now: float) -> str:
        """Say what is wrong and what to look at, at *now*; empty when nothing is."""
        if self.voice is Voice.UNHEARD:
            return f"no kube-scheduler has asked for pods of scheduler name {self.name} yet"
        if self.voice is Voice.ELSEWHERE:
            who = f" ({self.rival})" if self.rival else ""
            return (
                f"kube-scheduler asks another extender{who} for pods of scheduler name {self.name},"
                " not us; end one of the two, or let one stand by (--lease)"
            )
        if self.voice is not Voice.SILENT:
            return self._of_rival()
        how_long = f"for {span(now - self.quiet_since)}"
        if not self.asked_at:
            how_long = f"since we began to listen {span(now - self.quiet_since)} ago"
        return (
            f"no kube-scheduler has asked for pods of scheduler name {self.name} {how_long}: is it"
            " running, and does a profile serve that name?"
        )


def span(seconds: float) -> str:
    """Write a span of time coarsely, so that a sentence with it does not change all the time."""
    if seconds < 120:
        return f"{max(0, int(seconds)) // 10 * 10} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
