"""Blocking requests to the API server, each with a deadline and a bound on its response.

For rare calls, lists and watches; bindings and wake-ups use `pipeline`.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from extender.clock import RateLimit
from extender.errors import ApiError, ExtenderError, NoResponse
from extender.kube.config import ApiServer, read
from extender.kube.errors import MissingPermissions, message, missing_permission, refusal
from extender.kube.metrics import ApiMetrics, call_of
from extender.leader.fencing import FencingToken
from extender.logs import event
from extender.ports import AlwaysLeader, Fencing

#: The bound of a response about one object, or a few; one object has at most a few MB.
LONGEST = 1 << 24
_CHUNK = 1 << 16


class DeadlineStream(io.RawIOBase):
    """Reads from a socket; the socket's initial timeout bounds the whole of it."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        """*raw* reads from *sock*; `close` closes it too."""
        super().__init__()
        self._sock = sock
        self._raw = raw
        timeout_s = sock.gettimeout()
        self._until = None if timeout_s is None else time.monotonic() + timeout_s

    def set_read_timeout(self, seconds: float) -> None:
        """Replace the deadline by a timeout of *seconds* for each read."""
        self._until = None
        self._sock.settimeout(seconds)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read once, before the deadline."""
        if self._until is not None:
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the stream."""
        self._raw.close()
        super().close()


class _HasDeadline:
    """Reads the responses of a connection through a `DeadlineStream`."""

    #: The stream of the last response.
    stream: DeadlineStream

    def response_class(self, sock: socket.socket, *args: Any, **rest: Any) -> HTTPResponse:
        """Create a response as `http.client` does, on a stream with a deadline."""
        response = HTTPResponse(sock, *args, **rest)
        self.stream = DeadlineStream(sock, response.fp.detach())
        response.fp = io.BufferedReader(self.stream)
        return response


class PlainConnection(_HasDeadline, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """A connection without TLS."""


class TlsConnection(_HasDeadline, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """A connection with TLS."""


def set_read_timeout(response: urllib3.BaseHTTPResponse, seconds: float) -> None:
    """Remove the deadline from the rest of *response*; each read may take *seconds*."""
    if isinstance(response.connection, PlainConnection | TlsConnection):
        response.connection.stream.set_read_timeout(seconds)


def read_all(response: urllib3.BaseHTTPResponse, what: str) -> bytes:
    """Read the whole body; an error names *what* was requested."""
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := response.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > LONGEST:
                response.close()
                raise NoResponse(f"{what}: the response is longer than {LONGEST} bytes")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NoResponse(f"{what}: the response broke off: {error}") from error
    return b"".join(chunks)


log = logging.getLogger(__name__)
#: How old a token may be before it is read again; kubelet rotates them long before they expire.
TOKEN_AGE_S = 60.0
#: The shortest interval at which a 401 makes us read the whole configuration again.
RENEWAL_PAUSE_S = 5.0
MERGE = "application/merge-patch+json"
_CONNECT_S = 5.0
_REQUEST_S = 15.0
#: Each watch needs a connection of its own.
_CONNECTIONS = 32
_AGENT = "gang-extender"
PER_S = 50.0
BURST = 100
_WORKERS = 4


class ApiClient:
    """A client of one API server; it loads certificates once and refreshes tokens in a thread.

    All methods may be called from any thread. *tls* and *server_name* are for opening sockets. They
    change only in `renew`, so read them when connecting, not before.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        reload: Callable[[], ApiServer] | None = None,
        metrics: ApiMetrics | None = None,
        token_age_s: float = TOKEN_AGE_S,
    ) -> None:
        #: Filled by all requests, also by those of the pipeline.
        self.missing_permissions = MissingPermissions()
        self.metrics = metrics or ApiMetrics()
        self._reload = reload
        self._token_age_s = token_age_s
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._renewed_at = float("-inf")
        self._use(server)

    @classmethod
    def load(
        cls, kubeconfig: str | None = None, context: str = "", metrics: ApiMetrics | None = None
    ) -> ApiClient:
        """Read the configuration of *kubeconfig*, $KUBECONFIG, the pod or ~/.kube/config."""
        reload = partial(read, kubeconfig, context)
        return cls(reload(), reload=reload, metrics=metrics)

    def _use(self, server: ApiServer) -> None:
        # First, because it may fail, and then no attribute may change.
        authorization = server.token()
        self.host = server.host
        self.port = server.port
        self.prefix = server.prefix
        self.tls = server.tls
        self.server_name = server.server_name or server.host
        self.warnings = server.warnings
        self._read_token = server.token
        self._authorization = authorization
        self._read_at = time.monotonic()
        self._pool = _pool(server)

    def authorization(self) -> str | None:
        """Return the current Authorization header, without waiting for a fresh token.

        A token is read again long before it expires, so the old one remains valid meanwhile.
        """
        if time.monotonic() - self._read_at > self._token_age_s and self._refreshing.acquire(
            blocking=False
        ):
            threading.Thread(target=self._refresh_token, name="token", daemon=True).start()
        return self._authorization

    def _refresh_token(self) -> None:
        try:
            self._authorization = self._read_token()
        except ExtenderError:
            # The old token may still be valid; if not, a 401 leads to `renew`, which logs.
            pass
        finally:
            self._read_at = time.monotonic()
            self._refreshing.release()

    def renew(self) -> None:
        """Read the whole configuration again after a 401; certificates may have been rotated, too.

        A failure is logged, and the next 401 leads to another attempt: the files may be about to be
        written, and the caller has its refusal in any case.
        """
        with self._lock:
            if self._reload is None or time.monotonic() - self._renewed_at < RENEWAL_PAUSE_S:
                return
            self._renewed_at = time.monotonic()
            try:
                self._use(self._reload())
            except ExtenderError as error:
                event(log, logging.ERROR, "credentials cannot be read", error=str(error))

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        wait_s: float = _REQUEST_S,
        fencing: FencingToken | None = None,
    ) -> bytes:
        """Send one request and return the body; a status other than 2xx raises an `ApiError`.

        The whole exchange takes at most *wait_s*. A 401 renews the credentials for later requests.
        With *fencing*, the body is sent only in its term; without its body a request has no effect.
        """
        status, data = self.response(
            method, path, body, content_type=content_type, wait_s=wait_s, fencing=fencing
        )
        if status == 401:
            self.renew()
        if status >= 300:
            raise self.refused(method, path, status, data)
        return data

    def response(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        wait_s: float = _REQUEST_S,
        fencing: FencingToken | None = None,
    ) -> tuple[int, bytes]:
        """Send one request and return status and body; `NoResponse` after *wait_s*."""
        timeout = urllib3.Timeout(total=wait_s, connect=_CONNECT_S, read=wait_s)
        response = self._send(
            method, path, body, content_type=content_type, timeout=timeout, fencing=fencing
        )
        with response:
            return response.status, read_all(response, f"{method} {path}")

    def refused(self, method: str, path: str, status: int, body: bytes) -> ApiError:
        """Return the error for a status other than 2xx; records a missing permission."""
        if status == 403:
            self.note_forbidden(body)
        return refusal(method, path, status, body)

    def note_forbidden(self, body: bytes) -> None:
        """Record the permission that the body of a 403 names as missing."""
        if permission := missing_permission(message(body)):
            self.missing_permissions.note(permission)

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        read_s: float,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the response unread, with any status; the caller closes it.

        The head arrives within *read_s*; after that, each read may take *read_s*.
        """
        response = self._send(
            method,
            path,
            body,
            query=query,
            timeout=urllib3.Timeout(connect=min(_CONNECT_S, read_s), read=read_s),
        )
        set_read_timeout(response, read_s)
        return response

    def _send(
        self,
        method: str,
        path: str,
        body: object,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: urllib3.Timeout,
        fencing: FencingToken | None = None,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"accept": "application/json", "user-agent": _AGENT}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["content-type"] = content_type
            headers["content-length"] = str(len(data))
            if fencing is not None:
                fencing.check()
        authorization = self.authorization()
        if authorization:
            headers["authorization"] = authorization
        target = f"{self.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        call, began = call_of(method, path, query), time.monotonic()
        try:
            response = self._pool.urlopen(
                method,
                target,
                body=data if data is None or fencing is None else _fenced(data, fencing),
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                # We request no compression; a small compressed body can expand to any size.
                decode_content=False,
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as error:
            self.metrics.request_done(*call, 0, time.monotonic() - began)
            raise NoResponse(
                f"{method} {path}: no response from the API server: {error}"
            ) from error
        except ValueError as error:
            # For example, a header with a line break. The error quotes the header, which may be
            # our token. So neither our message nor the cause of our error may contain it.
            self.metrics.request_done(*call, 0, time.monotonic() - began)
            why = "the request cannot be sent; check the token for a line break"
            raise NoResponse(f"{method} {path}: {why} ({type(error).__name__})") from None
        self.metrics.request_done(*call, response.status, time.monotonic() - began)
        if response.status < 200:
            response.close()  # the final response would be read as that of the next request
            raise NoResponse(f"{method} {path}: no final response, only {response.status}")
        return response


def _fenced(data: bytes, fencing: FencingToken) -> Iterator[bytes]:
    """Yield the body; the check runs after the connection is open and the head is written."""
    fencing.check()
    yield data


class RateLimitedWorkers:
    """A few threads with a common rate limit, for rare calls that wait for their response."""

    def __init__(
        self,
        client: ApiClient,
        *,
        wait: Callable[[float], object] | None = None,
        fencing: Fencing | None = None,
    ) -> None:
        self._client = client
        self._fencing = fencing or AlwaysLeader()
        self._rate = RateLimit(PER_S, BURST)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix=type(self).__name__)

    def stop(self) -> None:
        """Drop what has not been sent; does not wait for requests in flight."""
        self._stopping.set()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _pool(server: ApiServer) -> urllib3.HTTPConnectionPool:
    if server.tls is None:
        plain = urllib3.HTTPConnectionPool(server.host, server.port, maxsize=_CONNECTIONS)
        plain.ConnectionCls = PlainConnection
        return plain
    secure = urllib3.HTTPSConnectionPool(
        server.host,
        server.port,
        maxsize=_CONNECTIONS,
        ssl_context=server.tls,
        server_hostname=server.server_name,
        assert_hostname=server.server_name if server.tls.check_hostname else False,
    )
    secure.ConnectionCls = TlsConnection
    return secure
