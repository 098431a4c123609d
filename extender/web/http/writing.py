"""JSON in pieces: no part of it is written in one go that others would have to wait for.

msgspec is many times as fast as Flask's own writer, but while it writes, no other thread runs, and
the whole of a large cluster takes it long enough to delay kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from extender.text.plain import escaped

#: Pieces are of this size or a little more.
PIECE = 64 * 1024

_encode = msgspec.json.Encoder().encode


def pieces(document: object) -> Iterator[bytes]:
    """Write *document*; of an object its fields, and of lists their items, one by one."""
    piece = bytearray()
    for part in _parts(document):
        piece += part
        if len(piece) >= PIECE:
            yield _plain(bytes(piece))
            piece.clear()
    if piece:
        yield _plain(bytes(piece))


def _plain(piece: bytes) -> bytes:
    """Give *piece* with what would steer a terminal in JSON's own notation: people use curl."""
    if piece.isascii() and b"\x7f" not in piece:
        return piece
    return escaped(piece.decode()).encode()


def _parts(document: Any, deep: int = 2) -> Iterator[bytes]:
    if deep and isinstance(document, Mapping):
        comma = b"{"
        for key, value in document.items():
            yield comma + _encode(str(key)) + b":"
            yield from _parts(value, deep - 1)
            comma = b","
        yield b"}" if comma == b"," else b"{}"
    elif deep and isinstance(document, list | tuple | Iterator):
        comma = b"["
        for each in document:
            yield comma + _encode(each)
            comma = b","
        yield b"]" if comma == b"," else b"[]"
    else:
        yield _encode(document)
