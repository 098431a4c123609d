"""What all tests rely on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that;
    # programs of ours that a test ends that way would run for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
