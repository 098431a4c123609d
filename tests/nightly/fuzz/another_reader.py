"""HTTP as h11 reads it: a well-kept reader that shares nothing with ours, to be compared with.

What it refuses and we need not is tidied before it looks, so that all else is a difference. Nothing
of that moves the end of a call.
"""

from __future__ import annotations

import re

import h11

#: Method, target and body.
Call = tuple[bytes, bytes, bytes]

_TIDIED = (
    # RFC 9112, 2.2: an empty line before a call is left over from the one before, and skipped.
    (re.compile(rb"\A[\r\n]+"), b""),
    # 3: what the first line is made of may stand further apart.
    (re.compile(rb"\A([A-Z]+) +(\S+) +(?=[A-Z]+/)"), rb"\1 \2 "),
    # Ours knows a relative of HTTP/1 by name, and reads it as that.
    (re.compile(rb"\A([A-Z]+ \S+) RTSP/"), rb"\1 HTTP/"),
    # 7.1: a chunk's size has as many digits as it likes; h11 takes twenty.
    (re.compile(rb"\r\n0+(?=[0-9A-Fa-f]{20}[;\r])"), b"\r\n"),
)


def calls(sent: bytes) -> list[Call]:
    """Give the calls that it sees, up to where it refuses or the connection ends."""
    found: list[Call] = []
    while sent := _tidied(sent):
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(sent)
        try:
            event = reader.next_event()
            if not isinstance(event, h11.Request):
                break
            asked, body = event, b""
            while isinstance(event := reader.next_event(), h11.Data):
                body += bytes(event.data)
        except h11.ProtocolError:
            break
        if not isinstance(event, h11.EndOfMessage):
            break
        found.append((asked.method, asked.target, body))
        if not _goes_on(reader, asked):
            break
        sent, _ = reader.trailing_data
    return found


def _tidied(sent: bytes) -> bytes:
    for pattern, put in _TIDIED:
        sent = pattern.sub(put, sent)
    return sent


def _goes_on(reader: h11.Connection, asked: h11.Request) -> bool:
    """Say whether another call may follow; in HTTP/1.0, where h11 always ends, if it was wished.

    Whoever asks for another protocol and is not heeded goes on in this one.
    """
    if asked.http_version == b"1.0":
        said = [value for name, value in asked.headers if name == b"connection"]
        wishes = {each.strip().lower() for each in b",".join(said).split(b",")}
        return b"keep-alive" in wishes and b"close" not in wishes
    return reader.their_state is not h11.MUST_CLOSE
