"""What all tests rely on."""

from __future__ import annotations

import signal

from hypothesis import settings

# No test is timed: a busy machine is no fault. What derives from here has it too.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    # A shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that;
    # programs of ours that a test ends that way would run for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
