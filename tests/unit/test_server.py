"""The first log line of a process, its signals, and its shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import __version__, logs, server
from extender.permit.timeouts import Timeouts
from extender.settings import Settings

MANIFESTS = Path(__file__).parents[2] / "manifests"
#: The signals that the configuration page lists as ignored.
IGNORED_SIGNALS = ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR2")


def test_the_first_log_line_has_the_version_and_the_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up("info")
        server.log_start(Settings(hold_s=3.5, scheduler_name=("gang-scheduler", "other")))
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])

    assert (line["event"], line["level"]) == ("extender starts", "info")
    assert line["version"] == __version__
    assert line["settings"]["hold_s"] == 3.5
    assert line["settings"]["scheduler_name"] == ["gang-scheduler", "other"]


def test_shutdown_waits_for_sent_bindings_as_long_as_kube_scheduler_does() -> None:
    for settings in (Settings(), Settings(hold_s=62.5, bind_timeout_s=120.5)):
        longest_s = Timeouts.of(settings).answer_s

        assert server.stops_within_s(settings) > longest_s


@pytest.mark.parametrize("overlay", ["second-scheduler", "default-scheduler"])
def test_the_grace_period_of_the_pod_covers_a_shutdown(overlay: str) -> None:
    written = yaml.safe_load((MANIFESTS / "overlays" / overlay / "deployment.yaml").read_text())
    pod = written["spec"]["template"]["spec"]
    assert "bind-timeout-s" not in str(pod["containers"]), "then it needs more"

    given_s = pod["terminationGracePeriodSeconds"]
    assert given_s == Settings().bind_timeout_s + 15 > server.stops_within_s(Settings())


def test_the_grace_period_of_the_chart_grows_with_the_bind_timeout() -> None:
    template = (MANIFESTS / "chart" / "templates" / "deployment.yaml").read_text()
    (line,) = (each for each in template.splitlines() if "terminationGracePeriodSeconds" in each)

    assert "add 15 (ceil" in line
    assert f'"bind-timeout-s" | default {Settings().bind_timeout_s:g}' in line


#: `serve` with nothing behind its ports.
IDLE = """
import os, sys
from extender import logs, server
from extender.settings import Settings

class Idle:
    def __init__(self, settings):
        pass

    async def start(self, listening):
        print(f"worker {os.getpid()} works", file=sys.stderr, flush=True)

    async def stop(self):
        print("worker ends in order", file=sys.stderr, flush=True)

server.Application = Idle
logs.set_up("info")
server.serve(Settings(listen=sys.argv[1], ops_listen=sys.argv[2]))
"""


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[str]]:
    """Start a server; its first line names the worker process."""
    anywhere = ("127.0.0.1", 0)
    with socket.create_server(anywhere) as one, socket.create_server(anywhere) as two:
        places = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two)]
    serving = subprocess.Popen(
        [sys.executable, "-c", IDLE, *places], stderr=subprocess.PIPE, text=True
    )
    with serving:
        try:
            yield serving
        finally:
            serving.kill()


def test_no_signal_starts_a_second_worker(idle: subprocess.Popen[str]) -> None:
    assert idle.stderr is not None
    heard: list[str] = []

    def listen_for(words: str) -> str:
        for line in idle.stderr or ():
            heard.append(line)
            assert sum(" works" in each for each in heard) < 2, "two workers run at once"
            if words in line:
                return line
        raise AssertionError(f"it ended before it said {words!r}: {heard}")

    worker = int(listen_for(" works").split()[1])
    for name in IGNORED_SIGNALS:
        idle.send_signal(signal.Signals[name])
        line = json.loads(listen_for(f'"signal": "{name}"'))
        assert line["event"].startswith("signal ignored: files are reloaded automatically")
        os.kill(worker, signal.Signals[name])  # as a terminal does that is closed
    idle.send_signal(signal.SIGTERM)

    listen_for("worker ends in order")
    assert idle.wait(30) == 0


class FakeParts:
    """Parts of a worker whose pages stay open until the lease is released."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.lease_is_free = threading.Event()

    def drain(self) -> None:
        self.events.append("binds refused")

    async def finish(self) -> None:
        self.events.append("lease released")
        self.lease_is_free.set()

    def stop(self) -> None:
        assert self.lease_is_free.wait(10), "the lease is released only after the pages ended"
        self.events.append("pages ended")


class FakeHookServer:
    """The hook server of that worker."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    async def drain(self, grace_s: float) -> None:
        self._events.append("calls answered")

    async def end(self) -> None:
        self._events.append("connections ended")


def stop(parts: FakeParts) -> Coroutine[Any, Any, None]:
    return server.stop_parts(parts, FakeHookServer(parts.events), parts, 1.0)  # type: ignore[arg-type]


def test_an_open_page_does_not_delay_the_release_of_the_lease() -> None:
    parts = FakeParts()

    asyncio.run(stop(parts))

    assert parts.events == [
        *("binds refused", "calls answered", "lease released", "pages ended"),
        "connections ended",
    ]


def test_a_failed_shutdown_of_the_pages_is_raised_after_the_lease_is_released() -> None:
    parts = FakeParts()

    def stumble() -> None:
        raise TimeoutError("a page takes too long")

    parts.stop = stumble  # type: ignore[method-assign]

    with pytest.raises(TimeoutError):
        asyncio.run(stop(parts))
    assert parts.events[2:] == ["lease released", "connections ended"]
