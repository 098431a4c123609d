"""How the command line asks a running extender: the API of its operations port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import click
import msgspec
import urllib3

from extender.errors import BadInput

DEFAULT_URL = "http://127.0.0.1:8889"
_WAIT_S = 5.0


def ops_url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the flag that says where the extender is."""
    return click.option(
        "--ops-url",
        default=DEFAULT_URL,
        show_default=True,
        help="The operations port of the extender.",
    )(command)


def check(url: str, flag: str, example: str) -> str:
    """Give *url* without its last slash, or say what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"{flag} {url!r} is not a URL; write it like {example}")
    return url.rstrip("/")


def ask(url: str, *path: str) -> tuple[int, Any]:
    """Give the status and the document at `/api/v1/PATH`; `BadInput` says where we looked."""
    base = check(url, "--ops-url", DEFAULT_URL)
    target = "/".join((base, "api/v1", *(quote(part, safe="") for part in path)))
    try:
        with urllib3.PoolManager(retries=False, timeout=_WAIT_S) as http:
            answer = http.request("GET", target)
        document = msgspec.json.decode(answer.data)
    except urllib3.exceptions.SSLError as error:
        raise BadInput(
            f"what answers at {url} shows no certificate that is trusted here; let the variable"
            " SSL_CERT_FILE name the file of its CA"
        ) from error
    except urllib3.exceptions.HTTPError as error:
        raise BadInput(
            f"no extender answers at {url}; forward its port, or name another with --ops-url"
        ) from error
    except msgspec.DecodeError as error:
        raise BadInput(f"what answers at {url} is not an extender") from error
    if answer.status == 503 and isinstance(document, dict):
        raise BadInput(f"the extender at {url} cannot tell: {document.get('error')}")
    return answer.status, document
