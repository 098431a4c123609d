"""How long does kube-scheduler really wait? Learnt from the calls it gave up.

Its httpTimeout is not on the wire. But it closes the connection exactly then, so calls that die
at the same age again and again betray it. A restart closes everything at once, at ages that
mean nothing: closes of the same moment are therefore one observation, and only three of them
that agree are believed. What was learnt is forgotten after a while, so that a mended
configuration shows.
"""

from __future__ import annotations

from collections import deque

from extender.holds.machine.limits import Limits

_AGREE = 3
_SPREAD_S = 0.25
_SAME_MOMENT_S = 1.0
_MEMORY_S = 600.0
#: Nobody configures less; whoever hangs up sooner is not kube-scheduler running out of time.
_LEAST_S = 1.0


class Patience:
    """The limits in force: the configured ones, or shorter ones learnt from experience."""

    def __init__(self, configured: Limits) -> None:
        self._configured = configured
        self._limits = configured
        self._ages: deque[float] = deque(maxlen=_AGREE)
        self._last_close = float("-inf")
        self._learnt_s: float | None = None
        self._learnt_at = 0.0

    def limits(self, now: float) -> Limits:
        """Give the limits to use at *now*."""
        if self._learnt_s is not None and now - self._learnt_at > _MEMORY_S:
            self._learnt_s, self._limits = None, self._configured
            self._ages.clear()
        return self._limits

    @property
    def learnt_timeout_s(self) -> float | None:
        """The httpTimeout kube-scheduler seems to have, when it is shorter than configured."""
        return self._learnt_s

    def peer_closed(self, age_s: float, now: float) -> None:
        """Hear that a call was given up by its caller *age_s* after it came."""
        same_moment = now - self._last_close < _SAME_MOMENT_S
        self._last_close = now
        if same_moment or age_s < _LEAST_S:
            return
        self._ages.append(age_s)
        if len(self._ages) == _AGREE and max(self._ages) - min(self._ages) <= _SPREAD_S:
            self._believe(min(self._ages), now)

    def _believe(self, timeout_s: float, now: float) -> None:
        if timeout_s >= self._configured.bind_timeout_s - _SPREAD_S:
            return
        self._learnt_s, self._learnt_at = timeout_s, now
        self._limits = self._configured.for_timeout(timeout_s)
