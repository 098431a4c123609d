"""Address and credentials of the API server.

The official client reads them, so that every form of kubeconfig works. The order is: an explicit
file, `$KUBECONFIG`, the service account of the pod, `~/.kube/config`.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import yaml

from extender.errors import InvalidInput

_PATCHED = "_create_temp_file_with_content"
#: The patched function of the client is global, so all threads share it.
_PATCH_LOCK = threading.RLock()


@contextmanager
def in_memory() -> Iterator[None]:
    """Make the client keep private keys in memory within the block, and drop them after it."""
    from kubernetes.config import kube_config

    client: Any = kube_config
    with _PATCH_LOCK, ExitStack() as files:

        def keep(content: str | bytes, *_: object, **__: object) -> str:
            return _keep(content.encode() if isinstance(content, str) else content, files)

        original = getattr(client, _PATCHED)
        setattr(client, _PATCHED, keep)
        try:
            yield
        finally:
            setattr(client, _PATCHED, original)


def _keep(content: bytes, files: ExitStack) -> str:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("kubeconfig")
        files.callback(os.close, number)
        os.write(number, content)
        path = f"/proc/self/fd/{number}"
        if os.path.exists(path):
            return path
    # Without memfd, a temporary file that is deleted at the end of the block.
    file = files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - entered here
    file.write(content)
    file.flush()
    return file.name


_HOME = "~/.kube/config"
#: A scheme, and characters that a header can transport unchanged.
_SENDABLE = re.compile(r"[A-Za-z]+ [\x21-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """One API server, and the credentials that were valid when this was read."""

    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = None
    #: The name its certificate must carry; the host unless `tls-server-name` is set.
    server_name: str = ""
    #: Returns the Authorization header; reads a fresh token where needed, and may run a program.
    token: Callable[[], str | None] = lambda: None
    #: Weaknesses of the configuration, each a sentence with the remedy.
    warnings: tuple[str, ...] = ()


def read(kubeconfig: str | None = None, context: str = "") -> ApiServer:
    """Find and read the configuration, or its *context*; raises `InvalidInput` with the reason."""
    with in_memory():
        return _read(kubeconfig, context)


def _read(kubeconfig: str | None, context: str) -> ApiServer:
    from kubernetes.client import Configuration  # 36 MB and 0.4 s: only where we connect

    configuration = Configuration()
    # Proxies of the environment are for the internet; one in the kubeconfig is refused below.
    configuration.proxy = None
    token: Callable[[], str | None] = partial(_token, configuration)
    path = kubeconfig or os.environ.get("KUBECONFIG") or ""
    if not path and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        _load_service_account(configuration)
        return _api_server(configuration, "the service account of this pod", token)
    path = path or _HOME
    _load_file(configuration, path, context)
    user = _current_user(path, context)
    if "exec" in user and not (configuration.api_key or configuration.cert_file):
        # The client logs the failure of the program and continues without credentials.
        raise InvalidInput(
            f"kubeconfig {path}: its exec plugin gave no credentials; run it by hand"
        )
    if "tokenFile" in user:
        token = partial(_reread_token, path, context)
    return _api_server(configuration, f"kubeconfig {path}", token)


def _load_service_account(configuration: Any) -> None:
    from kubernetes.config import ConfigException, incluster_config

    load: Any = incluster_config.load_incluster_config
    try:
        load(client_configuration=configuration)
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the service account of this pod cannot be used: {error}") from error


def _load_file(configuration: Any, path: str, context: str = "") -> None:
    from kubernetes.config import ConfigException, kube_config

    load: Any = kube_config.load_kube_config
    if not any(os.path.exists(os.path.expanduser(part)) for part in path.split(os.pathsep)):
        raise InvalidInput(
            f"kubeconfig {path} does not exist; name one with --kubeconfig or KUBECONFIG"
        )
    try:
        load(
            path,
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise InvalidInput(f"kubeconfig {path} cannot be read: {_one_line(error)}") from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        # The client does not check the structure of the file; these errors mean "no kubeconfig".
        raise InvalidInput(f"kubeconfig {path} is not a kubeconfig: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _current_user(path: str, context: str = "") -> Mapping[str, Any]:
    """Return the kubeconfig entry of the user whose credentials were loaded."""
    from kubernetes.config import kube_config

    list_contexts: Any = kube_config.list_kube_config_contexts
    contexts, current = list_contexts(path)
    chosen = next((each for each in contexts if each["name"] == context), current)
    name = chosen["context"].get("user")
    for part in map(os.path.expanduser, path.split(os.pathsep)):
        if os.path.exists(part):
            with open(part, encoding="utf-8") as file:
                users = (yaml.safe_load(file) or {}).get("users") or []
            for user in users:
                if user.get("name") == name:
                    return user.get("user") or {}
    return {}


def _api_server(configuration: Any, source: str, token: Callable[[], str | None]) -> ApiServer:
    if configuration.proxy:
        raise InvalidInput(f"{source} sets a proxy, which is not supported; remove proxy-url")
    url = urlsplit(configuration.host)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidInput(f"{source} has no usable server URL: {configuration.host!r}")
    secure = url.scheme == "https"
    return ApiServer(
        host=url.hostname,
        port=url.port or (443 if secure else 80),
        prefix=url.path.rstrip("/"),
        tls=_tls(configuration, source) if secure else None,
        server_name=configuration.tls_server_name or url.hostname,
        token=token,
        warnings=tuple(_warnings(configuration, source, secure=secure)),
    )


def _warnings(configuration: Any, source: str, *, secure: bool) -> Iterator[str]:
    if not secure and configuration.api_key:
        yield (
            f"{source} sends its token over http, so others on the network can read and use it;"
            " set an https URL and the CA of the API server"
        )
    if secure and not configuration.verify_ssl:
        yield (
            f"{source} checks no certificate (insecure-skip-tls-verify), so any server that answers"
            " in place of the API server is trusted and gets our token; set its CA in"
            " certificate-authority-data instead"
        )


def _token(configuration: Any) -> str | None:
    from kubernetes.config import ConfigException

    if configuration.refresh_api_key_hook is not None:
        try:
            with in_memory():
                configuration.refresh_api_key_hook(configuration)
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the token cannot be read again: {error}") from error
    keys = configuration.api_key
    header = keys.get("BearerToken") or keys.get("authorization")
    return _sendable(header.strip()) if header else None


def _sendable(header: str) -> str:
    """Return *header*, unless it cannot be sent; the error does not quote it.

    A library that fails to send a header quotes it in its error, and errors are logged.
    """
    if not _SENDABLE.fullmatch(header):
        raise InvalidInput(
            "the token is empty, or contains a line break, a blank or another character that"
            " cannot be sent; write it again, as one line of printable ASCII"
        )
    return header


def _reread_token(path: str, context: str = "") -> str | None:
    """Read the whole kubeconfig again: the client itself reads a tokenFile only once."""
    from kubernetes.client import Configuration

    configuration = Configuration()
    with in_memory():
        _load_file(configuration, path, context)
    return _token(configuration)


def _tls(configuration: Any, source: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"the certificates of {source} cannot be loaded: {error}") from error
    # Python 3.13 checks RFC 5280 strictly; the CA of many a cluster does not comply.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
