"""The hook secret: what a kube-scheduler on the same host sends in place of a certificate.

kube-scheduler has no setting for it. But Go's client sends the part before the host of a URL as
user and password of basic authentication, and leaves the password out where it logs the URL.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from extender.errors import InvalidConfiguration

#: The user in the URL; it is not checked.
USER = "hooks"
FLAG = "--hook-secret-file"
#: Characters that need no escaping in a URL, so that every reader reads the same.
_SECRET = re.compile(rb"[-._~A-Za-z0-9]{16,256}")
_BEFORE_HOST = re.compile(r"//[^/\s@]*@")


def new() -> bytes:
    """Return a new random secret."""
    return secrets.token_urlsafe(32).encode()


def read(path: str) -> bytes:
    """Return the secret in the file *path*, empty without a path; errors never contain it."""
    if not path:
        return b""
    try:
        # Bound the read: the path may name a device or a large file by mistake.
        with Path(path).open("rb") as file:
            secret = file.read(1024).strip()
    except OSError as error:
        raise InvalidConfiguration(f"{FLAG} {path} cannot be read: {error.strerror}") from error
    if not is_secret(secret):
        raise InvalidConfiguration(
            f"{FLAG} {path} contains no usable secret: it must be one line of 16 to 256"
            " letters, digits, -, _, . or ~; `head -c 32 /dev/urandom | base64 | tr -d '+/='`"
            " prints one"
        )
    return secret


def is_secret(text: bytes) -> bool:
    """Return whether *text* is long enough and needs no escaping anywhere."""
    return _SECRET.fullmatch(text) is not None


def into(url: str, secret: bytes) -> str:
    """Return *url* with *secret* before its host, in place of any credentials."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{USER}:{secret.decode('ascii')}@{host}").geturl()


def masked(text: str) -> str:
    """Return *text* without the credentials of the URLs in it."""
    return _BEFORE_HOST.sub("//", text)
