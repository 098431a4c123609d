"""The secret of the hooks: what a kube-scheduler beside us shows in place of a certificate.

kube-scheduler has no setting for it. But Go's client sends what stands before the host of a URL as
the user and password of basic authentication, and leaves the password out where it names the URL.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from extender.errors import InvalidConfiguration

#: What it is called where a URL wants a user; nobody looks at it.
USER = "hooks"
FLAG = "--hook-secret-file"
#: Letters that a URL takes as they are, so that all who read it read the same.
_SECRET = re.compile(rb"[-._~A-Za-z0-9]{16,256}")
_BEFORE_HOST = re.compile(r"//[^/\s@]*@")


def new() -> bytes:
    """Make one that nobody guesses."""
    return secrets.token_urlsafe(32).encode()


def read(path: str) -> bytes:
    """Give the secret in the file *path*, empty without a path; no sentence ever has it in it."""
    if not path:
        return b""
    try:
        # Of a device, or of what was named by mistake, a bit more than the longest is enough.
        with Path(path).open("rb") as file:
            told = file.read(1024).strip()
    except OSError as error:
        raise InvalidConfiguration(f"{FLAG} {path} cannot be read: {error.strerror}") from error
    if not is_secret(told):
        raise InvalidConfiguration(
            f"{FLAG} {path} holds no secret that can be used: it has to be one line of 16 to 256"
            " letters, digits, -, _, . or ~; `head -c 32 /dev/urandom | base64 | tr -d '+/='` makes"
            " one"
        )
    return told


def is_secret(text: bytes) -> bool:
    """Ask whether *text* is long enough and means the same wherever it is written."""
    return _SECRET.fullmatch(text) is not None


def into(url: str, secret: bytes) -> str:
    """Put *secret* before the host of *url*, in place of what is there."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{USER}:{secret.decode('ascii')}@{host}").geturl()


def masked(text: str) -> str:
    """Give *text* without what stands before the hosts of URLs in it."""
    return _BEFORE_HOST.sub("//", text)
