"""Reads HTTP/1.1 messages from a stream and keeps their bytes unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

_LIMIT = 1 << 26
#: Responses that have no body, whatever their headers say.
_BODILESS = (204, 304)


class ConnectionClosed(Exception):
    """The peer closed the connection, between two messages or within one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The start line and headers of a message."""

    raw: bytes
    start: str
    fields: dict[str, str]

    @property
    def length(self) -> int:
        return int(self.fields.get("content-length", "0"))

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.fields.get("transfer-encoding", "").lower()

    @property
    def is_last(self) -> bool:
        """Return whether the connection ends after this message."""
        return self.fields.get("connection", "").lower() == "close"


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request."""

    head: Head
    #: As received, with chunk framing.
    raw_body: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head.raw + self.raw_body

    @property
    def method(self) -> str:
        return self.head.start.split(" ", 2)[0]

    @property
    def path(self) -> str:
        return urlsplit(self.head.start.split(" ", 2)[1]).path

    @property
    def query(self) -> dict[str, str]:
        asked = urlsplit(self.head.start.split(" ", 2)[1]).query
        return {name: values[-1] for name, values in parse_qs(asked).items()}


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response, or the head of one with an endless body."""

    head: Head
    raw_body: bytes = b""
    body: bytes = b""
    is_whole: bool = False

    @property
    def raw(self) -> bytes:
        return self.head.raw + self.raw_body

    @property
    def status(self) -> int:
        return int(self.head.start.split(" ", 2)[1])


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read the next request; raises `ConnectionClosed` if there is none."""
    head = await _read_head(reader)
    if head.is_chunked:
        pieces = [piece async for piece in chunks(reader)]
        return Request(head, b"".join(map(frame, pieces)) + LAST_CHUNK, b"".join(pieces))
    body = await _exactly(reader, head.length)
    return Request(head, body, body)


async def read_answer_head(reader: asyncio.StreamReader) -> Answer:
    """Read the head of the next response."""
    return Answer(await _read_head(reader))


async def read_rest(reader: asyncio.StreamReader, answer: Answer, method: str) -> Answer:
    """Read the body that belongs to the head of *answer*."""
    head = answer.head
    if method == "HEAD" or answer.status in _BODILESS:
        return Answer(head, is_whole=True)
    if head.is_chunked:
        pieces = [piece async for piece in chunks(reader)]
        return Answer(head, b"".join(map(frame, pieces)) + LAST_CHUNK, b"".join(pieces), True)
    if "content-length" in head.fields:
        body = await _exactly(reader, head.length)
    else:
        body = await reader.read(_LIMIT)
        while piece := await reader.read(_LIMIT):
            body += piece
    return Answer(head, body, body, True)


LAST_CHUNK = b"0\r\n\r\n"


def frame(piece: bytes) -> bytes:
    """Return *piece* as one chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each chunk of a body."""
    while True:
        size = int((await _until(reader, b"\r\n")).split(b";")[0], 16)
        if not size:
            # Trailers end with an empty line.
            while await _until(reader, b"\r\n") != b"\r\n":
                pass
            return
        yield (await _exactly(reader, size + 2))[:-2]


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line of a chunked body: the events of a watch, however they are chunked."""
    rest = b""
    async for piece in chunks(reader):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


async def _read_head(reader: asyncio.StreamReader) -> Head:
    raw = await _until(reader, b"\r\n\r\n")
    start, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = {}
    for line in rest:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return Head(raw, start, fields)


async def _until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return await reader.readuntil(end)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise ConnectionClosed(str(error)) from error


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise ConnectionClosed(str(error)) from error
