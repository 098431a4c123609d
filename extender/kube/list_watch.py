"""The protocol of list and watch for one resource, without sockets.

A resource is first listed: as a stream of events that ends in a marked bookmark (one connection,
and no page is ever built), or page by page if the API server does not support streams. After that
it is watched from the last resourceVersion received. The reflector owns the sockets. It sends the
`next_request`, passes the response to `page`, `line` or `refused`, and acts on what they return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from extender.cache.changes import Change, Delete, Item, key_of
from extender.errors import NoResponse
from extender.kube.client import LONGEST
from extender.kube.decode.decoder import ObjectDecoder
from extender.kube.decode.limits import cut_nesting

#: The number of deleted objects whose last version is remembered.
MOST_GONE = 4096
#: The digits of a version; etcd counts to 2**63.
_LONGEST = 20


def number(version: str) -> int | None:
    """Return a resourceVersion as a number; None if it cannot be compared."""
    is_number = len(version) <= _LONGEST and version.isascii() and version.isdigit()
    return int(version) if is_number else None


class EventOrder:
    """The newest version received of every object that has changed since the last list.

    A list always counts as newer: it is read from a majority of etcd, and after the restore of a
    backup its versions are lower than those that we know.
    """

    def __init__(self) -> None:
        #: The version of the last list: it contains all changes up to here.
        self._listed = -1
        self._known: dict[str, int] = {}
        #: The versions of deleted objects, the oldest first.
        self._gone: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of remembered versions."""
        return len(self._known) + len(self._gone)

    def listed(self, version: str) -> None:
        """Start again from a complete list of that version."""
        at = number(version)
        self._listed = -1 if at is None else at
        self._known.clear()
        self._gone.clear()

    def is_newer(self, key: str, version: str, *, is_gone: bool) -> bool:
        """Return whether an event is newer than the known state of its object; if so, record it."""
        at = number(version)
        if at is None:
            return True
        known = self._known.get(key, -1) if key in self._known else self._gone.get(key, -1)
        if at <= self._listed or at < known or (at == known and not is_gone):
            return False
        if is_gone:
            self._known.pop(key, None)
            self._gone.pop(key, None)
            self._gone[key] = at
            if len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
        else:
            self._gone.pop(key, None)
            self._known[key] = at
        return True


#: Objects per page. Small, because other threads wait while a page is scanned.
PAGE_SIZE = 250
#: Failures in a row, other than "expired", after which the resourceVersion is given up.
_MAX_FAILURES = 3
#: Streamed lists in a row that a line broke off, after which the next list uses pages.
_MAX_BROKEN_STREAMS = 2


class Mode(Enum):
    """The kind of response to a request."""

    STREAM = "list as a stream, then watch"
    PAGE = "one page of a list"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Request:
    """The next request to send."""

    mode: Mode
    query: dict[str, str]


class Signal(Enum):
    """The meaning of a line that is not a change; the reflector logs some of these sentences."""

    ALIVE = "a bookmark: no change up to this resourceVersion"
    LISTED = "the streamed list is complete"
    EXPIRED = "our resourceVersion is too old: list again"
    BROKEN = "the stream cannot be used any further"
    SKIPPED = "an object that cannot be used"
    OVERTAKEN = "a late event: a newer one of the same object was received before"


ReceivedItem: TypeAlias = Change | Signal


class Step(Enum):
    """The next step after a refusal; the reflector logs some of these sentences."""

    RETRY = "retry after a delay"
    RELIST = "our resourceVersion is too old: list again"
    PAGES = "this API server does not stream lists: list in pages"
    ABSENT = "the resource does not exist here"
    RENEW = "not authenticated: read the credentials again"


class _PageMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    more: str | None = msgspec.field(name="continue", default=None)


class _Page(msgspec.Struct, gc=False):
    metadata: _PageMeta
    # Decoded one by one, so that other threads can run in between.
    items: list[msgspec.Raw] | None = None


_page = msgspec.json.Decoder(_Page)


class ListWatch:
    """The state of the list and watch of one resource."""

    def __init__(
        self, decoder: ObjectDecoder[Any], *, streaming: bool = True, page_size: int = PAGE_SIZE
    ) -> None:
        self._decoder = decoder
        self._streaming = streaming
        self._page_size = page_size
        self._version = ""
        self._continue = ""
        self._failures = 0
        #: Streamed lists that a line broke off since the last complete list.
        self._broken_streams = 0
        self._mode = Mode.PAGE
        self._order = EventOrder()

    @property
    def is_listed(self) -> bool:
        """Return whether a list is complete, so that a watch can start from it."""
        return bool(self._version)

    def start_over(self) -> None:
        """List again; all that was received so far is dropped."""
        self._version = self._continue = ""
        self._failures = 0
        self._order = EventOrder()

    def next_request(self, timeout_s: int) -> Request:
        """Return the request to send now; a watch ends by itself after *timeout_s*."""
        watch = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        if self._version:
            self._mode = Mode.WATCH
            return Request(self._mode, watch | {"resourceVersion": self._version})
        # A line that breaks a stream may be readable, or can be left out, as an item of a page.
        if self._streaming and self._broken_streams < _MAX_BROKEN_STREAMS:
            # A list that broke off has sent objects that the next one sends again.
            self._mode, self._order = Mode.STREAM, EventOrder()
            whole = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return Request(self._mode, watch | whole)
        # The cache drops what is not in a list, so a list that broke off starts again.
        self._mode, self._continue = Mode.PAGE, ""
        return Request(self._mode, {"limit": str(self._page_size)})

    def next_page(self) -> Request:
        """Return the request after a page that was not the last."""
        return Request(Mode.PAGE, {"limit": str(self._page_size), "continue": self._continue})

    def page(self, body: bytes) -> Iterator[Item]:
        """Decode one page; after the last one the resource `is_listed`."""
        page = _read_page(body)
        if not (page.metadata.version or page.metadata.more):
            # A Status, for example: read as an empty list, it would empty the cache.
            raise NoResponse("the response is not a list of objects: it has no resourceVersion")
        for raw in page.items or ():
            item = self._decoder.item(raw)
            if item is not None:
                yield item
        self._failures = 0
        self._continue = page.metadata.more or ""
        if not self._continue:
            self._version = page.metadata.version
            self._order.listed(self._version)
            self._broken_streams = 0

    def line(self, line: bytes) -> ReceivedItem:
        """Decode one line of a stream or a watch."""
        received = self._line(line)
        if received is Signal.BROKEN and self._mode is Mode.STREAM:
            self._broken_streams += 1
        return received

    def _line(self, line: bytes) -> ReceivedItem:
        received = self._decoder.line(line)
        if received.type == "ERROR":
            return self._error(received.code)
        if not received.type:
            self._note_failure()
            return Signal.BROKEN
        self._failures = 0
        if received.is_end_of_list and self._mode is Mode.STREAM:
            self._mode = Mode.WATCH
            self._version = received.version
            self._order.listed(self._version)
            self._broken_streams = 0
            return Signal.LISTED
        if self._mode is Mode.WATCH and received.version:
            self._advance(received.version)
        if received.type == "BOOKMARK":
            return Signal.ALIVE
        if received.change is None:
            return Signal.SKIPPED
        return (
            received.change
            if self._is_newer(received.change, received.version)
            else Signal.OVERTAKEN
        )

    def _advance(self, version: str) -> None:
        """Record the version from which to watch; a late line does not lower it."""
        before, now = number(self._version), number(version)
        if before is None or now is None or now > before:
            self._version = version

    def _is_newer(self, change: Change, version: str) -> bool:
        is_gone = isinstance(change, Delete)
        key = change.key if isinstance(change, Delete) else key_of(change.item)
        return self._order.is_newer(key, version, is_gone=is_gone)

    def refused(self, status: int) -> Step:
        """Return the next step after an HTTP status other than 200."""
        if status == 410:
            self.start_over()
            return Step.RELIST
        if self._mode is Mode.STREAM and status in (400, 422):
            self._streaming = False
            return Step.PAGES
        if status == 404:
            self.start_over()
            return Step.ABSENT
        if status == 401:
            return Step.RENEW
        # These two say nothing about our version, and a list would only add to the load.
        if status not in (403, 429):
            self._note_failure()
        return Step.RETRY

    def timed_out(self) -> None:
        """Count a watch that received nothing for too long, not even a bookmark.

        The connection may be dead. But a watch from a version in the future is silent too, as every
        watch is after the restore of an etcd backup; only a list distinguishes the two.
        """
        self._note_failure()

    def _error(self, code: int) -> Signal:
        if code == 410:
            self.start_over()
            return Signal.EXPIRED
        self._note_failure()
        return Signal.BROKEN

    def _note_failure(self) -> None:
        """Count a failure; give up a resourceVersion that the API server seems unable to serve."""
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            self.start_over()


def _read_page(body: bytes) -> _Page:
    try:
        try:
            return _page.decode(body)
        except RecursionError:
            # One object that is nested too deeply must not cost all others of its page.
            return _page.decode(cut_nesting(body) or body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # A response of a proxy, or a body that broke off: a retry may succeed.
        raise NoResponse(f"the response is not a list of objects: {error}") from error


def lines(chunks: Iterable[bytes], longest: int = LONGEST) -> Iterator[bytes]:
    """Split *chunks* at newlines; an unfinished last line shows a broken stream and is dropped.

    A line that is too long is yielded as far as it was received. It cannot be decoded, and is the
    last.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            yield b"".join(parts)
            return
        if not rest:
            continue
        line = b"".join(parts)
        if line:
            yield line
        yield from filter(None, rest[:-1])
        parts = [rest[-1]]
        size = len(rest[-1])
