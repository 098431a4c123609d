"""An extender that starts in milliseconds, as a fork of a process that has imported it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from tests.cluster import reaper
from tests.cluster.extender_process import REPOSITORY, Extender


class ForkedExtender(Extender):
    """`gang-extender serve`, with the planted fault *plant*, if any."""

    start_s = 90
    plant = ""
    _fork_server: subprocess.Popen[str] | None = None

    def _launch(self) -> None:
        self._log_start = self._log_size()
        if self._fork_server is None or self._fork_server.poll() is not None:
            self._fork_server = self._start_fork_server()
        server = self._fork_server
        assert server.stdin is not None
        assert server.stdout is not None
        command = self.command()
        arguments = [str(each) for each in command[command.index("serve") :]]
        wanted = {"log": str(self.log_file), "plant": self.plant, "arguments": arguments}
        print(json.dumps(wanted), file=server.stdin, flush=True)
        child: Any = _Forked(int(server.stdout.readline()))
        self._process = child
        reaper.remember(child.pid)

    def _start_fork_server(self) -> subprocess.Popen[str]:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.nightly.faults.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd=REPOSITORY,
            text=True,
            start_new_session=True,
        )
        reaper.remember(server.pid)
        return server

    def terminate(self) -> None:
        super().terminate()
        server, self._fork_server = self._fork_server, None
        if server is not None:
            server.kill()
            server.communicate()
            reaper.forget(server.pid)


class _Forked:
    """A process forked by the fork server, with the needed part of `Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return -9
        return None

    def wait(self, timeout: float = 30) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("gang-extender", timeout)
            time.sleep(0.005)
        return -9
