"""Render pages in one thread, one after the other; the thread rests as long as it worked.

Whatever runs beside the hooks slows them down, because threads share an interpreter. So pages take
at most half of one thread, however many are requested. A page is reused for ten times as long as
it took. A request that cannot be served soon gets a 503 with retry-after.
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
#: A WSGI application (PEP 3333).
Wsgi: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_MAX_WAITING = 64
#: The maximum wait for a page.
_MAX_WAIT_S = 15.0
#: A page is reused for this many times as long as it took to render.
_REUSE_FACTOR = 10.0
_MAX_CACHED = 16
#: Bytes of all cached pages; the newest alone may be larger.
_MAX_CACHED_BYTES = 32 * 1024 * 1024
#: How often expired pages are dropped while no request comes.
_EXPIRE_S = 10.0
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"


class Page(NamedTuple):
    """A rendered response; its pieces are shared by all readers."""

    status: int
    headers: bytes
    pieces: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return the number of bytes of the body."""
        return sum(map(len, self.pieces))


class PageRequest(NamedTuple):
    """A request that waits for a page."""

    method: bytes
    path: bytes
    since: float
    is_wanted: Callable[[], bool]
    take: Callable[[Page], object]
    #: Only the part that the page uses.
    query: bytes = b""
    #: The body of a form; only the port of the demo accepts one.
    form: bytes = b""

    @property
    def key(self) -> tuple[bytes, ...]:
        """Return the cache key: different for different answers, equal for other spellings.

        The relative links of a page depend on the number of slashes in its address.
        """
        slashes = b"/" * self.path.count(b"/")
        return self.method, unquote_to_bytes(self.path), slashes, self.query, self.form


def note(status: int, sentence: str) -> Page:
    """Return a page of one line of text."""
    return Page(status, _TEXT, (f"{sentence}\n".encode(),))


#: In the API's format of errors.
_BUSY = Page(
    503,
    b"content-type: application/json\r\nretry-after: 5\r\n",
    (b'{"error":"busy with other pages; ask again in a moment"}\n',),
)


class PageWorker:
    """Takes requests from any thread; calls `take` in its own."""

    def __init__(
        self,
        app: Wsgi,
        monotonic: Callable[[], float] = time.monotonic,
        state: Callable[[], object] = lambda: None,
        rest: Callable[[float], object] | None = None,
    ) -> None:
        """Drop cached pages whenever the result of *state* changes."""
        self._app = app
        self._monotonic = monotonic
        self._read_state = state
        self._state = state()
        self._requests: queue.Queue[PageRequest | None] = queue.Queue()
        self._cache: dict[tuple[bytes, ...], tuple[float, Page]] = {}
        self._stopping = threading.Event()
        self._rest = rest or self._stopping.wait
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current page."""
        self._stopping.set()
        self._requests.put(None)
        self._thread.join()

    def ask(self, request: PageRequest) -> None:
        """Queue a request, or answer that the worker is busy."""
        if self._requests.qsize() >= _MAX_WAITING:
            request.take(_BUSY)
        else:
            self._requests.put(request)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                request = self._requests.get(timeout=_EXPIRE_S)
            except queue.Empty:
                request = None
            now = self._monotonic()
            self._expire(now)
            if request is None or not request.is_wanted():
                continue
            cached = self._cache.get(request.key)
            if cached is not None:
                request.take(cached[1])
            elif now - request.since > _MAX_WAIT_S:
                request.take(_BUSY)
            else:
                request.take(self._render(request, now))
                self._rest(self._monotonic() - now)

    def _expire(self, now: float) -> None:
        """Drop expired pages, and all pages when the state has changed."""
        state = self._read_state()
        if state != self._state:
            self._state, self._cache = state, {}
        self._cache = {key: cached for key, cached in self._cache.items() if now < cached[0]}

    def _render(self, request: PageRequest, began: float) -> Page:
        try:
            page = self._call_app(request)
        except Exception:
            log.exception("page failed", extra={"facts": {"path": request.path.decode("latin-1")}})
            return note(500, "the extender failed to answer; its log has the details")
        now = self._monotonic()
        if page.status == 200 and len(self._cache) < _MAX_CACHED:
            self._cache[request.key] = (now + _REUSE_FACTOR * (now - began), page)
            self._bound_cache()
        return page

    def _bound_cache(self) -> None:
        """Drop the oldest pages while all together are too large; keep the newest."""
        size = sum(page.size for _, page in self._cache.values())
        for key in list(self._cache)[:-1]:
            if size <= _MAX_CACHED_BYTES:
                return
            size -= self._cache.pop(key)[1].size

    def _call_app(self, request: PageRequest) -> Page:
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            started[:] = status, headers

        body = self._app(_environment(request), start_response)
        try:
            pieces = tuple(body)
        finally:
            if hasattr(body, "close"):
                body.close()
        status, headers = started
        lines = (f"{k}: {v}\r\n" for k, v in headers if k.lower() != "content-length")
        return Page(int(status[:3]), "".join(lines).encode("latin-1"), pieces)


def _environment(request: PageRequest) -> dict[str, Any]:
    # Pages use no headers and few query fields, so equal pages have equal requests.
    return {
        "REQUEST_METHOD": request.method.decode("latin-1"),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query.decode("latin-1"),
        # Unnormalized: a browser resolves the links of the page against it.
        "REQUEST_URI": request.path.decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.form),
        "CONTENT_TYPE": "application/x-www-form-urlencoded" if request.form else "",
        "CONTENT_LENGTH": str(len(request.form)),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
