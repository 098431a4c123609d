"""HTTP as h11 reads it: an independent parser to compare ours with.

Known differences are normalized before, without moving the end of a call.
"""

from __future__ import annotations

import re

import h11

#: Method, target and body.
Call = tuple[bytes, bytes, bytes]

_NORMALIZED = (
    # RFC 9112, 2.2: empty lines before a request are skipped.
    (re.compile(rb"\A[\r\n]+"), b""),
    # 3: the parts of the first line may be separated by several spaces.
    (re.compile(rb"\A([A-Z]+) +(\S+) +(?=[A-Z]+/)"), rb"\1 \2 "),
    # Our parser accepts RTSP, and reads it as HTTP/1.
    (re.compile(rb"\A([A-Z]+ \S+) RTSP/"), rb"\1 HTTP/"),
    # 7.1: a chunk size may have any number of digits; h11 accepts twenty.
    (re.compile(rb"\r\n0+(?=[0-9A-Fa-f]{20}[;\r])"), b"\r\n"),
)


def calls(sent: bytes) -> list[Call]:
    """Return the calls that h11 reads, until it refuses or the connection ends."""
    found: list[Call] = []
    while sent := _normalized(sent):
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(sent)
        try:
            event = reader.next_event()
            if not isinstance(event, h11.Request):
                break
            request, body = event, b""
            while isinstance(event := reader.next_event(), h11.Data):
                body += bytes(event.data)
        except h11.ProtocolError:
            break
        if not isinstance(event, h11.EndOfMessage):
            break
        found.append((request.method, request.target, body))
        if not _keeps_alive(reader, request):
            break
        sent, _ = reader.trailing_data
    return found


def _normalized(sent: bytes) -> bytes:
    for pattern, put in _NORMALIZED:
        sent = pattern.sub(put, sent)
    return sent


def _keeps_alive(reader: h11.Connection, request: h11.Request) -> bool:
    """Return whether another call may follow; h11 always ends after HTTP/1.0.

    A refused upgrade continues with HTTP/1.1.
    """
    if request.http_version == b"1.0":
        values = [value for name, value in request.headers if name == b"connection"]
        options = {each.strip().lower() for each in b",".join(values).split(b",")}
        return b"keep-alive" in options and b"close" not in options
    return reader.their_state is not h11.MUST_CLOSE
