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
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

import yaml

from extender.errors import InvalidInput

_HOME = "~/.kube/config"
#: A file system in memory, where the platform has one.
_MEMORY = "/dev/shm"  # noqa: S108 - the folder in it is ours alone
#: The official client keeps a table of its temporary files that threads share.
_LOADING = threading.Lock()
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
        with _LOADING:
            load(
                path,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
                temp_file_path=_key_folder().name,
            )
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise InvalidInput(f"kubeconfig {path} cannot be read: {_one_line(error)}") from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        # The client does not check the structure of the file; these errors mean "no kubeconfig".
        raise InvalidInput(f"kubeconfig {path} is not a kubeconfig: {_one_line(error)}") from error


@cache
def _key_folder() -> tempfile.TemporaryDirectory[str]:
    """Create the folder in which the client keeps keys, because OpenSSL reads files alone.

    It is deleted when the process ends: the client remembers its files and creates none twice.
    """
    return tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _current_user(path: str, context: str = "") -> Mapping[str, Any]:
    """Return the kubeconfig entry of the user whose credentials were loaded."""
    from kubernetes.config import kube_config

    list_contexts: Any = kube_config.list_kube_config_contexts
    contexts, current = list_contexts(path)
    chosen = next((each for each in contexts if each["name"] == context), current)
    name = chosen["context"].get("user")
    merge: Any = kube_config.KubeConfigMerger
    users = (each.value for each in merge(path).config.value["users"])
    return next((each.get("user") or {} for each in users if each["name"] == name), {})


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
            with _LOADING:
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
