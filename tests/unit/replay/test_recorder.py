"""Recording never slows planning: neither a slow, a full nor a failing disk."""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.cli.main import main
from extender.metrics import Metrics
from extender.model.resources import Resources
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.replay import recorder as recorders, recording as folders
from extender.replay.recorder import Recorder
from extender.replay.recording import FILES, Recording, RecordingWriter
from extender.settings import Settings
from tests.series import value
from tests.unit.planner.reason_cases import SENTENCES
from tests.unit.replay.runs import MIB, recorded
from tests.unit.web.conftest import World, eventually

SNAPSHOT = SENTENCES[0].before()
PLAN = make_plan(SNAPSHOT, policy_parser.DEFAULT)


def counted(metrics: Metrics, outcome: str) -> float:
    return value(metrics, "recorded_cycles_total", outcome=outcome)


def count_cycles(folder: Path) -> int:
    return sum(1 for _ in Recording(str(folder)).cycles())


def size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


def test_only_the_owner_can_read_a_recording(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        recorded(tmp_path / "new" / "recording", seconds=10)
    finally:
        os.umask(previous)

    (file,) = (tmp_path / "new" / "recording").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_recording_stays_below_its_limit_and_each_file_is_self_contained(
    tmp_path: Path,
) -> None:
    most = 8 * 3200
    largest = []
    original = folders.Folder.write

    def watched(self: Any, content: bytes) -> None:
        original(self, content)
        largest.append(size(tmp_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders.Folder, "write", watched)
        for _ in range(2):
            seen = recorded(tmp_path, most_bytes=most)

    assert max(largest) <= most
    assert 2 < len(list(tmp_path.iterdir())) <= FILES + 1
    assert not (tmp_path / "recording-00000001.gxr").exists(), "the oldest goes"
    for oldest in sorted(tmp_path.iterdir())[:-1]:
        oldest.unlink()
        assert CliRunner().invoke(main, ["replay", str(tmp_path)]).exit_code == 0
    assert 0 < count_cycles(tmp_path) <= len(seen)


def test_a_file_deleted_during_replay_is_skipped_with_a_note(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        recorded(tmp_path, seconds=10)
    recording = Recording(str(tmp_path))
    oldest, newest = sorted(tmp_path.iterdir())
    oldest.unlink()

    steps = list(recording.cycles())

    assert {step.file for step in steps} == {newest.name}
    assert recording.remarks == [
        f"{oldest.name}: was deleted meanwhile to stay within the size limit"
    ]


def test_two_recorders_do_not_share_a_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = folders.Folder(str(tmp_path), 8 * MIB)
    metrics = Metrics()
    recorder = Recorder(str(tmp_path), 8 * MIB, metrics)
    recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)
    recorder.stop()
    first.close()

    (line,) = caplog.records
    assert line.message == "the recording ends"
    assert "another process records there" in line.facts["why"]  # type: ignore[attr-defined]
    assert counted(metrics, "written") == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_or_failing_disk_ends_only_the_recording_with_one_log_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    metrics = Metrics()
    recorder = Recorder(str(tmp_path), 8 * MIB, metrics)
    plan = recorder.planner(lambda: policy_parser.DEFAULT, metrics.time_action)
    assert plan(SNAPSHOT) == PLAN
    eventually(lambda: counted(metrics, "written") == 1)
    real = os.write

    def half(file: int, content: Any) -> int:
        if len(content) > 8:
            return real(file, content[: len(content) // 2])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders.os, "write", half)
    for number in range(1, 6):
        assert plan(SNAPSHOT) == PLAN
        eventually(lambda number=number: counted(metrics, "lost") == number)  # type: ignore[misc]
    recorder.stop()

    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [each.message for each in errors] == ["the recording ends"]
    assert os.strerror(code) in errors[0].facts["why"]  # type: ignore[attr-defined]
    assert counted(metrics, "lost") == 5
    assert count_cycles(tmp_path) == 1, "an incomplete cycle is not in the file"
    assert Recording(str(tmp_path)).remarks == []


def test_planning_never_waits_for_a_slow_disk_and_dropped_cycles_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, is_writing = threading.Event(), threading.Event()
    original = RecordingWriter.write

    def slow(self: RecordingWriter, *each: Any) -> None:
        is_writing.set()
        may_write.wait()
        original(self, *each)

    monkeypatch.setattr(RecordingWriter, "write", slow)
    metrics = Metrics()
    recorder = Recorder(str(tmp_path), 8 * MIB, metrics)
    recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)
    is_writing.wait()
    cycles = 1
    while counted(metrics, "skipped") < 3:
        recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)
        cycles += 1
    may_write.set()
    eventually(lambda: counted(metrics, "written") == cycles - 3)
    recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)
    recorder.stop()

    left_out = 3
    assert sum(step.skipped for step in Recording(str(tmp_path)).cycles()) == left_out
    told = CliRunner().invoke(main, ["replay", str(tmp_path)]).stdout
    assert f"{left_out} more were not recorded: the disk was too slow" in told


def test_huge_requests_of_tenants_do_not_end_a_recording(tmp_path: Path) -> None:
    """Every pod may request 1Pi, and the sum of enough pods has more than 64 bits."""
    metrics = Metrics()
    recorder = Recorder(str(tmp_path), 8 * MIB, metrics)
    queue, figures = next(iter(PLAN.queues.items()))
    much = Resources({"cpu": 2**70, "memory": -(2**65), "pods": 3})
    plan = replace(PLAN, queues={**PLAN.queues, queue: replace(figures, requested=much)})

    recorder.record(SNAPSHOT, policy_parser.DEFAULT, plan)
    recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)
    recorder.stop()

    assert counted(metrics, "lost") == 0
    first, second = Recording(str(tmp_path)).cycles()
    assert first.plan == plan
    assert second.plan == PLAN


def test_stopping_does_not_wait_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(RecordingWriter, "write", lambda *_: answers.wait())
    monkeypatch.setattr(recorders, "_END_S", 0.01)
    metrics = Metrics()
    recorder = Recorder(str(tmp_path), 8 * MIB, metrics)
    while not counted(metrics, "skipped"):
        recorder.record(SNAPSHOT, policy_parser.DEFAULT, PLAN)

    recorder.stop()

    answers.set()


def test_without_a_directory_nothing_is_recorded_or_counted() -> None:
    metrics = Metrics()
    recorder = Recorder.of(Settings(), metrics)

    assert recorder.planner(lambda: policy_parser.DEFAULT, metrics.time_action)(SNAPSHOT) == PLAN
    recorder.stop()

    assert threading.current_thread() is threading.main_thread()
    assert [counted(metrics, each) for each in ("written", "skipped", "lost")] == [0, 0, 0]


def test_a_running_extender_records_what_it_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.unit.web.conftest.Settings",
        lambda **facts: Settings(**facts, record=str(tmp_path / "kept")),
    )
    with World() as world:
        metrics = world.runtime.pages.metrics
        before = counted(metrics, "written")
        world.pod("red-0", "red")
        eventually(lambda: counted(metrics, "written") > before)

    result = CliRunner().invoke(main, ["replay", str(tmp_path / "kept")])
    assert result.exit_code == 0, result.output
    assert "no decision differs" in result.stdout
