"""The way to the API server: where it is, who we are, and a blocking request for rare calls."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec
import urllib3

from extender.clock import RateLimit
from extender.errors import (
    ApiError,
    ExtenderError,
    Forbidden,
    NamespaceTerminating,
    NoResponse,
    NotFound,
    NotLeader,
)
from extender.kube.config import ApiServer, read
from extender.kube.errors import MissingPermissions, missing_permission
from extender.kube.metrics import ApiMetrics, NoMetrics, call_of
from extender.leader.fencing import FencingToken
from extender.logs import event
from extender.ports import AlwaysLeader, Fencing

#: No answer about one object, or a few, is longer; one object has at most a few MB.
LONGEST = 1 << 24
_PIECE = 1 << 16


class DeadlineStream(io.RawIOBase):
    """What comes over a socket, for as long in all as its timeout is in the beginning."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        """*raw* reads from *sock*, and is closed with us."""
        super().__init__()
        self._sock = sock
        self._raw = raw
        within_s = sock.gettimeout()
        self._until = None if within_s is None else time.monotonic() + within_s

    def set_read_timeout(self, seconds: float) -> None:
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
    wire: DeadlineStream

    def response_class(self, sock: socket.socket, *args: Any, **rest: Any) -> HTTPResponse:
        """Begin to read an answer, as `http.client` would, over a wire."""
        answer = HTTPResponse(sock, *args, **rest)
        self.wire = DeadlineStream(sock, answer.fp.detach())
        answer.fp = io.BufferedReader(self.wire)
        return answer


class PlainConnection(_Wired, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """One without TLS."""


class TlsConnection(_Wired, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """One with TLS."""


def set_read_timeout(response: urllib3.BaseHTTPResponse, seconds: float) -> None:
    """Let what is still to come take as long as it takes, each piece so many *seconds*."""
    if isinstance(response.connection, PlainConnection | TlsConnection):
        response.connection.wire.set_read_timeout(seconds)


def read_all(response: urllib3.BaseHTTPResponse, what: str, most: int = LONGEST) -> bytes:
    """Read the body to its end; *what* was asked is named when it breaks off, or has no end."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := response.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                response.close()
                raise NoResponse(f"{what}: the answer is longer than {most} bytes")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NoResponse(f"{what}: the answer broke off: {error}") from error
    return b"".join(pieces)


log = logging.getLogger(__name__)
#: How old a token may be before it is read again; kubelet rotates them long before they expire.
TOKEN_AGE_S = 60.0
#: How often the whole configuration may be read again because we were not let in.
RENEWAL_PAUSE_S = 5.0
MERGE = "application/merge-patch+json"
_CONNECT_S = 5.0
_REQUEST_S = 15.0
#: Every watch has a connection of its own.
_CONNECTIONS = 32
_AGENT = "gang-extender"
PER_S = 50.0
BURST = 100
_WORKERS = 4


class ApiClient:
    """One API server; certificates are loaded once, tokens are kept fresh in the background.

    Everything here may be called from any thread. *tls* and *server_name* are what a socket
    needs; they change only in `renew`, so read them when connecting, not before.
    """

    def __init__(
        self, endpoint: ApiServer, *, reload: Callable[[], ApiServer] | None = None
    ) -> None:
        #: Filled by everybody who asks here, over whichever connection.
        self.missing_rights = MissingPermissions()
        self.metrics: ApiMetrics = NoMetrics()
        self._reload = reload
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._renewed_at = float("-inf")
        self._use(endpoint)

    @classmethod
    def load(cls, kubeconfig: str | None = None, context: str = "") -> ApiClient:
        """Read the configuration of *kubeconfig*, $KUBECONFIG, the pod or ~/.kube/config."""
        return cls(read(kubeconfig, context), reload=lambda: read(kubeconfig, context))

    def _use(self, endpoint: ApiServer) -> None:
        # First, because it may fail, and then nothing is to change.
        authorization = endpoint.token()
        self.host = endpoint.host
        self.port = endpoint.port
        self.prefix = endpoint.prefix
        self.tls = endpoint.tls
        self.server_name = endpoint.server_name or endpoint.host
        self.warnings = endpoint.warnings
        self._token = endpoint.token
        self._authorization = authorization
        self._read_at = time.monotonic()
        self._pool = _pool(endpoint)

    def authorization(self) -> str | None:
        """Give the Authorization header as of now, without ever waiting for a fresh one.

        A token is read again long before it expires, so the old one serves meanwhile.
        """
        if time.monotonic() - self._read_at > TOKEN_AGE_S and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_token, name="token", daemon=True).start()
        return self._authorization

    def _read_token(self) -> None:
        try:
            self._authorization = self._token()
        except ExtenderError:
            # The old token may still be good; if not, a 401 leads to `renew`, which reports.
            pass
        finally:
            self._read_at = time.monotonic()
            self._reading.release()

    def renew(self) -> None:
        """Read everything anew after a 401; certificates may have been rotated, too.

        What cannot be read is logged, and tried again after the next 401: the files may be about
        to be written, and whoever asked was refused in any case.
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
        mandate: Fencing | None = None,
    ) -> bytes:
        """Ask once and give the body; anything but 2xx raises from the `ApiError` family.

        All of it takes *wait_s* at most. A 401 makes us read our credentials anew, for whoever asks
        again. With a *mandate* the body leaves only under a term; without its body a request has no
        effect.
        """
        status, data = self.response(
            method, path, body, content_type=content_type, wait_s=wait_s, mandate=mandate
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
        mandate: Fencing | None = None,
    ) -> tuple[int, bytes]:
        """Ask once and give status and body, whatever they are; `Unreachable` after *wait_s*."""
        timeout = urllib3.Timeout(total=wait_s, connect=_CONNECT_S, read=wait_s)
        response = self._send(
            method, path, body, content_type=content_type, timeout=timeout, mandate=mandate
        )
        with response:
            return response.status, read_all(response, f"{method} {path}")

    def refused(self, method: str, path: str, status: int, body: bytes) -> ApiError:
        """Translate an answer that is not 2xx; if we lack a right, that is remembered."""
        if status == 403:
            self.forbidden(body)
        return refusal(method, path, status, body)

    def forbidden(self, body: bytes) -> None:
        """Take the body of a 403."""
        if right := missing_permission(message(body)):
            self.missing_rights.note(right)

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        read_s: float,
        mandate: Fencing | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and give the answer unread, whatever its status; the caller closes it.

        Its head is there after *read_s*; then every piece of it may take so long.
        """
        response = self._send(
            method,
            path,
            body,
            query=query,
            content_type=content_type,
            timeout=urllib3.Timeout(connect=min(_CONNECT_S, read_s), read=read_s),
            mandate=mandate,
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
        content_type: str,
        timeout: urllib3.Timeout,
        mandate: Fencing | None,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"accept": "application/json", "user-agent": _AGENT}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["content-type"] = content_type
            headers["content-length"] = str(len(data))
        authorization = self.authorization()
        if authorization:
            headers["authorization"] = authorization
        target = f"{self.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        call, began = call_of(method, path, query), time.monotonic()
        try:
            response = self._pool.urlopen(
                method,
                target,
                body=data if data is None or mandate is None else _last_look(data, mandate),
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                # We ask for nothing packed; a little of it can hold any amount.
                decode_content=False,
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as error:
            self.metrics.asked(*call, 0, time.monotonic() - began)
            raise NoResponse(f"{method} {path}: no answer from the API server: {error}") from error
        except ValueError as error:
            # Such as a header that no line can hold. The error quotes it, and it may be our token:
            # whoever logs what we raise, with all that led to it, must not come across that.
            self.metrics.asked(*call, 0, time.monotonic() - began)
            why = "it cannot be sent as it is; has the token a line break in it?"
            raise NoResponse(f"{method} {path}: {why} ({type(error).__name__})") from None
        self.metrics.asked(*call, response.status, time.monotonic() - began)
        if response.status < 200:
            response.close()  # the answer is still to come, and would be taken for another's
            raise NoResponse(f"{method} {path}: no answer, but {response.status}")
        return response


class SendsRequests(Protocol):
    """What a rare call needs of the way to the API server."""

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = ...,
        wait_s: float = ...,
    ) -> bytes:
        """Ask once and give the body; anything but 2xx raises from the `ApiError` family."""


class FencedClient:
    """The way of those who act: whatever has a body leaves only in the term it was asked in."""

    def __init__(self, access: ApiClient, mandate: Fencing) -> None:
        self._access = access
        self._mandate = mandate

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        wait_s: float = _REQUEST_S,
    ) -> bytes:
        """Ask once; `OutOfTerm` when nothing was sent that has an effect."""
        within = FencingToken(self._mandate, self._mandate.current())
        if body is not None:
            _must_lead(within)
        return self._access.request(
            method, path, body, content_type=content_type, wait_s=wait_s, mandate=within
        )


def _last_look(data: bytes, mandate: Fencing) -> Iterator[bytes]:
    """Give the body, after the connection was waited for and the head was written."""
    _must_lead(mandate)
    yield data


def _must_lead(mandate: Fencing) -> None:
    if not mandate.current():
        raise NotLeader("not sent, because this extender does not lead")


class RateLimitedWorkers:
    """A few threads that ask at a pace, for rare calls that wait for their answer."""

    def __init__(
        self,
        access: SendsRequests,
        *,
        wait: Callable[[float], object] | None = None,
        mandate: Fencing | None = None,
    ) -> None:
        self._access = access
        self._mandate = mandate or AlwaysLeader()
        self._pace = RateLimit(PER_S, BURST)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix=type(self).__name__)

    def _must_hold(self, term: int) -> None:
        if not self._mandate.holds(term):
            raise NotLeader("the term in which it was ordered is over")

    def stop(self) -> None:
        """Give up what has not been sent; what is on its way is not waited for."""
        self._stopping.set()
        self._workers.shutdown(wait=False, cancel_futures=True)


def refusal(method: str, path: str, status: int, body: bytes) -> ApiError:
    """Translate an answer that is not 2xx; its message is the API server's own, or the mend."""
    said = message(body)
    if status == 403 and (right := missing_permission(said)):
        return Forbidden(f"{method} {path}: {status}: {right}", status=status)
    kind = (
        NotFound
        if status == 404
        else NamespaceTerminating
        if is_terminating(status, body)
        else ApiError
    )
    return kind(f"{method} {path}: {status}: {said}", status=status)


def is_terminating(status: int, body: bytes) -> bool:
    """Ask whether something was refused because its namespace is being deleted."""
    return status == 403 and b'"NamespaceTerminating"' in body


def is_conflict(error: ApiError) -> bool:
    """Ask whether *error* means that the name belongs to another object by now.

    Custom resources answer 409 to a uid that does not match; pods call it an immutable field.
    """
    return error.status == 409 or (error.status == 422 and "metadata.uid" in str(error))


def message(body: bytes) -> str:
    """Give what the API server says in an answer that is not 2xx."""
    try:
        said: Any = msgspec.json.decode(body)
        return str(said["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip() or "no reason given"


def _pool(endpoint: ApiServer) -> urllib3.HTTPConnectionPool:
    if endpoint.tls is None:
        plain = urllib3.HTTPConnectionPool(endpoint.host, endpoint.port, maxsize=_CONNECTIONS)
        plain.ConnectionCls = PlainConnection
        return plain
    secure = urllib3.HTTPSConnectionPool(
        endpoint.host,
        endpoint.port,
        maxsize=_CONNECTIONS,
        ssl_context=endpoint.tls,
        server_hostname=endpoint.server_name,
        assert_hostname=endpoint.server_name if endpoint.tls.check_hostname else False,
    )
    secure.ConnectionCls = TlsConnection
    return secure
