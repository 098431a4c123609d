"""Answers that end: a socket's timeout is that of each piece, and nobody says how many follow.

Whoever sends a byte now and then is never late by that, and can fill any memory. So what comes over
a socket comes before one moment, and an answer that is read whole has a bound.
"""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import Any

import urllib3

from extender.errors import Unreachable

#: No answer about one object, or a few, is longer; one object has at most a few MB.
LONGEST = 1 << 24
_PIECE = 1 << 16


class Wire(io.RawIOBase):
    """What comes over a socket, for as long in all as its timeout is in the beginning."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        """*raw* reads from *sock*, and is closed with us."""
        super().__init__()
        self._sock = sock
        self._raw = raw
        within_s = sock.gettimeout()
        self._until = None if within_s is None else time.monotonic() + within_s

    def each_within(self, seconds: float) -> None:
        """Let every piece take so long from now on, however many there are."""
        self._until = None
        self._sock.settimeout(seconds)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read a piece while there is time."""
        if self._until is not None:
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class _Wired:
    """What both kinds of connections have in common."""

    #: Over which the last answer comes.
    wire: Wire

    def response_class(self, sock: socket.socket, *args: Any, **rest: Any) -> HTTPResponse:
        """Begin to read an answer, as `http.client` would, over a wire."""
        answer = HTTPResponse(sock, *args, **rest)
        self.wire = Wire(sock, answer.fp.detach())
        answer.fp = io.BufferedReader(self.wire)
        return answer


class PlainConnection(_Wired, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """One without TLS."""


class TlsConnection(_Wired, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """One with TLS."""


def each_within(response: urllib3.BaseHTTPResponse, seconds: float) -> None:
    """Let what is still to come take as long as it takes, each piece so many *seconds*."""
    if isinstance(response.connection, PlainConnection | TlsConnection):
        response.connection.wire.each_within(seconds)


def whole(response: urllib3.BaseHTTPResponse, what: str, most: int = LONGEST) -> bytes:
    """Read the body to its end; *what* was asked is named when it breaks off, or has no end."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := response.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                response.close()
                raise Unreachable(f"{what}: the answer is longer than {most} bytes")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{what}: the answer broke off: {error}") from error
    return b"".join(pieces)
