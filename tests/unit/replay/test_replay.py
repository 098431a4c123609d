"""A recorded run is planned again without a difference, and a damaged recording is reported."""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.cli.replay import DIFFERS
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.policy_parser import DEFAULT_TEXT
from extender.replay.recording import BEGINNING, MAX_CYCLE_BYTES, Folder, RecordingWriter, frame
from tests.unit.planner.reason_cases import SENTENCES
from tests.unit.replay.runs import MIB, recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "recording"
    assert len(recorded(folder)) > 20
    return folder


def replayed(*words: object) -> Result:
    result = CliRunner().invoke(main, ["replay", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def json_document(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(replayed(*words, "-o", "json").stdout)
    return found


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def copied(run: Path, folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / only_file(run).name).write_bytes(content)
    return folder


def other_policy(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "other.conf"
    path.write_text(text)
    return path


def test_a_replayed_run_has_no_difference(run: Path) -> None:
    result = replayed(run)

    assert result.exit_code == 0, result.output
    assert "no decision differs" in result.stdout
    assert result.stderr == ""
    assert json_document(run)["differs_at"] is None
    assert json_document(run)["cycles"] > 20


def test_another_policy_is_shown_by_its_first_different_decision(run: Path, tmp_path: Path) -> None:
    without_reclaim = other_policy(tmp_path, DEFAULT_TEXT.replace(" reclaim,", ""))

    result = replayed(run, "--config", without_reclaim)

    assert result.exit_code == DIFFERS == 3
    assert "the first that differs: cycle " in result.stdout
    assert "evicted for a/poor-0 (reclaim) then, stays now" in result.stdout
    document = json_document(run, "--config", without_reclaim)
    assert document["differs_in_cycle"] == document["cycles"]
    assert document["differences"][0].keys() == {"about", "was", "now"}


def test_a_single_moment_can_be_replayed(run: Path) -> None:
    last = json_document(run)["last"]
    one = json_document(run, "--at", last)
    assert (one["cycles"], one["first"], one["last"]) == (1, last, last)

    result = replayed(run, "--at", last)

    assert result.exit_code == 0
    assert last in result.stdout
    assert "a/giant" in result.stdout
    assert "no decision differs" in result.stdout


def test_a_moment_without_a_zone_is_in_utc(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json_document(run)["first"]
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        result = replayed(run, "--at", first.removesuffix("Z"))
    finally:
        monkeypatch.undo()
        time.tzset()

    assert f"cycle 1, {first}, planned again" in result.stdout, result.stderr


@pytest.fixture
def set_back(tmp_path: Path) -> Path:
    """Record cycles at 100, 110 and 120 s, then 50 and 60 with the clock set back."""
    folder = tmp_path / "set-back"
    writing = RecordingWriter(place := Folder(str(folder), 8 * MIB))
    for number, now in enumerate((100.0, 110.0, 120.0, 50.0, 60.0)):
        snapshot = replace(SENTENCES[0].before(), now=now, generation=number)
        writing.write(snapshot, policy_parser.DEFAULT, make_plan(snapshot))
    place.close()
    return folder


@pytest.mark.parametrize(("at", "number"), [(55, 4), (60, 5), (90, 5), (115, 2), (300, 5)])
def test_a_moment_is_found_although_the_clock_was_set_back(
    set_back: Path, at: int, number: int
) -> None:
    moment = datetime.fromtimestamp(at, UTC).isoformat()

    assert f"cycle {number}, " in replayed(set_back, "--at", moment).stdout


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("0001-01-01", "has no cycle as old as 0001-01-01"),
        ("noon", "--at: 'noon' is not a time"),
        ("1960-01-01T00:00:00Z", "has no cycle as old as 1960-01-01T00:00:00Z; it begins at 1970"),
    ],
)
def test_an_invalid_or_too_early_moment_is_an_error(run: Path, at: str, said: str) -> None:
    result = replayed(run, "--at", at)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_truncated_recording_is_replayed_up_to_its_end_with_a_note(
    run: Path, tmp_path: Path
) -> None:
    whole = only_file(run).read_bytes()
    passes = json_document(run)["cycles"]

    for missing in (1, 10):
        folder = copied(run, tmp_path / f"cut-{missing}", whole[:-missing])
        result = replayed(folder)

        assert result.exit_code == 0
        assert result.stdout.startswith(f"{passes - 1} cycles"), missing
        assert "ends in the middle of a cycle" in result.stderr


@pytest.mark.parametrize("length", [0, 5])
def test_a_file_without_a_complete_cycle_is_an_error(
    run: Path, tmp_path: Path, length: int
) -> None:
    result = replayed(copied(run, tmp_path / "cut", only_file(run).read_bytes()[:length]))

    assert result.exit_code == 2
    assert "has no complete cycle" in result.stderr


def test_a_flipped_bit_anywhere_is_one_line(run: Path, tmp_path: Path) -> None:
    whole = only_file(run).read_bytes()
    folder = copied(run, tmp_path / "flipped", whole)

    for at in range(0, len(whole), len(whole) // 40):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        only_file(folder).write_bytes(flipped)
        result = replayed(folder)

        assert result.exit_code == 2, at
        assert result.stderr.count("\n") == 1
        assert "is damaged" in result.stderr or "is not a recording" in result.stderr


def forged(tmp_path: Path, *parcels: bytes) -> Path:
    """Make a recording with valid checksums."""
    packer = zlib.compressobj()
    content = b"".join(
        frame(packer.compress(each) + packer.flush(zlib.Z_SYNC_FLUSH)) for each in parcels
    )
    folder = tmp_path / "forged"
    folder.mkdir()
    (folder / "recording-00000001.gxr").write_bytes(BEGINNING + content)
    return folder


def head(run: Path) -> bytes:
    content = only_file(run).read_bytes()[len(BEGINNING) :]
    length = int.from_bytes(content[:4], "little")
    return zlib.decompressobj().decompress(content[12 : 12 + length])


STRANGE = [
    {},
    [],
    {"shapes": [], "seen": {}, "plan": {}},
    {"shapes": 1, "seen": {}, "plan": {}},
    {"shapes": [], "seen": {"now": ["late"]}, "plan": {}},
    {"shapes": [], "seen": {"colour": [1]}, "plan": {}},
    {"shapes": [], "seen": {"nodes": {"used": [None, [2, -1], b"12345678"]}}, "plan": {}},
    {"shapes": [], "seen": {"misfits": [[[7, []]]]}, "plan": {}},
    {"shapes": [[]], "seen": {}, "plan": {}},
]


@pytest.mark.parametrize("strange", STRANGE)
def test_a_forged_cycle_is_one_line(run: Path, tmp_path: Path, strange: Any) -> None:
    result = replayed(forged(tmp_path, head(run), msgspec.msgpack.encode(strange)))

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "cycle 1 is invalid" in result.stderr or "not a cycle" in result.stderr


def test_a_recording_with_unknown_fields_is_refused_with_their_names(
    run: Path, tmp_path: Path
) -> None:
    header = msgspec.msgpack.decode(head(run))
    header["fields"]["Pod"].append("colour")

    result = replayed(forged(tmp_path, msgspec.msgpack.encode({**header, "version": "9.9"})))

    assert result.exit_code == 2
    assert "was recorded by version 9.9: Pod has an unknown field 'colour'" in result.stderr


def test_a_decompression_bomb_takes_no_memory(run: Path, tmp_path: Path) -> None:
    folder = forged(tmp_path, head(run), bytes(MAX_CYCLE_BYTES + 1))
    assert only_file(folder).stat().st_size < 100_000

    tracemalloc.start()
    result = replayed(folder)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert result.exit_code == 2
    assert f"of more than {MAX_CYCLE_BYTES} bytes" in result.stderr
    assert most < 4 * MAX_CYCLE_BYTES


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("nowhere", "cannot be read: No such file or directory"),
        (".", "no recording there; `gang-extender serve --record"),
    ],
)
def test_a_directory_without_a_recording_is_named(tmp_path: Path, folder: str, said: str) -> None:
    result = replayed(tmp_path / folder)

    assert result.exit_code == 2
    assert said in result.stderr
