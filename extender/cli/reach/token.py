"""The token that an extender is shown who wants to know who reads: only where somebody says so.

Never because whoever answers asks for it: a token of the kubeconfig opens the whole cluster, and
whoever took the extender's place would only have to ask.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from extender.cli.reach.whereabouts import Whereabouts
from extender.errors import BadInput
from extender.kube.api import kubeconfig
from extender.settings import is_loopback

KUBECONFIG = "kubeconfig"
_FLAG = "--token-from"
_SENDABLE = re.compile(r"[\x21-\x7e]+")
#: The longest that our port takes, with all that stands beside it.
_LONGEST = 16 * 1024


def read(where: Whereabouts, url: str = "") -> str:
    """Give the token to send, to *url* if somebody named one; no sentence ever has it in it."""
    if not where.token_from:
        return ""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise BadInput(
            f"{_FLAG} would send a token over plain http to {parts.netloc.rpartition('@')[2]}, and"
            " whoever is on the way could use it; write https, or forward the port"
        )
    if where.token_from == KUBECONFIG:
        return _of_kubeconfig(where)
    return _of_file(where.token_from)


def _of_kubeconfig(where: Whereabouts) -> str:
    told = kubeconfig.read(where.kubeconfig or None, where.context).token()
    scheme, _, token = (told or "").partition(" ")
    if scheme.lower() != "bearer":
        raise BadInput(
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
        raise BadInput(f"{_FLAG} {path} cannot be read: {error.strerror}") from error
    if len(told) > _LONGEST or not _SENDABLE.fullmatch(told):
        raise BadInput(
            f"{_FLAG} {path} holds no token: it has to be one line of printable ASCII, as"
            " `kubectl create token ACCOUNT` prints it"
        )
    return told
