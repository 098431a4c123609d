"""kubectl as our way into a cluster: it has the credentials, the proxies and both protocols.

See docs/decisions/0034: why a child process, and neither a proxy of the API server nor a protocol
of our own.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from extender.errors import BadInput

#: Of one request; a cluster that is not there is found out soon.
_REQUEST_S = 5
#: Of the whole command: a person may have to log in first.
_COMMAND_S = 60.0
#: How long it may take to end when it is asked to.
_END_S = 2.0
#: How often we look whether it listens.
_LOOK_S = 0.01
_FORWARDS = re.compile(rb"^Forwarding from 127\.0\.0\.1:(\d+) ", re.MULTILINE)
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
#: `Error from server (Forbidden): ` and the like; what follows is the sentence.
_PREFIX = re.compile(r"^(error: |Error from server[^:]*: |Unable to connect to the server: )")


class Kubectl:
    """Runs kubectl with a kubeconfig and a context, where some were named."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self._flags = [
            *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []),
            *([f"--context={context}"] if context else []),
        ]

    def read(self, path: str) -> bytes:
        """Give what the API server has at *path*; `BadInput` says what kubectl said."""
        command = self._command("get", "--raw", path, f"--request-timeout={_REQUEST_S}s")
        try:
            ran = subprocess.run(  # noqa: S603 - no shell, and kubectl checks what it is given
                command, capture_output=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            # What it asks of a person is not seen here.
            raise BadInput(
                f"kubectl did not answer within {_COMMAND_S:g} s; if it wants you to log in, do so"
                " first, with `kubectl get pods`"
            ) from error
        except OSError as error:
            raise BadInput(f"kubectl cannot be run: {error.strerror}") from error
        if ran.returncode != 0:
            raise BadInput(_sentence(ran.stderr))
        return ran.stdout

    @contextmanager
    def forward(self, namespace: str, pod: str, port: int) -> Iterator[int]:
        """Give a port of loopback that leads to *port* of *pod*, while the block lasts."""
        words = ("port-forward", f"--namespace={namespace}", "--address=127.0.0.1")
        command = self._command(*words, f"pod/{pod}", f":{port}")
        # Into files: of a pipe that nobody reads, kubectl would one day wait for a reader.
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as complained:
            try:
                child = subprocess.Popen(  # noqa: S603 - as above
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=complained,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise BadInput(f"kubectl cannot be run: {error.strerror}") from error
            with _ended(child):
                port_there = _port(child, told)
                if port_there is None:
                    raise BadInput(_sentence(_all(complained)))
                yield port_there

    def _command(self, *words: str) -> list[str]:
        found = shutil.which("kubectl")
        if found is None:
            raise BadInput("kubectl is not on the PATH, and leads to the extender's pod")
        return [found, *self._flags, *words]


def _port(child: subprocess.Popen[bytes], told: IO[bytes]) -> int | None:
    """Wait until it says on which port it listens; None when it ends or never does."""
    until = time.monotonic() + _COMMAND_S
    while time.monotonic() < until:
        has_ended = child.poll() is not None
        if found := _FORWARDS.search(_all(told)):
            return int(found[1])
        if has_ended:
            return None
        time.sleep(_LOOK_S)
    return None


def _all(file: IO[bytes]) -> bytes:
    # Not by seeking: the place where kubectl writes would move along.
    return os.pread(file.fileno(), 1 << 16, 0)


@contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let it end with the block, also when we are asked to end ourselves."""
    with _terminating():
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def _terminating() -> Iterator[None]:
    """Leave through the blocks on SIGTERM and SIGHUP, instead of in the middle of one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _end_with_parent() -> None:
    """Have the kernel end kubectl when we are killed and can end nobody any more."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)


def _sentence(said: bytes) -> str:
    """Give the last line: those before it are its log."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it does not say why")
    return f"kubectl: {_PREFIX.sub('', last)}"
