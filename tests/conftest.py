"""Fixtures and hooks of all tests."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

from . import strategies  # noqa: F401 - loads the Hypothesis profile before any test module


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets its background jobs ignore Ctrl-C, and their children inherit that:
    # a program that a test ends with Ctrl-C would run for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo the log handlers and levels that a command in this process sets up."""
    root, ours = logging.getLogger(), logging.getLogger("extender")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    if root.handlers != handlers:
        root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
