"""What all tests rely on."""

from __future__ import annotations

import signal

import pytest

from . import strategies  # noqa: F401 - loads the Hypothesis profile before any test module


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets its background jobs ignore Ctrl-C, and their children inherit that:
    # a program that a test ends with Ctrl-C would run for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
