"""Recordings for `replay`: planned again, or one sentence that says what is wrong with the file."""

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

#: A file byte by byte, or what its parcels hold: with them the checksums are always right.
_BYTES, _PARCELS = b"bytes\n", b"parcels\n"


class Recordings(Edge):
    """Input: which of both it is on a line of its own, then a file, or its parcels as msgpack."""

    name = "recording"
    count = 120
    suffix = ".gxr"
    longest = 400_000
    words = (
        _BYTES,
        _PARCELS,
        BEGINNING,
        EVIL.encode(),
        b"\xc0",
        b"\x80",
        b"\x90",
        b"\xdf",
        b"\xc1",
    )

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp())
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder)

    def real(self) -> list[bytes]:
        return [_BYTES + _file(), _PARCELS + msgspec.msgpack.encode(_parcels())]

    def made(self, chance: Random) -> bytes:
        spoilt = changed(_parcels(), chance, chance.randrange(1, 4))
        try:
            return _PARCELS + msgspec.msgpack.encode(spoilt)
        except (OverflowError, UnicodeEncodeError, RecursionError):
            # Of what msgpack cannot write there is no recording either.
            return _PARCELS + msgspec.msgpack.encode(_parcels()[: chance.randrange(4)])

    def judge(self, data: bytes) -> None:
        (self._folder / file_name(1)).write_bytes(_laid_out(data))
        must_end_well(run("replay", str(self._folder)), (0, 2, DIFFERS))


def _laid_out(data: bytes) -> bytes:
    if not data.startswith(_PARCELS):
        return data.removeprefix(_BYTES)
    try:
        parcels = msgspec.msgpack.decode(data.removeprefix(_PARCELS))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return data
    packing = zlib.compressobj()
    written = [BEGINNING]
    for each in parcels if isinstance(parcels, list) else [parcels]:
        content = packing.compress(msgspec.msgpack.encode(each))
        written.append(frame(content + packing.flush(zlib.Z_SYNC_FLUSH)))
    return b"".join(written)


@cache
def _file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        recorded(Path(folder), seconds=70)
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


@cache
def _parcels() -> list[Any]:
    """Give what the parcels of a real recording hold."""
    left, unpacking, found = _file().removeprefix(BEGINNING), zlib.decompressobj(), list[Any]()
    while left and (told := unframe(left[:HEAD_BYTES])) is not None:
        end = HEAD_BYTES + told[0]
        found.append(msgspec.msgpack.decode(unpacking.decompress(left[HEAD_BYTES:end])))
        left = left[end:]
    return found
