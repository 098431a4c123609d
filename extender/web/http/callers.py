"""Is this kube-scheduler? What of a call's headers only a browser, or a stranger, would send.

A web page may let the browser of whoever looks at it post to an address of theirs, loopback too,
and a name of the page's own may lead there (rebinding). Browsers say so themselves: `Origin` and
`Sec-Fetch-*` are beyond a page's reach, JSON is what it may not send unasked, and `Host` is the
name it used. kube-scheduler sends none of the first two, JSON always, and the address it was told.

To whoever might be kube-scheduler the answer is 200 with an `Error`: at any other status it writes
its whole URL, with the secret in it, into the pod's events.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Iterable
from functools import lru_cache

from extender.settings import is_loopback
from extender.web.http.refusals import Refusal

_BROWSER = Refusal(403, "browser", "the hooks are not for browsers")
_NO_HOST = Refusal(400, "host", "a request names one Host")
_MEDIA_TYPE = Refusal(415, "media_type", "a hook is called with application/json")
_HOST = Refusal(
    200,
    "host",
    "the extender is not known by the Host of this call; over plain HTTP write the address it"
    " listens on, or localhost, into kube-scheduler's urlPrefix",
)
_SECRET = Refusal(
    200,
    "secret",
    "the call does not bear the secret of the hooks; kube-scheduler gets it from its urlPrefix,"
    " http://hooks:SECRET@HOST:PORT",
)


class Callers:
    """Knows what the calls of kube-scheduler look like on one port."""

    def __init__(self, *, is_plain: bool, secret: bytes = b"") -> None:
        #: With TLS the handshake has said who calls, and the certificate by which name.
        self._is_plain = is_plain
        self._secret = secret
        # All that kube-scheduler says of its calls is the same each time, but for their length.
        self._remember = lru_cache(maxsize=64)(self._judge)

    def judge(self, headers: Iterable[tuple[bytes, bytes]], reached: str) -> Refusal | None:
        """Say what is wrong with a call to the address *reached*."""
        return self._remember(tuple([e for e in headers if e[0] != b"Content-Length"]), reached)

    def _judge(self, headers: tuple[tuple[bytes, bytes], ...], reached: str) -> Refusal | None:
        hosts, types, keys = [], [], []
        for spelt, value in headers:
            name = spelt.lower()
            if name == b"host":
                hosts.append(value)
            elif name == b"content-type":
                types.append(value)
            elif name == b"authorization":
                keys.append(value)
            elif name == b"origin" or name.startswith(b"sec-fetch-"):
                return _BROWSER
        if len(hosts) != 1:
            return _NO_HOST
        if len(types) != 1 or not _is_json(types[0]):
            return _MEDIA_TYPE
        if self._is_plain and not _is_here(hosts[0], reached):
            return _HOST
        if self._secret and not (len(keys) == 1 and self._is_secret(keys[0])):
            return _SECRET
        return None

    def _is_secret(self, key: bytes) -> bool:
        scheme, _, words = key.partition(b" ")
        try:
            password = b64decode(words.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return False
        return scheme.lower() == b"basic" and hmac.compare_digest(password, self._secret)


def _is_json(media_type: bytes) -> bool:
    return media_type.partition(b";")[0].strip().lower() == b"application/json"


def _is_here(host: bytes, reached: str) -> bool:
    """Ask whether *host*, with or without a port, is where the call has come to."""
    text = host.decode("latin-1").strip()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    return bool(name) and (name == reached or is_loopback(name.lower()))
