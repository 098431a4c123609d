"""Programs that tests run: started until ready, and stopped reliably.

Each runs in its own process group, so that stopping it also stops its children, and writes into a
log file that is kept.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from . import reaper
from .ports import free_ports

PORT_TAKEN = re.compile(r"address already in use", re.IGNORECASE)
POLL_S = 0.02


class NeverReady(Exception):
    """A program ended or did not become ready in time; shows the end of its log."""


def signal_group(process: subprocess.Popen[bytes], name: Literal["TERM", "KILL"]) -> None:
    """Signal a process and its children, if any still runs."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.Signals[f"SIG{name}"])


class Program:
    """One program with its ports and its log; subclasses define its command and readiness.

    The ports are chosen at the first start and kept for later ones.
    """

    port_count = 0
    start_s: float = 120.0
    stop_s: float = 10

    def __init__(self, name: str, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log_file = logs / f"{name}.log"
        self.ports: list[int] = []
        self._log_start = 0
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        """Return the command line, with the ports in `ports`."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Return whether it serves; polled while it starts."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if not self.is_running:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.terminate()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        """Start and wait until ready; choose other ports if they are taken at the first start."""
        deadline = time.monotonic() + self.start_s
        ports_are_fixed = bool(self.ports)
        while True:
            if not ports_are_fixed:
                self.ports = free_ports(self.port_count)
            self._launch()
            try:
                self._wait_until_ready(deadline)
            except NeverReady:
                self.kill()
                taken = PORT_TAKEN.search(self.log_since_start())
                if not taken or time.monotonic() >= deadline:
                    if not ports_are_fixed:
                        self.ports = []
                    raise
                time.sleep(POLL_S)
            except BaseException:
                self.kill()
                raise
            else:
                return

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self._process is None:
            return
        signal_group(self._process, "KILL")
        self._process.wait()
        reaper.forget(self._process.pid)
        self._process = None

    def terminate(self) -> None:
        """Stop it with SIGTERM, and with SIGKILL after a timeout."""
        if self._process is None:
            return
        signal_group(self._process, "TERM")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self.stop_s)
        self.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same ports."""
        self.terminate()
        self.start()

    def log(self, start: int = 0) -> str:
        """Return its log from the byte *start*, over all its starts."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def log_since_start(self) -> str:
        """Return its log since the last start."""
        return self.log(self._log_start)

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log(max(0, self._log_size() - 20_000)).splitlines()[-lines:])

    def _log_size(self) -> int:
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def _launch(self) -> None:
        self._log_start = self._log_size()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        reaper.remember(self._process.pid)

    def _wait_until_ready(self, deadline: float) -> None:
        assert self._process is not None
        while True:
            is_ready = self.is_ready()
            # Checked after `is_ready`: another program on the same port may have answered.
            ended = self._process.poll()
            if ended is not None:
                raise NeverReady(
                    f"{self.name} ended with {ended} before it was ready;"
                    f" {self.log_file} ends with:\n{self.log_tail()}"
                )
            if is_ready:
                return
            if time.monotonic() >= deadline:
                raise NeverReady(
                    f"{self.name} was not ready within {self.start_s:g} s;"
                    f" {self.log_file} ends with:\n{self.log_tail()}"
                )
            time.sleep(POLL_S)
