"""The real time; where decisions are made, a clock is handed in."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The `Clock` of everything but tests."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


def timestamp(epoch: float) -> str:
    """Write a time as Kubernetes does."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
