"""A recording as it is read again: step by step, whoever wrote it, however it ends.

What was cut off while it was written (the process was killed) is left out with a remark. Whatever
else is not as we write it ends the reading with one sentence, and takes bounded memory until then.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from extender import __version__
from extender.errors import InvalidInput
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.replay import serialize
from extender.replay.serialize import Forms

BEGINNING = b"gang-extender recording 1\n"
PREFIX, SUFFIX = "recording-", ".gxr"
#: The bytes a recording may have are divided among so many files, the oldest of which goes.
FILES = 8
#: A pass may have so many bytes before they are compressed, and a file so many in all.
MAX_CYCLE_BYTES = 64 << 20
MAX_FILE_BYTES = 512 << 20
_HEAD = struct.Struct("<II")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size


def frame(content: bytes) -> bytes:
    """Put what is to be read again between a length and checksums."""
    head = _HEAD.pack(len(content), zlib.crc32(content))
    return head + _CHECK.pack(zlib.crc32(head)) + content


def unframe(head: bytes) -> tuple[int, int] | None:
    """Give the length and the checksum that *head* tells, None when it is no such thing."""
    told, check = head[: _HEAD.size], head[_HEAD.size :]
    if zlib.crc32(told) != _CHECK.unpack(check)[0]:
        return None
    length, checksum = _HEAD.unpack(told)
    return length, checksum


def file_name(number: int) -> str:
    """Name the file with that number; names sort as numbers do."""
    return f"{PREFIX}{number:08d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """Give the number of the file called *name*, None when it is none of ours."""
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    is_ours = name == f"{PREFIX}{digits}{SUFFIX}" and digits.isascii() and digits.isdigit()
    return int(digits) if is_ours and len(digits) == 8 else None


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """List the files of a recording, oldest first."""
    found = [(number_of(each.name), each) for each in folder.iterdir()]
    return sorted((number, each) for number, each in found if number is not None)


class Folder:
    """Ours to write to, from `Folder(…)` until `close`; all files have *most_bytes* at most."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._file: int | None = None
        self._name = self._path
        self._written = 0
        with suppress(FileExistsError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.mkdir(mode=0o700)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise InvalidInput(
                f"{path}: somebody else records there; name another folder"
            ) from error

    @property
    def left(self) -> int:
        """How many bytes the file has room for; none before the first `begin`."""
        return 0 if self._file is None else self._most_bytes // FILES - self._written

    def begin(self) -> None:
        """Make the next file, after old ones have gone for which there would be no room."""
        self._end_file()
        there = numbered(self._path)
        self._number = (there[-1][0] if there else 0) + 1
        sizes = {each: each.stat().st_size for _, each in there}
        while sizes and sum(sizes.values()) > self._most_bytes - self._most_bytes // FILES:
            oldest = next(iter(sizes))
            oldest.unlink(missing_ok=True)
            del sizes[oldest]
        self._name = self._path / file_name(self._number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._name, flags, 0o600)
        self._written = 0

    def write(self, content: bytes) -> None:
        """Append *content*, all of it or nothing."""
        if self._file is None or len(content) > self.left:
            raise InvalidInput("a file of the recording is full")
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._written)
            raise
        self._written += len(content)

    def close(self) -> None:
        """Let go of it."""
        self._end_file()
        with suppress(OSError):
            os.close(self._lock)

    def _end_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCycle:
    """One pass: what was seen, by which policy, and what was decided."""

    number: int
    file: str
    #: The version that made it.
    version: str
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    #: Passes before it that are not in the recording.
    skipped: int


class Recording:
    """A folder of files; *remarks* grow while its steps are read."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        try:
            self._files = [path for _, path in numbered(self._folder)]
        except OSError as error:
            raise InvalidInput(f"{folder}: cannot be read: {error.strerror}") from error
        if not self._files:
            raise InvalidInput(
                f"{folder}: holds no recording; `gang-extender serve --record {folder}` makes one"
            )
        self.remarks: list[str] = []

    @property
    def files(self) -> int:
        """Count the files."""
        return len(self._files)

    def steps(self) -> Iterator[RecordedCycle]:
        """Read one step after the other."""
        number = 0
        for path in self._files:
            for step in self._steps_of(path, number):
                number = step.number
                yield step

    def _steps_of(self, path: Path, number: int) -> Iterator[RecordedCycle]:
        try:
            with path.open("rb") as file:
                parcels = self._frames(file, path)
                head = next(parcels, None)
                if head is None:
                    return
                reader = _FileReader(path.name, head)
                for written in parcels:
                    number += 1
                    yield reader.step(number, written)
        except FileNotFoundError:
            # It was there when the files were listed, and replaying those before it takes long.
            self.remarks.append(f"{path.name}: is gone; whoever records needed its room")
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error

    def _frames(self, file: IO[bytes], path: Path) -> Iterator[Any]:
        begins = file.read(len(BEGINNING))
        if not BEGINNING.startswith(begins):
            raise InvalidInput("is no recording that this version reads; it begins otherwise")
        if begins != BEGINNING:
            self._note_truncated(path, 0)
            return
        unpacking, unpacked = zlib.decompressobj(), 0
        while head := file.read(HEAD_BYTES):
            at = file.tell() - len(head)
            if len(head) == HEAD_BYTES:
                if (told := unframe(head)) is None:
                    raise InvalidInput(f"is damaged at byte {at}: not what was written there")
                length, checksum = told
                content = file.read(length)
                if len(content) == length:
                    if zlib.crc32(content) != checksum:
                        raise InvalidInput(
                            f"is damaged after byte {at}: not what was written there"
                        )
                    plain = _decompress(unpacking, content, at)
                    unpacked += len(plain)
                    if unpacked > MAX_FILE_BYTES + MAX_CYCLE_BYTES:
                        raise InvalidInput(
                            f"holds more than {MAX_FILE_BYTES} bytes; nobody recorded that"
                        )
                    yield _decode_frame(plain, at)
                    continue
            self._note_truncated(path, at)
            return

    def _note_truncated(self, path: Path, at: int) -> None:
        self.remarks.append(
            f"{path.name}: ends in the middle of a pass, at byte {at}; its writer was cut off"
        )


def _decompress(unpacking: Any, content: bytes, at: int) -> bytes:
    try:
        plain: bytes = unpacking.decompress(content, MAX_CYCLE_BYTES)
    except zlib.error as error:
        raise InvalidInput(f"is damaged after byte {at}: cannot be unpacked") from error
    if unpacking.unconsumed_tail:
        raise InvalidInput(f"has a pass after byte {at} of more than {MAX_CYCLE_BYTES} bytes")
    return plain


def _decode_frame(plain: bytes, at: int) -> Any:
    try:
        written = _decode(plain)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(f"is damaged after byte {at}: cannot be decoded") from error
    if not isinstance(written, dict):
        raise InvalidInput(f"is damaged after byte {at}: holds something that is no pass")
    return written


class _FileReader:
    """What one file has told so far."""

    def __init__(self, file: str, head: dict[str, Any]) -> None:
        self._file = file
        self._version = str(head.get("version", "unknown"))[:40]
        try:
            self._forms = Forms(head["fields"])
            self._seen = serialize.of_snapshot(self._forms)
            self._decided = serialize.of_plan(self._forms)
            self._policy = self._forms.of(Policy)
        except Exception as error:
            raise InvalidInput(f"was made by version {self._version}: {_reason(error)}") from error
        self._last: tuple[Any, Any, Any] = (serialize.NONE, serialize.NONE, serialize.NONE)

    def step(self, number: int, written: dict[str, Any]) -> RecordedCycle:
        """Give the next step."""
        seen, policy, decided = self._last
        try:
            self._forms.shapes.learn(written["shapes"])
            seen = self._seen.applied(seen, written["seen"])
            decided = self._decided.applied(decided, written["plan"])
            if "policy" in written:
                policy = self._policy.read(written["policy"])
            skipped = int(written.get("skipped", 0))
        except Exception as error:
            # It has the right checksums, so somebody made it so.
            raise InvalidInput(f"pass {number} is none that we wrote: {_reason(error)}") from error
        self._last = seen, policy, decided
        if policy is None:
            raise InvalidInput(f"pass {number} is none that we wrote: it names no policy")
        return RecordedCycle(
            number=number,
            file=self._file,
            version=self._version,
            snapshot=seen,
            policy=policy,
            plan=decided,
            skipped=skipped,
        )


def _reason(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, InvalidInput)
        else f"it does not fit ({type(error).__name__})"
    )


_encode = msgspec.msgpack.Encoder().encode


class RecordingWriter:
    """Writes passes into a folder, one after the other; belongs to one thread."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: _FileWriter | None = None

    def write(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int = 0) -> None:
        """Write one pass, before which *skipped* others were not."""
        if self._file is not None:
            written = self._file.packed(snapshot, policy, plan, skipped)
            if len(written) <= self._folder.left and self._file.unpacked <= MAX_FILE_BYTES:
                self._folder.write(written)
                return
        self._file = None  # if the next one fails, nobody goes on with this one
        begun = _FileWriter()
        beginning = BEGINNING + begun.head()
        written = begun.packed(snapshot, policy, plan, skipped)
        self._folder.begin()
        if len(beginning) + len(written) > self._folder.left:
            raise InvalidInput(
                f"one pass takes {len(written)} bytes, and a file may have {self._folder.left};"
                " give --record-mib more"
            )
        self._folder.write(beginning + written)
        self._file = begun


class _FileWriter:
    """What one file has told so far."""

    def __init__(self) -> None:
        self._forms = Forms()
        self._seen = serialize.of_snapshot(self._forms)
        self._decided = serialize.of_plan(self._forms)
        self._policy = self._forms.of(Policy)
        self._zlib = zlib.compressobj(6)
        self._last: tuple[Any, Any, Any] = (serialize.NONE, serialize.NONE, serialize.NONE)
        #: Bytes before they were compressed.
        self.unpacked = 0

    def head(self) -> bytes:
        told = {"version": __version__, "fields": self._forms.schema()}
        return self._frame(_encode(told))

    def packed(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int) -> bytes:
        before, rules, decided = self._last
        told: dict[str, Any] = {
            "seen": _or_empty(self._seen.between(before, snapshot)),
            "plan": _or_empty(self._decided.between(decided, plan)),
        }
        if policy is not rules:
            told["policy"] = self._policy.write(policy)
        if skipped:
            told["skipped"] = skipped
        # Whatever speaks of a shape comes after it.
        content = _encode({"shapes": self._forms.shapes.take_new(), **told})
        if len(content) > MAX_CYCLE_BYTES:
            raise InvalidInput(f"one pass has {len(content)} bytes, more than is recorded")
        self._last = snapshot, policy, plan
        return self._frame(content)

    def _frame(self, content: bytes) -> bytes:
        self.unpacked += len(content)
        return frame(self._zlib.compress(content) + self._zlib.flush(zlib.Z_SYNC_FLUSH))


def _or_empty(change: Any) -> Any:
    return {} if change is serialize.SAME else change
