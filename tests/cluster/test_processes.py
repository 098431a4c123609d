"""Programs come up on ports of their own, say why when they do not, and never stay behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from . import ports, processes
from .ports import free_ports
from .processes import NeverReady, Program
from .waiting import wait_for

SERVE = """
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
print("serving", flush=True)
listener.accept()
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("serving", flush=True)
time.sleep(600)
"""


class Script(Program):
    port_count = 1
    start_s = 10
    stop_s = 0.2

    def __init__(self, code: str, logs: Path) -> None:
        super().__init__("script", logs)
        self._code = code

    def command(self) -> list[str | Path]:
        return [sys.executable, "-IS", "-c", self._code, str(self.ports[0])]

    def is_ready(self) -> bool:
        return "serving" in self.log_since_start()


def test_a_program_moves_on_when_its_port_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as neighbour:
        taken = neighbour.getsockname()[1]
        (free,) = free_ports(1)
        chosen = iter([[taken], [free]])
        monkeypatch.setattr(processes, "free_ports", lambda count: next(chosen))

        with Script(SERVE, tmp_path) as program:
            assert program.ports == [free]


def test_a_killed_program_comes_back_on_its_port(tmp_path: Path) -> None:
    with Script(SERVE, tmp_path) as program:
        pid, ports = program.pid, list(program.ports)

        program.kill()
        program.start()

        assert program.pid != pid
        assert program.ports == ports


KEEP = """
from tests.cluster.ports import free_ports
print(*free_ports(1), flush=True)
input()
"""


def test_a_port_that_others_chose_is_not_free_while_their_program_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as neighbour:
        assert neighbour.stdout is not None
        theirs = int(neighbour.stdout.readline())
        (mine,) = free_ports(1)
        (other,) = free_ports(1)
        drawn = iter([theirs, mine, other + 1, other + 2, other + 3])
        monkeypatch.setattr(ports._chance, "randrange", lambda *_: next(drawn))

        (chosen,) = free_ports(1)

        neighbour.communicate("\n", timeout=10)
    assert chosen not in (theirs, mine)
    drawn = iter([theirs])
    assert free_ports(1) == [theirs], "a port is free again when those who chose it have ended"


def test_a_program_that_ends_early_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(NeverReady, match=r"ended with 3.*\n(.*\n)*cannot find my shoes"):
        Script("print('cannot find my shoes'); raise SystemExit(3)", tmp_path).start()


def test_a_program_that_does_not_listen_is_made_to_end(tmp_path: Path) -> None:
    with Script(STUBBORN, tmp_path) as program:
        pid = program.pid

    assert not _exists(pid)


def test_nothing_survives_a_run_that_is_killed(tmp_path: Path) -> None:
    run = f"""
import time
from pathlib import Path
from tests.cluster.test_processes import STUBBORN, Script
program = Script(STUBBORN, Path({str(tmp_path)!r}))
program.start()
print(program.pid, flush=True)
time.sleep(600)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", run], cwd=root, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        pid = int(victim.stdout.readline())
        assert _exists(pid)

        victim.send_signal(signal.SIGKILL)

    wait_for(lambda: not _exists(pid), 10, "the program of the killed run ends")


def _exists(pid: int) -> bool:
    # An orphan may stay as a zombie where nobody reaps them; it has ended all the same.
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
