"""An extender that is begun in milliseconds, by a process that has imported it before."""

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
    """`gang-extender serve`, with a check of its own taken out where *plant* names one."""

    start_s = 90
    plant = ""
    _zygote: subprocess.Popen[str] | None = None

    def _launch(self) -> None:
        self._log_start = self._log_size()
        if self._zygote is None or self._zygote.poll() is not None:
            self._zygote = self._conceive()
        zygote = self._zygote
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        command = self.command()
        arguments = [str(each) for each in command[command.index("serve") :]]
        wanted = {"log": str(self.log_file), "plant": self.plant, "arguments": arguments}
        print(json.dumps(wanted), file=zygote.stdin, flush=True)
        born: Any = _Forked(int(zygote.stdout.readline()))
        self._process = born
        reaper.remember(born.pid)

    def _conceive(self) -> subprocess.Popen[str]:
        zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.nightly.faults.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd=REPOSITORY,
            text=True,
            start_new_session=True,
        )
        reaper.remember(zygote.pid)
        return zygote

    def terminate(self) -> None:
        super().terminate()
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.kill()
            zygote.communicate()
            reaper.forget(zygote.pid)


class _Forked:
    """A child of the other process, with as much of `Popen` as is asked for."""

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
