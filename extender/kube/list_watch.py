"""How far we are in following one resource: the protocol of list and watch, without sockets.

A resource is first listed, either as a stream of events that ends in a marked bookmark (one
connection, no page is ever built) or, where the API server does not offer that, page by page.
From then on it is watched from the last resourceVersion heard of. Whoever owns the sockets asks
for the `next_request`, hands over what came back, and does what the answer says.
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

#: Objects that are gone and still remembered, with the version at which they went.
MOST_GONE = 4096
#: Digits; etcd counts to 2**63.
_LONGEST = 20


def number(version: str) -> int | None:
    """Read a version; None for one that cannot be compared."""
    is_number = len(version) <= _LONGEST and version.isascii() and version.isdigit()
    return int(version) if is_number else None


class EventOrder:
    """The newest version heard of every object that has changed since the last list.

    A list is believed whatever it says: it is read from the majority of etcd, and where a backup
    was restored its versions are lower than those we know.
    """

    def __init__(self) -> None:
        #: Whatever happened up to here was in the list.
        self._listed = -1
        self._known: dict[str, int] = {}
        #: The same of those that are gone, the oldest first.
        self._gone: dict[str, int] = {}

    def listed(self, version: str) -> None:
        """Hear that a list is complete, and of which version it is."""
        at = number(version)
        self._listed = -1 if at is None else at
        self._known.clear()
        self._gone.clear()

    def is_newer(self, key: str, version: str, *, is_gone: bool) -> bool:
        """Ask whether a line is newer than all we know of an object, and remember it if so."""
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


#: Objects per page. Small, because a page is scanned in one go while other threads wait.
PAGE_SIZE = 250
#: Answers in a row that were neither success nor "expired" before we stop trusting the version.
_PATIENCE = 3
#: Streamed lists in which a line ended all, before the next list is asked for in pages.
_SPOILT_STREAMS = 2


class Mode(Enum):
    """What kind of answer a request brings."""

    STREAM = "list as a stream, then watch"
    PAGE = "one page of a list"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask next."""

    mode: Mode
    query: dict[str, str]


class Signal(Enum):
    """What a line can say besides a change."""

    ALIVE = "a bookmark: nothing happened, and this is how far we are"
    LISTED = "the streamed list is complete"
    EXPIRED = "our resourceVersion is too old: list again"
    BROKEN = "the rest of this stream is worth nothing"
    SKIPPED = "an object nobody can use"
    OVERTAKEN = "a line came late: newer ones were heard before"


ReceivedItem: TypeAlias = Change | Signal


class Step(Enum):
    """What to do after a refusal."""

    RETRY = "ask again, after a pause"
    RELIST = "our resourceVersion is too old: list again"
    PAGES = "this API server does not stream lists: ask for pages"
    ABSENT = "there is no such resource here"
    RENEW = "we are not let in: read the credentials again"


class _PageMeta(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")
    more: str | None = msgspec.field(name="continue", default=None)


class _Page(msgspec.Struct, gc=False):
    metadata: _PageMeta
    # Decoded one by one, so that other threads get a turn in between.
    items: list[msgspec.Raw] | None = None


_page = msgspec.json.Decoder(_Page)


class ListWatch:
    """The state of following one resource."""

    def __init__(
        self, codec: ObjectDecoder[Any], *, streaming: bool = True, page_size: int = PAGE_SIZE
    ) -> None:
        self._codec = codec
        self._streaming = streaming
        self._page_size = page_size
        self._version = ""
        self._continue = ""
        self._refusals = 0
        #: Since the last list that was complete.
        self._spoilt_streams = 0
        self._mode = Mode.PAGE
        self._order = EventOrder()

    @property
    def is_listed(self) -> bool:
        """Ask whether a list is complete, so that a watch can go on from it."""
        return bool(self._version)

    def start_over(self) -> None:
        """List again; nothing heard so far is relied upon."""
        self._version = self._continue = ""
        self._refusals = 0
        self._order = EventOrder()

    def next_request(self, timeout_s: int) -> Request:
        """Say what to begin now; a watch ends by itself after *timeout_s*."""
        watch = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        if self._version:
            self._mode = Mode.WATCH
            return Request(self._mode, watch | {"resourceVersion": self._version})
        # What spoils a stream may well be read, or be left out, as an item of a page.
        if self._streaming and self._spoilt_streams < _SPOILT_STREAMS:
            # One that broke off has told of objects that the next one tells of again.
            self._mode, self._order = Mode.STREAM, EventOrder()
            whole = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return Request(self._mode, watch | whole)
        # Whoever takes in a list forgets what is not in it, so one that broke off begins anew.
        self._mode, self._continue = Mode.PAGE, ""
        return Request(self._mode, {"limit": str(self._page_size)})

    def next_page(self) -> Request:
        """Say what to ask after a page that was not the last."""
        return Request(Mode.PAGE, {"limit": str(self._page_size), "continue": self._continue})

    def page(self, body: bytes) -> Iterator[Item]:
        """Read one page; after the last one the resource `is_listed`."""
        page = _read_page(body)
        if not (page.metadata.version or page.metadata.more):
            # Such as a Status: to take it for an empty list would be to forget everything.
            raise NoResponse("what was answered is no list of objects: it has no resourceVersion")
        for raw in page.items or ():
            item = self._codec.item(raw)
            if item is not None:
                yield item
        self._refusals = 0
        self._continue = page.metadata.more or ""
        if not self._continue:
            self._version = page.metadata.version
            self._order.listed(self._version)
            self._spoilt_streams = 0

    def line(self, line: bytes) -> ReceivedItem:
        """Read one line of a stream or a watch."""
        heard = self._line(line)
        if heard is Signal.BROKEN and self._mode is Mode.STREAM:
            self._spoilt_streams += 1
        return heard

    def _line(self, line: bytes) -> ReceivedItem:
        heard = self._codec.line(line)
        if heard.type == "ERROR":
            return self._error(heard.code)
        if not heard.type:
            self._lose_patience()
            return Signal.BROKEN
        self._refusals = 0
        if heard.is_end_of_list and self._mode is Mode.STREAM:
            self._mode = Mode.WATCH
            self._version = heard.version
            self._order.listed(self._version)
            self._spoilt_streams = 0
            return Signal.LISTED
        if self._mode is Mode.WATCH and heard.version:
            self._go_on_from(heard.version)
        if heard.type == "BOOKMARK":
            return Signal.ALIVE
        if heard.change is None:
            return Signal.SKIPPED
        return heard.change if self._is_news(heard.change, heard.version) else Signal.OVERTAKEN

    def _go_on_from(self, version: str) -> None:
        """Remember how far we are; a line that came late brings us nowhere."""
        before, now = number(self._version), number(version)
        if before is None or now is None or now > before:
            self._version = version

    def _is_news(self, change: Change, version: str) -> bool:
        is_gone = isinstance(change, Delete)
        key = change.key if isinstance(change, Delete) else key_of(change.item)
        return self._order.is_newer(key, version, is_gone=is_gone)

    def refused(self, status: int) -> Step:
        """Take an HTTP status other than 200; say what to do."""
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
        # Neither speaks of our version; to list again would only add to the load.
        if status not in (403, 429):
            self._lose_patience()
        return Step.RETRY

    def timed_out(self) -> None:
        """Hear that a watch brought nothing for too long, not even a bookmark.

        It may be a dead line. But one from a version of the future is silent too, as every watch
        is after a backup of etcd was restored; only a list tells.
        """
        self._lose_patience()

    def _error(self, code: int) -> Signal:
        if code == 410:
            self.start_over()
            return Signal.EXPIRED
        self._lose_patience()
        return Signal.BROKEN

    def _lose_patience(self) -> None:
        """Give up a resourceVersion the API server cannot serve, such as one from its future."""
        self._refusals += 1
        if self._refusals >= _PATIENCE:
            self.start_over()


def _read_page(body: bytes) -> _Page:
    try:
        try:
            return _page.decode(body)
        except RecursionError:
            # One object that is nested too deeply must not cost us all others.
            return _page.decode(cut_nesting(body) or body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # A proxy on the way, or a body that broke off: whoever asks again may hear better.
        raise NoResponse(f"what was answered is no list of objects: {error}") from error


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut *chunks* at newlines; an unfinished last line is the mark of a broken stream: dropped.

    One without an end is given as far as it came, which nobody can read, and is the last.
    """
    begun: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > LONGEST:
            yield b"".join(begun)
            return
        if not rest:
            continue
        line = b"".join(begun)
        if line:
            yield line
        yield from filter(None, rest[:-1])
        begun = [rest[-1]]
        size = len(rest[-1])
