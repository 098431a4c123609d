"""How long a lease lasts, when its holder gives up, how often it is looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
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
