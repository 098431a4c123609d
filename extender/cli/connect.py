"""Finds a running extender and reads the API of its operations port."""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from http.client import BadStatusLine, RemoteDisconnected
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import click
import msgspec
import urllib3
from urllib3.util import wait_for_read

from extender.cli.kubectl import Kubectl, Leader, find_leader, has_kubeconfig, kubeconfig_exists
from extender.cli.output import print_error
from extender.doctor.reader import Page, clock_ahead_s
from extender.errors import InvalidInput
from extender.kube import config
from extender.kube.client import PlainConnection, TlsConnection
from extender.settings import COMMAND_LINE_VARIABLES, Settings, check_environment, is_loopback

Answer = TypeVar("Answer")
DEFAULT_URL = f"http://{Settings().ops_listen}"
_PROBE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """Limits of the time and the size of an answer."""

    #: To connect, and then until the first byte of the answer.
    wait_s: float = 5.0
    #: For the whole answer with its headers; a plan of ten thousand gangs takes a second.
    answer_s: float = 30.0
    #: A plan of ten thousand gangs has 10 MB, the snapshot of a hundred thousand pods 350 MB.
    max_bytes: int = 1 << 30


_DEFAULT_LIMITS = AnswerLimits()


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of an extender, and its name in messages."""

    url: str
    place: str = ""
    #: The connection itself proves the identity of the server, so its certificate need not.
    is_trusted: bool = False
    #: The token to send; empty for none.
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.place or self.url


def check(url: str, flag: str, example: str) -> str:
    """Return *url* without its last slash, or raise with what is wrong with it."""
    invalid = InvalidInput(f"{flag} {url!r} is not a URL; write it like {example}")
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise invalid
    except ValueError as error:  # an invalid port, half of an IPv6 address
        raise invalid from error
    return url.rstrip("/")


def is_open(url: str) -> bool:
    """Return whether a server accepts connections at *url*."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), _PROBE_S):
            return True
    except OSError:
        return False


def get_document(
    address: Address, kind: type[Answer], *path: str, limits: AnswerLimits = _DEFAULT_LIMITS
) -> Answer | None:
    """Return the document at `/api/v1/PATH`, or None if the extender answers that there is none.

    `InvalidInput` names the address, and what is wrong with another answer.
    """
    page = "/".join(("/api/v1", *(quote(part, safe="") for part in path)))
    return _document(read_page(address, page, limits), kind, address)


def read_page(address: Address, path: str, limits: AnswerLimits = _DEFAULT_LIMITS) -> Page:
    """Return the page at *path* with any status; `InvalidInput` names the address."""
    try:
        with _http(address, limits) as http:
            before = time.time()
            answer = http.request(
                "GET",
                address.url + path,
                headers={"authorization": f"Bearer {address.token}"} if address.token else {},
                redirect=False,
                preload_content=False,
                decode_content=False,  # no compression was requested
            )
            ahead_s = clock_ahead_s(answer.headers.get("date"), before, time.time())
            with closing(answer):
                page = Page(answer.status, _body(answer, address, limits.max_bytes), ahead_s)
        _check_authorized(page, address)
        return page
    except urllib3.exceptions.SSLError as error:
        raise InvalidInput(_about_tls(error, address)) from error
    except urllib3.exceptions.LocationValueError as error:
        raise InvalidInput(f"{address} is not a URL: {error}") from error
    except urllib3.exceptions.ProtocolError as error:
        raise InvalidInput(_about_protocol(error, address)) from error
    except urllib3.exceptions.ReadTimeoutError as error:
        raise InvalidInput(_about_no_end(address)) from error
    except urllib3.exceptions.HTTPError as error:
        raise InvalidInput(
            f"no extender answers at {address}; forward its port, or name another with --ops-url"
        ) from error


def _check_authorized(page: Page, address: Address) -> None:
    """Raise with the remedy if the extender refused our authentication."""
    if page.status not in (401, 403, 429):
        return
    try:
        error_text = msgspec.json.decode(page.body, type=dict[str, str])["error"]
    except (ValueError, KeyError):
        return  # an extender gives a reason; this is another server
    if page.status == 401 and not address.token:
        raise InvalidInput(
            f"the extender at {address} requires authentication (--ops-auth): send a token with"
            " --token-from kubeconfig, or --token-from FILE with one that"
            " `kubectl create token ACCOUNT` printed"
        )
    raise InvalidInput(f"the extender at {address} refuses access: {error_text}")


class _FirstByteTimeout:
    """Bounds the wait for the first byte of an answer; a longer limit holds for the whole."""

    sock: socket.socket

    def __init__(self, *where: Any, wait_s: float, **facts: Any) -> None:
        super().__init__(*where, **facts)
        self._wait_s = wait_s

    def getresponse(self) -> Any:
        if not wait_for_read(self.sock, self._wait_s):
            raise urllib3.exceptions.TimeoutError("no first byte")
        return super().getresponse()  # type: ignore[misc]


class _PlainConnection(_FirstByteTimeout, PlainConnection):  # type: ignore[misc]
    pass


class _TlsConnection(_FirstByteTimeout, TlsConnection):  # type: ignore[misc]
    pass


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _http(address: Address, limits: AnswerLimits) -> urllib3.PoolManager:
    no_verification = None
    if address.is_trusted:
        no_verification = ssl.create_default_context()
        no_verification.check_hostname = False
        no_verification.verify_mode = ssl.CERT_NONE
    timeout = urllib3.Timeout(connect=limits.wait_s, read=limits.answer_s)
    manager = urllib3.PoolManager(retries=False, timeout=timeout, ssl_context=no_verification)
    pools: dict[str, Any] = {"http": _PlainPool, "https": _TlsPool}
    for scheme, pool in pools.items():
        pools[scheme] = partial(pool, wait_s=limits.wait_s)
    manager.pool_classes_by_scheme = pools
    return manager


def _body(answer: urllib3.BaseHTTPResponse, address: Address, max_bytes: int) -> bytes:
    """Read the answer up to *max_bytes*: another server may listen there and never end."""
    body = bytearray()
    while chunk := answer.read1(1 << 20):
        body += chunk
        if len(body) > max_bytes:
            raise InvalidInput(_about_no_end(address))
    return bytes(body)


def _document(page: Page, kind: type[Answer], address: Address) -> Answer | None:
    found: Any = None
    try:
        if page.status == 200:
            return msgspec.json.decode(page.body, type=kind)
        found = msgspec.json.decode(page.body)
    except msgspec.ValidationError as error:
        raise other_version(address, str(error)) from error
    except (ValueError, RecursionError):  # no JSON, or not in UTF-8
        pass
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        if page.status == 404:
            return None
        if page.status == 503:
            raise InvalidInput(f"the extender at {address} cannot answer: {found['error']}")
    if isinstance(found, dict) and "Error" in found:
        raise InvalidInput(
            f"{address} is the port of the hooks; use the operations port, {DEFAULT_URL} by default"
        )
    raise InvalidInput(f"the server at {address} is not an extender")


def other_version(address: Address, why: str) -> InvalidInput:
    """Return the error for an answer that is not a document of this version."""
    return InvalidInput(f"the server at {address} is not an extender of this version: {why}")


def _about_no_end(address: Address) -> str:
    return f"the server at {address} sends an answer without end"


def _about_tls(error: urllib3.exceptions.SSLError, address: Address) -> str:
    if isinstance(error.args[0] if error.args else None, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {address} is not trusted here; set the variable"
            " SSL_CERT_FILE to the file of its CA"
        )
    return f"the server at {address} does not speak compatible TLS; is it plain http?"


def _about_protocol(error: Exception, address: Address) -> str:
    cause = error.args[1] if len(error.args) > 1 else None
    if isinstance(cause, BadStatusLine) and not isinstance(cause, RemoteDisconnected):
        return f"the server at {address} does not speak plain HTTP; if it speaks TLS, write https"
    return f"no extender answers at {address}: the connection broke; if it speaks TLS, write https"


Command: TypeAlias = Callable[..., Any]
#: The namespace of our manifests.
HOME = "gang-system"
_OPS_URL, _NAMESPACE, _TOKEN_FROM = COMMAND_LINE_VARIABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The flags that name an extender; empty where not given."""

    ops_url: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    token_from: str = ""

    @property
    def names_a_cluster(self) -> bool:
        """Return whether a flag names the cluster, so that no other address is tried."""
        return bool(self.kubeconfig or self.context or self.namespace)

    @property
    def home(self) -> str:
        """Return the namespace of the extender."""
        return self.namespace or HOME


def target_options(command: Command) -> Command:
    """Add the flags that name the extender to *command*, as one argument `where`."""

    @wraps(command)
    def with_where(
        *args: Any,
        ops_url: str,
        kubeconfig: str,
        context: str,
        extender_namespace: str,
        token_from: str,
        **kwargs: Any,
    ) -> Any:
        # A misspelled variable would otherwise count as not given.
        check_environment(os.environ)
        where = Target(
            ops_url=ops_url,
            kubeconfig=kubeconfig,
            context=context,
            namespace=extender_namespace,
            token_from=token_from,
        )
        return command(*args, where=where, **kwargs)

    found: Command = with_where
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


_OPTIONS = (
    click.option(
        "--ops-url",
        default="",
        envvar=_OPS_URL,
        show_envvar=True,
        metavar="URL",
        help="The operations port of the extender. Without it the leader's pod is found in the"
        " cluster with kubectl, and else http://127.0.0.1:8889 is used.",
    ),
    click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="The kubeconfig; by default $KUBECONFIG, then ~/.kube/config.",
    ),
    click.option(
        "--context", default="", metavar="NAME", help="The context; by default the current one."
    ),
    click.option(
        "--extender-namespace",
        default="",
        envvar=_NAMESPACE,
        show_envvar=True,
        metavar="NAMESPACE",
        help=f"The namespace of the extender's pods, {HOME} by default.",
    ),
    click.option(
        "--token-from",
        default="",
        envvar=_TOKEN_FROM,
        show_envvar=True,
        metavar="FILE|kubeconfig",
        help="Send the token in this file, or that of the kubeconfig, to an extender that requires"
        " authentication (--ops-auth). Without it none is sent.",
    ),
)


KUBECONFIG = "kubeconfig"
_FLAG = "--token-from"
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
#: The longest request header that our port accepts.
_MAX_CHARS = 16 * 1024


def read_token(where: Target, url: str = "") -> str:
    """Return the token to send, to *url* if given; no error text contains it."""
    if not where.token_from:
        return ""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            f"{_FLAG} would send a token over plain http to {parts.netloc.rpartition('@')[2]},"
            " readable on the network; write https, or forward the port"
        )
    if where.token_from == KUBECONFIG:
        return _of_kubeconfig(where)
    return _of_file(where.token_from)


def _of_kubeconfig(where: Target) -> str:
    authorization = config.read(where.kubeconfig or None, where.context).token()
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidInput(
            "the kubeconfig has no token. The extender cannot check a client certificate or a"
            " password with the API server; let `kubectl create token"
            f" ACCOUNT` print a token into a file, and name that with {_FLAG}"
        )
    return token


def _of_file(path: str) -> str:
    try:
        # Never read all of a device or of a file named by mistake.
        with Path(path).expanduser().open("rb") as file:
            token = file.read(_MAX_CHARS + 1).decode("latin-1").strip()
    except OSError as error:
        raise InvalidInput(f"{_FLAG} {path} cannot be read: {error.strerror}") from error
    if len(token) > _MAX_CHARS or not _PRINTABLE.fullmatch(token):
        raise InvalidInput(
            f"{_FLAG} {path} has no token: it must be one line of printable ASCII, as"
            " `kubectl create token ACCOUNT` prints it"
        )
    return token


_LOOPBACK = Address(DEFAULT_URL)


@contextmanager
def connect(where: Target, *, quietly: bool = False) -> Iterator[Address]:
    """Yield an address of the extender that is valid inside the block.

    `InvalidInput` names what was tried and a remedy. *quietly* omits the message that a fallback
    address is used.
    """
    if where.ops_url:
        url = check(where.ops_url, "--ops-url", DEFAULT_URL)
        yield Address(url, token=read_token(where, url))
        return
    token = read_token(where)
    found = _find_in_cluster(where, quietly)
    if found is None:
        yield replace(_LOOPBACK, token=token)
        return
    kubectl, pod = found
    with kubectl.forward(pod.namespace, pod.name, pod.port) as port:
        # The API server forwards to this pod alone, so its certificate needs no check.
        url = f"{pod.scheme}://127.0.0.1:{port}"
        yield Address(url, f"pod {pod.namespace}/{pod.name}", is_trusted=True, token=token)


def _find_in_cluster(where: Target, quietly: bool) -> tuple[Kubectl, Leader] | None:
    """Find the leader; return None where the default address should be used."""
    kubectl = Kubectl(where.kubeconfig, where.context)
    try:
        if not kubeconfig_exists(where.kubeconfig):
            named = f"kubeconfig {where.kubeconfig} does not exist"
            unnamed = "there is no kubeconfig by $KUBECONFIG or at ~/.kube/config"
            raise InvalidInput(named if where.kubeconfig else unnamed)
        return kubectl, find_leader(kubectl, where.home)
    except InvalidInput as error:
        # A cluster named by a flag must not be replaced by another.
        if where.names_a_cluster:
            raise
        if not is_open(DEFAULT_URL):
            raise InvalidInput(
                f"no extender was found: {error}; and no server listens at {DEFAULT_URL}; name the"
                " cluster with --kubeconfig or --context, or the port with --ops-url"
            ) from error
        # In a pod, loopback is the expected address and needs no message.
        if has_kubeconfig() and not quietly:
            print_error(f"gang-extender: {error}; using {DEFAULT_URL} instead")
        return None
