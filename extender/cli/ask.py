"""How the command line asks a running extender: the API of its operations port."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import urllib3
from urllib3.util import wait_for_read

from extender.doctor.looking.eyes import ahead
from extender.doctor.looking.pages import Page
from extender.errors import BadInput
from extender.kube.api.wire import PlainConnection, TlsConnection
from extender.settings import Settings

DEFAULT_URL = f"http://{Settings().ops_listen}"
_KNOCK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What an answer may cost."""

    #: Until somebody is there, and until the first word of the answer.
    wait_s: float = 5.0
    #: Of the whole answer, its head as well; a plan of ten thousand gangs takes a second.
    answer_s: float = 30.0
    #: A plan of ten thousand gangs has 10 MB, and the snapshot of a hundred thousand pods 350.
    most_bytes: int = 1 << 30


_USUAL = Patience()


@dataclass(frozen=True, slots=True)
class Address:
    """Where an extender is asked, and how a person calls that place."""

    url: str
    place: str = ""
    #: The way there proves who answers, so that a certificate need not.
    is_vouched_for: bool = False
    #: What is sent to whoever answers; empty when nothing was said of it.
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.place or self.url


def check(url: str, flag: str, example: str) -> str:
    """Give *url* without its last slash, or say what is wrong with it."""
    wrong = BadInput(f"{flag} {url!r} is not a URL; write it like {example}")
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise wrong
    except ValueError as error:  # a port that is none, half of an IPv6 address
        raise wrong from error
    return url.rstrip("/")


def is_open(url: str) -> bool:
    """Ask whether anybody listens at *url*."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), _KNOCK_S):
            return True
    except OSError:
        return False


def ask(address: Address | str, *path: str, patience: Patience = _USUAL) -> tuple[int, Any]:
    """Give the status and the document at `/api/v1/PATH`; `BadInput` says where we looked.

    The status is 200, or 404 with a document whose `error` is a sentence.
    """
    if isinstance(address, str):
        address = Address(check(address, "--ops-url", DEFAULT_URL))
    page = "/".join(("/api/v1", *(quote(part, safe="") for part in path)))
    answer = read(address, page, patience)
    return answer.status, _document(answer.status, answer.body, address)


def read(address: Address, path: str, patience: Patience = _USUAL) -> Page:
    """Give the page at *path* whatever it says; `BadInput` says where we looked."""
    try:
        with _http(address, patience) as http:
            before = time.time()
            answer = http.request(
                "GET",
                address.url + path,
                headers={"authorization": f"Bearer {address.token}"} if address.token else {},
                redirect=False,
                preload_content=False,
                decode_content=False,  # what grows when it is unpacked was not asked for
            )
            ahead_s = ahead(answer.headers.get("date"), before, time.time())
            with closing(answer):
                page = Page(answer.status, _body(answer, address, patience.most_bytes), ahead_s)
        _check_let_in(page, address)
        return page
    except urllib3.exceptions.SSLError as error:
        raise BadInput(_about_tls(error, address)) from error
    except urllib3.exceptions.LocationValueError as error:
        raise BadInput(f"{address} is not a URL: {error}") from error
    except urllib3.exceptions.ProtocolError as error:
        raise BadInput(_about_protocol(error, address)) from error
    except urllib3.exceptions.ReadTimeoutError as error:
        raise BadInput(_about_no_end(address)) from error
    except urllib3.exceptions.HTTPError as error:
        raise BadInput(
            f"no extender answers at {address}; forward its port, or name another with --ops-url"
        ) from error


def _check_let_in(page: Page, address: Address) -> None:
    """Say what to do when we were not let in."""
    if page.status not in (401, 403, 429):
        return
    try:
        told = msgspec.json.decode(page.body, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return  # an extender says why; whoever this is, it is none
    if page.status == 401 and not address.token:
        raise BadInput(
            f"the extender at {address} wants to know who reads (--ops-auth): send a token with"
            " --token-from kubeconfig, or --token-from FILE with one that"
            " `kubectl create token ACCOUNT` printed"
        )
    raise BadInput(f"the extender at {address} does not let us in: {told}")


class _HeardPlain(PlainConnection):
    def __init__(self, *where: Any, wait_s: float, **facts: Any) -> None:
        super().__init__(*where, **facts)
        self._wait_s = wait_s

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        _hear(self.sock, self._wait_s)
        return super().getresponse()


class _HeardTls(TlsConnection):
    def __init__(self, *where: Any, wait_s: float, **facts: Any) -> None:
        super().__init__(*where, **facts)
        self._wait_s = wait_s

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        _hear(self.sock, self._wait_s)
        return super().getresponse()


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HeardPlain


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HeardTls


def _hear(sock: socket.socket, wait_s: float) -> None:
    """Wait for the first word of an answer; how long the whole may take is another matter."""
    if not wait_for_read(sock, wait_s):
        raise urllib3.exceptions.TimeoutError("not a word")


def _http(address: Address, patience: Patience) -> urllib3.PoolManager:
    trusting = None
    if address.is_vouched_for:
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
    timeout = urllib3.Timeout(connect=patience.wait_s, read=patience.answer_s)
    made = urllib3.PoolManager(retries=False, timeout=timeout, ssl_context=trusting)
    pools: dict[str, Any] = {"http": _PlainPool, "https": _TlsPool}
    for scheme, pool in pools.items():
        pools[scheme] = partial(pool, wait_s=patience.wait_s)
    made.pool_classes_by_scheme = pools
    return made


def _body(answer: urllib3.BaseHTTPResponse, address: Address, most_bytes: int) -> bytes:
    """Read the answer, but not for ever: something else may listen there."""
    body = bytearray()
    while chunk := answer.read1(1 << 20):
        body += chunk
        if len(body) > most_bytes:
            raise BadInput(_about_no_end(address))
    return bytes(body)


def _document(status: int, body: bytes, address: Address) -> Any:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if status == 200 and isinstance(found, dict | list):
        return found
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        if status == 404:
            return found
        if status == 503:
            raise BadInput(f"the extender at {address} cannot tell: {found['error']}")
    if isinstance(found, dict) and "Error" in found:
        raise BadInput(
            f"{address} is the port of the hooks; ask the operations port, {DEFAULT_URL} by default"
        )
    raise BadInput(f"what answers at {address} is not an extender")


def _about_no_end(address: Address) -> str:
    return f"what answers at {address} does not come to an end"


def _about_tls(error: urllib3.exceptions.SSLError, address: Address) -> str:
    if isinstance(error.args[0] if error.args else None, ssl.SSLCertVerificationError):
        return (
            f"what answers at {address} shows no certificate that is trusted here; let the variable"
            " SSL_CERT_FILE name the file of its CA"
        )
    return f"what answers at {address} does not speak TLS as we do; is it plain http?"


def _about_protocol(error: Exception, address: Address) -> str:
    cause = error.args[1] if len(error.args) > 1 else None
    if isinstance(cause, BadStatusLine) and not isinstance(cause, RemoteDisconnected):
        return f"what answers at {address} does not speak plain HTTP; if it speaks TLS, write https"
    return (
        f"no extender answers at {address}: the connection broke off; if it speaks TLS, write https"
    )
