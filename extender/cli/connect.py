"""How the command line asks a running extender: the API of its operations port."""

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
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

import click
import msgspec
import urllib3
from urllib3.util import wait_for_read

from extender.cli.kubectl import Kubectl, Leader, find_leader, has_kubeconfig, kubeconfig_exists
from extender.cli.output import print_error
from extender.doctor.reader import Page, ahead
from extender.errors import InvalidInput
from extender.kube import config
from extender.kube.client import PlainConnection, TlsConnection
from extender.settings import COMMAND_LINE_VARIABLES, Settings, check_environment, is_loopback

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
    wrong = InvalidInput(f"{flag} {url!r} is not a URL; write it like {example}")
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


def get_document(
    address: Address | str, *path: str, patience: Patience = _USUAL
) -> tuple[int, Any]:
    """Give the status and the document at `/api/v1/PATH`; `BadInput` says where we looked.

    The status is 200, or 404 with a document whose `error` is a sentence.
    """
    if isinstance(address, str):
        address = Address(check(address, "--ops-url", DEFAULT_URL))
    page = "/".join(("/api/v1", *(quote(part, safe="") for part in path)))
    answer = read_page(address, page, patience)
    return answer.status, _document(answer.status, answer.body, address)


def read_page(address: Address, path: str, patience: Patience = _USUAL) -> Page:
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


def _check_let_in(page: Page, address: Address) -> None:
    """Say what to do when we were not let in."""
    if page.status not in (401, 403, 429):
        return
    try:
        told = msgspec.json.decode(page.body, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return  # an extender says why; whoever this is, it is none
    if page.status == 401 and not address.token:
        raise InvalidInput(
            f"the extender at {address} wants to know who reads (--ops-auth): send a token with"
            " --token-from kubeconfig, or --token-from FILE with one that"
            " `kubectl create token ACCOUNT` printed"
        )
    raise InvalidInput(f"the extender at {address} does not let us in: {told}")


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
            raise InvalidInput(_about_no_end(address))
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
            raise InvalidInput(f"the extender at {address} cannot tell: {found['error']}")
    if isinstance(found, dict) and "Error" in found:
        raise InvalidInput(
            f"{address} is the port of the hooks; ask the operations port, {DEFAULT_URL} by default"
        )
    raise InvalidInput(f"what answers at {address} is not an extender")


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


Command: TypeAlias = Callable[..., Any]
#: Where our manifests put it.
HOME = "gang-system"
_OPS_URL, _NAMESPACE, _TOKEN_FROM = COMMAND_LINE_VARIABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What was said; empty is what was not."""

    ops_url: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    token_from: str = ""

    @property
    def names_a_cluster(self) -> bool:
        """Whether somebody said which cluster is meant, so that no other will do."""
        return bool(self.kubeconfig or self.context or self.namespace)

    @property
    def home(self) -> str:
        """The namespace of the extender."""
        return self.namespace or HOME


def target_options(command: Command) -> Command:
    """Give *command* the flags that say where the extender is, as one argument `where`."""

    @wraps(command)
    def with_where(
        *words: Any,
        ops_url: str,
        kubeconfig: str,
        context: str,
        extender_namespace: str,
        token_from: str,
        **rest: Any,
    ) -> Any:
        # Here too a variable with a slip of the pen would otherwise be one that was not given.
        check_environment(os.environ)
        where = Target(
            ops_url=ops_url,
            kubeconfig=kubeconfig,
            context=context,
            namespace=extender_namespace,
            token_from=token_from,
        )
        return command(*words, where=where, **rest)

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
        help="The operations port of the extender. Without it the leading pod is found in the"
        " cluster, as kubectl would, or else http://127.0.0.1:8889 is asked.",
    ),
    click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="The kubeconfig; without it $KUBECONFIG, then ~/.kube/config.",
    ),
    click.option(
        "--context", default="", metavar="NAME", help="The context of the kubeconfig, if another."
    ),
    click.option(
        "--extender-namespace",
        default="",
        envvar=_NAMESPACE,
        show_envvar=True,
        metavar="NAMESPACE",
        help=f"Where the extender's pods are, {HOME} by default.",
    ),
    click.option(
        "--token-from",
        default="",
        envvar=_TOKEN_FROM,
        show_envvar=True,
        metavar="FILE|kubeconfig",
        help="Send the token in this file, or that of the kubeconfig: for an extender that wants to"
        " know who reads (--ops-auth). Without it none is sent.",
    ),
)


KUBECONFIG = "kubeconfig"
_FLAG = "--token-from"
_SENDABLE = re.compile(r"[\x21-\x7e]+")
#: The longest that our port takes, with all that stands beside it.
_LONGEST = 16 * 1024


def read_token(where: Target, url: str = "") -> str:
    """Give the token to send, to *url* if somebody named one; no sentence ever has it in it."""
    if not where.token_from:
        return ""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            f"{_FLAG} would send a token over plain http to {parts.netloc.rpartition('@')[2]}, and"
            " whoever is on the way could use it; write https, or forward the port"
        )
    if where.token_from == KUBECONFIG:
        return _of_kubeconfig(where)
    return _of_file(where.token_from)


def _of_kubeconfig(where: Target) -> str:
    told = config.read(where.kubeconfig or None, where.context).token()
    scheme, _, token = (told or "").partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidInput(
            "the kubeconfig has no token: a client certificate or a password is good for the API"
            " server alone, which the extender cannot ask about it; let `kubectl create token"
            f" ACCOUNT` print one into a file, and name that with {_FLAG}"
        )
    return token


def _of_file(path: str) -> str:
    try:
        # Of a device, or of what was named by mistake, a bit more than the longest is enough.
        with Path(path).expanduser().open("rb") as file:
            told = file.read(_LONGEST + 1).decode("latin-1").strip()
    except OSError as error:
        raise InvalidInput(f"{_FLAG} {path} cannot be read: {error.strerror}") from error
    if len(told) > _LONGEST or not _SENDABLE.fullmatch(told):
        raise InvalidInput(
            f"{_FLAG} {path} holds no token: it has to be one line of printable ASCII, as"
            " `kubectl create token ACCOUNT` prints it"
        )
    return told


_LOOPBACK = Address(DEFAULT_URL)


@contextmanager
def connect(where: Target, *, quietly: bool = False) -> Iterator[Address]:
    """Give an address that leads to the extender while the block lasts.

    `BadInput` says where we looked and what would help. *quietly* leaves out on which of several
    ways we went.
    """
    if where.ops_url:
        url = check(where.ops_url, "--ops-url", DEFAULT_URL)
        yield Address(url, token=read_token(where, url))
        return
    told = read_token(where)
    found = _in_the_cluster(where, quietly)
    if found is None:
        yield replace(_LOOPBACK, token=told)
        return
    kubectl, pod = found
    with kubectl.forward(pod.namespace, pod.name, pod.port) as port:
        # Whoever answers here is the pod that the API server led us to, whatever its certificate.
        url = f"{pod.scheme}://127.0.0.1:{port}"
        yield Address(url, f"pod {pod.namespace}/{pod.name}", is_vouched_for=True, token=told)


def _in_the_cluster(where: Target, quietly: bool) -> tuple[Kubectl, Leader] | None:
    """Find the leader; None when it is loopback that should be asked."""
    kubectl = Kubectl(where.kubeconfig, where.context)
    try:
        if not kubeconfig_exists(where.kubeconfig):
            named = f"kubeconfig {where.kubeconfig} does not exist"
            unnamed = "there is no kubeconfig by $KUBECONFIG or at ~/.kube/config"
            raise InvalidInput(named if where.kubeconfig else unnamed)
        return kubectl, find_leader(kubectl, where.home)
    except InvalidInput as error:
        # Whoever named a cluster does not want to hear of another one.
        if where.names_a_cluster:
            raise
        if not is_open(DEFAULT_URL):
            raise InvalidInput(
                f"no extender was found: {error}; and nobody listens at {DEFAULT_URL}; name the"
                " cluster with --kubeconfig or --context, or the port with --ops-url"
            ) from error
        # In a pod loopback is where one looks first, and nobody has to be told.
        if has_kubeconfig() and not quietly:
            print_error(f"gang-extender: {error}; asking {DEFAULT_URL} instead")
        return None
