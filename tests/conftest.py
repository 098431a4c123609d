"""What all tests rely on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from . import disturbed

# No test is timed: a busy machine is no fault. What derives from here has it too.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

#: Minutes in a few tests: begun last, one worker would do them while all others have nothing to do.
LONG = ("system/test_machine.py", "holds/test_machine.py", "attacks/test_serve.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that;
    # programs of ours that a test ends that way would run for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(disturbed.Host())


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    yield
    disturbed.tell(terminalreporter)
