"""How a file of a recording is laid out, and how much of it there may be.

A file begins with a line that says what it is. Then come parcels: how many bytes, two checksums (of
these bytes, and of the parcel's own first eight), and the bytes, which are msgpack in one stream of
zlib that goes through the whole file. The first parcel is the head: which version wrote it, and the
fields of every class. Each further one is a pass. A file stands for itself: its first pass is
whole, and the others say what changed.
"""

from __future__ import annotations

import struct
import zlib

BEGINNING = b"gang-extender recording 1\n"
PREFIX, SUFFIX = "recording-", ".gxr"

#: The bytes a recording may have are divided among so many files, the oldest of which goes.
FILES = 8
#: A pass may have so many bytes before they are compressed, and a file so many in all.
MOST_IN_A_PASS = 64 << 20
MOST_IN_A_FILE = 512 << 20

_HEAD = struct.Struct("<II")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size


def parcel(content: bytes) -> bytes:
    """Put what is to be read again between a length and checksums."""
    head = _HEAD.pack(len(content), zlib.crc32(content))
    return head + _CHECK.pack(zlib.crc32(head)) + content


def opened(head: bytes) -> tuple[int, int] | None:
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
