"""The wrong wall clock for a process of the extender."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.nightly.faults.stepped_clock import SteppedClock

ROOT = Path(__file__).parents[3]


def test_clock_has_the_offset_in_the_file(
    tmp_path: Path,
) -> None:
    passed = 0.0
    file = tmp_path / "offset"
    clock = SteppedClock(file, real=lambda: 1000.0, monotonic=lambda: passed)

    assert clock.time() == 1000.0
    file.write_text("-3600")
    assert clock.time() == 1000.0
    passed = 1.0
    assert clock.time() == -2600.0


def test_half_written_file_is_ignored(tmp_path: Path) -> None:
    passed = 0.0
    file = tmp_path / "offset"
    file.write_text("60")
    clock = SteppedClock(file, real=lambda: 1000.0, monotonic=lambda: passed)
    assert clock.time() == 1060.0

    file.write_text("")
    passed = 1.0
    assert clock.time() == 1060.0


def test_extender_runs_with_the_stepped_clock(tmp_path: Path) -> None:
    (tmp_path / "offset").write_text("86400")
    command = [sys.executable, "-m", "tests.nightly.faults.stepped_clock", str(tmp_path / "offset")]
    ran = subprocess.run(
        [*command, "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert (ran.returncode, "gang-extender" in ran.stdout) == (0, True), ran.stderr
