"""Writing and reading recordings: a folder of files, each a sequence of checksummed frames.

A file that was truncated while it was written (the process was killed) is read up to there, with a
remark. Any other damage or foreign content ends the reading with one error, and memory is bounded
until then.
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

BEGINNING = b"gang-extender recording 2\n"
PREFIX, SUFFIX = "recording-", ".gxr"
#: The size limit of a recording is divided among this many files; the oldest is deleted.
FILES = 8
#: The uncompressed size limits of a cycle and of a file.
MAX_CYCLE_BYTES = 64 << 20
MAX_FILE_BYTES = 512 << 20
_HEAD = struct.Struct("<II")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size


def frame(content: bytes) -> bytes:
    """Prefix *content* with its length and checksums."""
    head = _HEAD.pack(len(content), zlib.crc32(content))
    return head + _CHECK.pack(zlib.crc32(head)) + content


def unframe(head: bytes) -> tuple[int, int] | None:
    """Return the length and the checksum of a frame header, None when it is invalid."""
    fields, check = head[: _HEAD.size], head[_HEAD.size :]
    if zlib.crc32(fields) != _CHECK.unpack(check)[0]:
        return None
    length, checksum = _HEAD.unpack(fields)
    return length, checksum


def file_name(number: int) -> str:
    """Return the name of a file; names sort like numbers."""
    return f"{PREFIX}{number:08d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """Return the number of a file name, None for other files."""
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    is_ours = name == f"{PREFIX}{digits}{SUFFIX}" and digits.isascii() and digits.isdigit()
    return int(digits) if is_ours and len(digits) == 8 else None


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of a recording, oldest first."""
    found = [(number_of(each.name), each) for each in folder.iterdir()]
    return sorted((number, each) for number, each in found if number is not None)


class Folder:
    """Own a folder exclusively until `close`; its files have at most *most_bytes* in all."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._file: int | None = None
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
                f"{path}: another process records there; use another folder"
            ) from error

    @property
    def left(self) -> int:
        """The free bytes of the current file; 0 before the first `begin`."""
        return 0 if self._file is None else self._most_bytes // FILES - self._written

    def begin(self) -> None:
        """Create the next file, after deleting old files above the size limit."""
        self._end_file()
        files = numbered(self._path)
        number = (files[-1][0] if files else 0) + 1
        sizes = {each: each.stat().st_size for _, each in files}
        while sizes and sum(sizes.values()) > self._most_bytes - self._most_bytes // FILES:
            oldest = next(iter(sizes))
            oldest.unlink(missing_ok=True)
            del sizes[oldest]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path / file_name(number), flags, 0o600)
        self._written = 0

    def write(self, content: bytes) -> None:
        """Append *content* completely, or not at all."""
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
        """Release the folder."""
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
    """One recorded cycle: snapshot, policy and plan."""

    number: int
    file: str
    #: The version that recorded it.
    version: str
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    #: Skipped cycles before it.
    skipped: int


class Recording:
    """A recording to read; *remarks* grow while its cycles are read."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        try:
            self._files = [path for _, path in numbered(self._folder)]
        except OSError as error:
            raise InvalidInput(f"{folder}: cannot be read: {error.strerror}") from error
        if not self._files:
            raise InvalidInput(
                f"{folder}: no recording there; `gang-extender serve --record {folder}` makes one"
            )
        self.remarks: list[str] = []

    @property
    def files(self) -> int:
        """Return the number of files."""
        return len(self._files)

    def cycles(self) -> Iterator[RecordedCycle]:
        """Yield the cycles in order."""
        number = 0
        for path in self._files:
            for cycle in self._cycles_of(path, number):
                number = cycle.number
                yield cycle

    def _cycles_of(self, path: Path, number: int) -> Iterator[RecordedCycle]:
        try:
            with path.open("rb") as file:
                frames = self._frames(file, path)
                head = next(frames, None)
                if head is None:
                    return
                reader = _FileReader(path.name, head)
                for written in frames:
                    number += 1
                    yield reader.cycle(number, written)
        except FileNotFoundError:
            # It was deleted after the files were listed: replaying the files before it takes long.
            self.remarks.append(f"{path.name}: was deleted meanwhile to stay within the size limit")
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error

    def _frames(self, file: IO[bytes], path: Path) -> Iterator[Any]:
        beginning = file.read(len(BEGINNING))
        if not BEGINNING.startswith(beginning):
            raise InvalidInput("is not a recording that this version reads; its header differs")
        if beginning != BEGINNING:
            self._note_truncated(path, 0)
            return
        decompressor, total = zlib.decompressobj(), 0
        while head := file.read(HEAD_BYTES):
            at = file.tell() - len(head)
            if len(head) == HEAD_BYTES:
                if (header := unframe(head)) is None:
                    raise InvalidInput(f"is damaged at byte {at}: the checksum is wrong")
                length, checksum = header
                content = file.read(length)
                if len(content) == length:
                    if zlib.crc32(content) != checksum:
                        raise InvalidInput(f"is damaged after byte {at}: the checksum is wrong")
                    plain = _decompress(decompressor, content, at)
                    total += len(plain)
                    if total > MAX_FILE_BYTES + MAX_CYCLE_BYTES:
                        raise InvalidInput(
                            f"has more than {MAX_FILE_BYTES} bytes; no recording has so many"
                        )
                    yield _decode_frame(plain, at)
                    continue
            self._note_truncated(path, at)
            return

    def _note_truncated(self, path: Path, at: int) -> None:
        self.remarks.append(
            f"{path.name}: ends in the middle of a cycle, at byte {at}; its writer was interrupted"
        )


def _decompress(decompressor: Any, content: bytes, at: int) -> bytes:
    try:
        plain: bytes = decompressor.decompress(content, MAX_CYCLE_BYTES)
    except zlib.error as error:
        raise InvalidInput(f"is damaged after byte {at}: cannot be decompressed") from error
    if decompressor.unconsumed_tail:
        raise InvalidInput(f"has a cycle after byte {at} of more than {MAX_CYCLE_BYTES} bytes")
    return plain


def _decode_frame(plain: bytes, at: int) -> Any:
    try:
        written = _decode(plain)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(f"is damaged after byte {at}: cannot be decoded") from error
    if not isinstance(written, dict):
        raise InvalidInput(f"is damaged after byte {at}: holds something that is not a cycle")
    return written


class _FileReader:
    """The state of one file so far."""

    def __init__(self, file: str, head: dict[str, Any]) -> None:
        self._file = file
        self._version = str(head.get("version", "unknown"))[:40]
        try:
            self._forms = Forms(head["fields"])
            self._snapshots = serialize.of_snapshot(self._forms)
            self._plans = serialize.of_plan(self._forms)
            self._policy = self._forms.of(Policy)
        except Exception as error:
            raise InvalidInput(
                f"was recorded by version {self._version}: {_reason(error)}"
            ) from error
        self._last: tuple[Any, Any, Any] = (serialize.NONE, serialize.NONE, serialize.NONE)

    def cycle(self, number: int, written: dict[str, Any]) -> RecordedCycle:
        """Return the next cycle."""
        snapshot, policy, plan = self._last
        try:
            self._forms.shapes.learn(written["shapes"])
            snapshot = self._snapshots.applied(snapshot, written["seen"])
            plan = self._plans.applied(plan, written["plan"])
            if "policy" in written:
                policy = self._policy.read(written["policy"])
            skipped = int(written.get("skipped", 0))
        except Exception as error:
            # The checksums are right, so another program wrote it.
            raise InvalidInput(f"cycle {number} is invalid: {_reason(error)}") from error
        self._last = snapshot, policy, plan
        if policy is None:
            raise InvalidInput(f"cycle {number} is invalid: it has no policy")
        return RecordedCycle(
            number=number,
            file=self._file,
            version=self._version,
            snapshot=snapshot,
            policy=policy,
            plan=plan,
            skipped=skipped,
        )


def _reason(error: Exception) -> str:
    return (
        str(error)[:200]
        if isinstance(error, InvalidInput | msgspec.ValidationError)
        else f"it has an unexpected form ({type(error).__name__})"
    )


_encode = msgspec.msgpack.Encoder().encode


class RecordingWriter:
    """Write cycles into a folder; used by one thread."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: _FileWriter | None = None

    def write(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int = 0) -> None:
        """Write one cycle, after *skipped* cycles that were not written."""
        if self._file is not None:
            written = self._file.packed(snapshot, policy, plan, skipped)
            if len(written) <= self._folder.left and self._file.unpacked <= MAX_FILE_BYTES:
                self._folder.write(written)
                return
        self._file = None  # a failure below must not leave the full file in use
        file = _FileWriter()
        beginning = BEGINNING + file.head()
        written = file.packed(snapshot, policy, plan, skipped)
        self._folder.begin()
        if len(beginning) + len(written) > self._folder.left:
            raise InvalidInput(
                f"one cycle takes {len(written)} bytes, and a file may have {self._folder.left};"
                " increase --record-mib"
            )
        self._folder.write(beginning + written)
        self._file = file


class _FileWriter:
    """The state of one file so far."""

    def __init__(self) -> None:
        self._forms = Forms()
        self._snapshots = serialize.of_snapshot(self._forms)
        self._plans = serialize.of_plan(self._forms)
        self._policy = self._forms.of(Policy)
        self._zlib = zlib.compressobj(6)
        self._last: tuple[Any, Any, Any] = (serialize.NONE, serialize.NONE, serialize.NONE)
        #: Uncompressed bytes.
        self.unpacked = 0

    def head(self) -> bytes:
        header = {"version": __version__, "fields": self._forms.schema()}
        return self._frame(_encode(header))

    def packed(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int) -> bytes:
        last_snapshot, last_policy, last_plan = self._last
        cycle: dict[str, Any] = {
            "seen": _or_empty(self._snapshots.between(last_snapshot, snapshot)),
            "plan": _or_empty(self._plans.between(last_plan, plan)),
        }
        if policy is not last_policy:
            cycle["policy"] = self._policy.write(policy)
        if skipped:
            cycle["skipped"] = skipped
        # Shapes come before what refers to them.
        content = _encode({"shapes": self._forms.shapes.take_new(), **cycle})
        if len(content) > MAX_CYCLE_BYTES:
            raise InvalidInput(f"one cycle has {len(content)} bytes, more than a recording accepts")
        self._last = snapshot, policy, plan
        return self._frame(content)

    def _frame(self, content: bytes) -> bytes:
        self.unpacked += len(content)
        return frame(self._zlib.compress(content) + self._zlib.flush(zlib.Z_SYNC_FLUSH))


def _or_empty(change: Any) -> Any:
    return {} if change is serialize.SAME else change
