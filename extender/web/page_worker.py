"""One thread writes the pages, one after the other, and rests as long as it worked.

Whatever runs beside the hooks takes from them: two threads share an interpreter. So pages never
take more than half of one thread, however many ask; a page that took long is given again for ten
times as long; and who cannot be served soon is told to come back.
"""

from __future__ import annotations

import io
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

log = logging.getLogger(__name__)
#: What answers a request by PEP 3333.
Wsgi: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_MOST_WAITING = 64
#: Nobody who looks at a page waits longer.
_PATIENCE_S = 15.0
#: So many times as long as it took to write is a page good.
_GOOD_FOR = 10.0
_MOST_KEPT = 16
#: Bytes of all pages that are kept; one alone may be larger.
_MOST_BYTES = 32 * 1024 * 1024
#: So often pages that are not good any longer are thrown away though nobody asks.
_LOOK_S = 10.0
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"


class Page(NamedTuple):
    """An answer in writing; its pieces are shared by all who read it."""

    status: int
    headers: bytes
    pieces: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Count the bytes of the body."""
        return sum(map(len, self.pieces))


class PageRequest(NamedTuple):
    """A page somebody waits for."""

    method: bytes
    path: bytes
    since: float
    is_wanted: Callable[[], bool]
    take: Callable[[Page], None]
    #: Only what the page looks at.
    query: bytes = b""
    #: What was filled in; only a port that has a form takes any.
    form: bytes = b""

    @property
    def key(self) -> tuple[bytes, ...]:
        """Tell apart what is answered differently, and not what is only spelt differently.

        The links of a page hang on how many slashes its address was written with.
        """
        slashes = b"/" * self.path.count(b"/")
        return self.method, unquote_to_bytes(self.path), slashes, self.query, self.form


def note(status: int, sentence: str) -> Page:
    """Write a page of one line."""
    return Page(status, _TEXT, (f"{sentence}\n".encode(),))


#: As the API says what went wrong.
_BUSY = Page(
    503,
    b"content-type: application/json\r\nretry-after: 5\r\n",
    (b'{"error":"busy with other pages; ask again in a moment"}\n',),
)


class PageWorker:
    """Takes inquiries from any thread; `take` is called in the desk's."""

    def __init__(
        self,
        app: Wsgi,
        monotonic: Callable[[], float] = time.monotonic,
        stands: Callable[[], object] = lambda: None,
        rest: Callable[[float], object] | None = None,
    ) -> None:
        """What was written while *stands* said otherwise is not given any more."""
        self._app = app
        self._monotonic = monotonic
        self._stands = stands
        self._stood = stands()
        self._inquiries: queue.Queue[PageRequest | None] = queue.Queue()
        self._kept: dict[tuple[bytes, ...], tuple[float, Page]] = {}
        self._ending = threading.Event()
        self._rest = rest or self._ending.wait
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the page in hand."""
        self._ending.set()
        self._inquiries.put(None)
        self._thread.join()

    def ask(self, inquiry: PageRequest) -> None:
        """Have a page written."""
        if self._inquiries.qsize() >= _MOST_WAITING:
            inquiry.take(_BUSY)
        else:
            self._inquiries.put(inquiry)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                inquiry = self._inquiries.get(timeout=_LOOK_S)
            except queue.Empty:
                inquiry = None
            now = self._monotonic()
            self._forget(now)
            if inquiry is None or not inquiry.is_wanted():
                continue
            kept = self._kept.get(inquiry.key)
            if kept is not None:
                inquiry.take(kept[1])
            elif now - inquiry.since > _PATIENCE_S:
                inquiry.take(_BUSY)
            else:
                inquiry.take(self._write(inquiry, now))
                self._rest(self._monotonic() - now)

    def _forget(self, now: float) -> None:
        """Throw away what is not good any longer: all of it, if we lead no more or again."""
        stands = self._stands()
        if stands != self._stood:
            self._stood, self._kept = stands, {}
        self._kept = {key: kept for key, kept in self._kept.items() if now < kept[0]}

    def _write(self, inquiry: PageRequest, began: float) -> Page:
        try:
            page = self._ask_app(inquiry)
        except Exception:
            log.exception("page failed", extra={"facts": {"path": inquiry.path.decode("latin-1")}})
            return note(500, "the extender failed to answer; its log has the details")
        now = self._monotonic()
        if page.status == 200 and len(self._kept) < _MOST_KEPT:
            self._kept[inquiry.key] = (now + _GOOD_FOR * (now - began), page)
            self._make_room()
        return page

    def _make_room(self) -> None:
        """Throw away the oldest pages while all together are too large; the newest stays."""
        size = sum(page.size for _, page in self._kept.values())
        for key in list(self._kept)[:-1]:
            if size <= _MOST_BYTES:
                return
            size -= self._kept.pop(key)[1].size

    def _ask_app(self, inquiry: PageRequest) -> Page:
        told: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            told[:] = status, headers

        body = self._app(_environment(inquiry), start_response)
        try:
            pieces = tuple(body)
        finally:
            if hasattr(body, "close"):
                body.close()
        status, headers = told
        lines = (f"{k}: {v}\r\n" for k, v in headers if k.lower() != "content-length")
        return Page(int(status[:3]), "".join(lines).encode("latin-1"), pieces)


def _environment(inquiry: PageRequest) -> dict[str, Any]:
    # No page looks at headers, and few at queries: nobody asks for the same in many ways.
    return {
        "REQUEST_METHOD": inquiry.method.decode("latin-1"),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(inquiry.path).decode("latin-1"),
        "QUERY_STRING": inquiry.query.decode("latin-1"),
        # As it was written: by it a browser reads the links of a page.
        "REQUEST_URI": inquiry.path.decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(inquiry.form),
        "CONTENT_TYPE": "application/x-www-form-urlencoded" if inquiry.form else "",
        "CONTENT_LENGTH": str(len(inquiry.form)),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
