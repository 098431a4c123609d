"""The real time; where decisions are made, a clock is handed in."""

from __future__ import annotations

import time


class SystemClock:
    """The `Clock` of everything but tests."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
