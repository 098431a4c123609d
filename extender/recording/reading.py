"""A recording as it is read again: step by step, whoever wrote it, however it ends.

What was cut off while it was written (the process was killed) is left out with a remark. Whatever
else is not as we write it ends the reading with one sentence, and takes bounded memory until then.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from extender.errors import BadInput
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.recording import changes
from extender.recording.folder import numbered
from extender.recording.forms import Forms
from extender.recording.layout import (
    BEGINNING,
    HEAD_BYTES,
    MOST_IN_A_FILE,
    MOST_IN_A_PASS,
    opened,
)

_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
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
            raise BadInput(f"{folder}: cannot be read: {error.strerror}") from error
        if not self._files:
            raise BadInput(
                f"{folder}: holds no recording; `gang-extender serve --record {folder}` makes one"
            )
        self.remarks: list[str] = []

    @property
    def files(self) -> int:
        """Count the files."""
        return len(self._files)

    def steps(self) -> Iterator[Recorded]:
        """Read one step after the other."""
        number = 0
        for path in self._files:
            for step in self._steps_of(path, number):
                number = step.number
                yield step

    def _steps_of(self, path: Path, number: int) -> Iterator[Recorded]:
        try:
            with path.open("rb") as file:
                parcels = self._parcels(file, path)
                head = next(parcels, None)
                if head is None:
                    return
                reader = _Reader(path.name, head)
                for written in parcels:
                    number += 1
                    yield reader.step(number, written)
        except FileNotFoundError:
            # It was there when the files were listed, and replaying those before it takes long.
            self.remarks.append(f"{path.name}: is gone; whoever records needed its room")
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error

    def _parcels(self, file: IO[bytes], path: Path) -> Iterator[Any]:
        begins = file.read(len(BEGINNING))
        if not BEGINNING.startswith(begins):
            raise BadInput("is no recording that this version reads; it begins otherwise")
        if begins != BEGINNING:
            self._is_cut_off(path, 0)
            return
        unpacking, unpacked = zlib.decompressobj(), 0
        while head := file.read(HEAD_BYTES):
            at = file.tell() - len(head)
            if len(head) == HEAD_BYTES:
                if (told := opened(head)) is None:
                    raise BadInput(f"is damaged at byte {at}: not what was written there")
                length, checksum = told
                content = file.read(length)
                if len(content) == length:
                    if zlib.crc32(content) != checksum:
                        raise BadInput(f"is damaged after byte {at}: not what was written there")
                    plain = _unpacked(unpacking, content, at)
                    unpacked += len(plain)
                    if unpacked > MOST_IN_A_FILE + MOST_IN_A_PASS:
                        raise BadInput(
                            f"holds more than {MOST_IN_A_FILE} bytes; nobody recorded that"
                        )
                    yield _decoded(plain, at)
                    continue
            self._is_cut_off(path, at)
            return

    def _is_cut_off(self, path: Path, at: int) -> None:
        self.remarks.append(
            f"{path.name}: ends in the middle of a pass, at byte {at}; its writer was cut off"
        )


def _unpacked(unpacking: Any, content: bytes, at: int) -> bytes:
    try:
        plain: bytes = unpacking.decompress(content, MOST_IN_A_PASS)
    except zlib.error as error:
        raise BadInput(f"is damaged after byte {at}: cannot be unpacked") from error
    if unpacking.unconsumed_tail:
        raise BadInput(f"has a pass after byte {at} of more than {MOST_IN_A_PASS} bytes")
    return plain


def _decoded(plain: bytes, at: int) -> Any:
    try:
        written = _decode(plain)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"is damaged after byte {at}: cannot be decoded") from error
    if not isinstance(written, dict):
        raise BadInput(f"is damaged after byte {at}: holds something that is no pass")
    return written


class _Reader:
    """What one file has told so far."""

    def __init__(self, file: str, head: dict[str, Any]) -> None:
        self._file = file
        self._version = str(head.get("version", "unknown"))[:40]
        try:
            self._forms = Forms(head["fields"])
            self._seen = changes.of_snapshot(self._forms)
            self._decided = changes.of_plan(self._forms)
            self._policy = self._forms.of(Policy)
        except Exception as error:
            raise BadInput(f"was made by version {self._version}: {_plain(error)}") from error
        self._last: tuple[Any, Any, Any] = (changes.NONE, changes.NONE, changes.NONE)

    def step(self, number: int, written: dict[str, Any]) -> Recorded:
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
            raise BadInput(f"pass {number} is none that we wrote: {_plain(error)}") from error
        self._last = seen, policy, decided
        if policy is None:
            raise BadInput(f"pass {number} is none that we wrote: it names no policy")
        return Recorded(
            number=number,
            file=self._file,
            version=self._version,
            snapshot=seen,
            policy=policy,
            plan=decided,
            skipped=skipped,
        )


def _plain(error: Exception) -> str:
    return (
        str(error) if isinstance(error, BadInput) else f"it does not fit ({type(error).__name__})"
    )
