"""Recordings for `replay`: replayed, or one sentence that says what is wrong with the file."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from extender.cli.replay import DIFFERS
from extender.replay.recording import BEGINNING, HEAD_BYTES, file_name, frame, unframe
from tests.nightly.fuzz.edge import Edge
from tests.nightly.fuzz.edges.plan import must_end_well, run
from tests.nightly.fuzz.mutations import EVIL, changed
from tests.unit.replay.runs import recorded

#: The bytes of a file, or the contents of its frames, which then have correct checksums.
_BYTES, _FRAMES = b"bytes\n", b"frames\n"


class Recordings(Edge):
    """Input: a line with the format, then a file, or the contents of its frames as msgpack."""

    name = "recording"
    count = 120
    suffix = ".gxr"
    longest = 400_000
    words = (_BYTES, _FRAMES, BEGINNING, EVIL.encode(), *(b"\xc0 \x80 \x90 \xdf \xc1".split()))

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp())
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder)

    def real(self) -> list[bytes]:
        return [_BYTES + _file(), _FRAMES + msgspec.msgpack.encode(_frames())]

    def made(self, rng: Random) -> bytes:
        frames = changed(_frames(), rng, rng.randrange(1, 4))
        try:
            return _FRAMES + msgspec.msgpack.encode(frames)
        except (OverflowError, UnicodeEncodeError, RecursionError):
            # No recording contains what msgpack cannot write.
            return _FRAMES + msgspec.msgpack.encode(_frames()[: rng.randrange(4)])

    def judge(self, data: bytes) -> None:
        (self._folder / file_name(1)).write_bytes(_file_of(data))
        must_end_well(run("replay", str(self._folder)), (0, 2, DIFFERS))


def _file_of(data: bytes) -> bytes:
    if not data.startswith(_FRAMES):
        return data.removeprefix(_BYTES)
    try:
        frames = msgspec.msgpack.decode(data.removeprefix(_FRAMES))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return data
    compressor = zlib.compressobj()
    written = [BEGINNING]
    for each in frames if isinstance(frames, list) else [frames]:
        content = compressor.compress(msgspec.msgpack.encode(each))
        written.append(frame(content + compressor.flush(zlib.Z_SYNC_FLUSH)))
    return b"".join(written)


@cache
def _file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        recorded(Path(folder), seconds=70)
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


@cache
def _frames() -> list[Any]:
    """Return the contents of the frames of a real recording."""
    left, unpacker, frames = _file().removeprefix(BEGINNING), zlib.decompressobj(), list[Any]()
    while left and (head := unframe(left[:HEAD_BYTES])) is not None:
        end = HEAD_BYTES + head[0]
        frames.append(msgspec.msgpack.decode(unpacker.decompress(left[HEAD_BYTES:end])))
        left = left[end:]
    return frames
