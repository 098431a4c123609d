"""The extenders of a KubeSchedulerConfiguration, as kube-scheduler reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from extender.doctor.seen import Document
from extender.errors import BadInput
from extender.settings import is_loopback
from extender.tls.secret import masked

#: What an entry without a name of its own, or a file without profiles, is for.
DEFAULT_PROFILE = "default-scheduler"
#: Those of the web, where many are at home.
_COMMON_PORTS = (80, 443)
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One of the `extenders`."""

    index: int
    document: Document

    @property
    def place(self) -> str:
        """Name it as it is found in the file."""
        return f"extenders[{self.index}]"

    @property
    def url(self) -> str:
        """Give its address as it is written, but for a secret in it."""
        return masked(str(self.document.get("urlPrefix") or ""))

    @property
    def host(self) -> str:
        """Give the host of its address."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_https(self) -> bool:
        """Ask whether it speaks TLS; `enableHTTPS` alone does not make it, the address does."""
        return urlsplit(self.url).scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Ask whether nobody in between can listen."""
        return is_loopback(self.host)

    @property
    def tls(self) -> Mapping[str, Any]:
        """Give what it says of TLS."""
        told = self.document.get("tlsConfig")
        return told if isinstance(told, dict) else {}

    @property
    def timeout_s(self) -> float | None:
        """Give its httpTimeout; None when it has none."""
        told = self.document.get("httpTimeout")
        return None if told in (None, "") else seconds(str(told))

    def has(self, verb: str) -> bool:
        """Ask whether we are asked to *verb* there."""
        return bool(self.document.get(f"{verb}Verb"))

    @property
    def server(self) -> str:
        """Give host and port as they are written."""
        return urlsplit(self.url).netloc

    def asks_the_same_as(self, other: Entry) -> bool:
        """Ask whether both lead to one extender, by whatever name: an uncommon port tells."""
        port = urlsplit(self.url).port
        same_port = port is not None and port == urlsplit(other.url).port
        return self.server == other.server or (same_port and port not in _COMMON_PORTS)


def entries(configuration: Document) -> list[Entry]:
    """Give those that ask us: who binds, and whoever asks the same; without a binder all."""
    told = configuration.get("extenders") or []
    found = [Entry(index, each) for index, each in enumerate(told)]
    binders = [each for each in found if each.has("bind")]
    if not binders:
        return found
    return [each for each in found if any(map(each.asks_the_same_as, binders))]


def profiles(configuration: Document) -> list[str]:
    """Name the schedulers that it has a profile for."""
    told = configuration.get("profiles") or [{}]
    return [str(each.get("schedulerName") or DEFAULT_PROFILE) for each in told]


def seconds(text: str) -> float:
    """Read a duration as Go writes it: 45s, 1m30s, 500ms."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.lstrip("+"):
        raise BadInput(f"{text!r} is not a duration; write it like 45s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def check(document: object, where: str) -> Document:
    """Give *document* if it has the shape of a KubeSchedulerConfiguration; `BadInput` if not."""
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise BadInput(
            f"{where} is not a KubeSchedulerConfiguration; give the file that kube-scheduler's"
            " --config names"
        )
    for name in ("profiles", "extenders"):
        told = document.get(name) or []
        if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
            raise BadInput(
                f"{where}: {name} is not a list of objects, and kube-scheduler wants one"
            )
    for each in (Entry(index, told) for index, told in enumerate(document.get("extenders") or [])):
        try:
            _ = each.timeout_s, each.host, urlsplit(each.url).port
        except (BadInput, ValueError) as error:
            raise BadInput(f"{where}: {each.place}: {error}") from error
    return document
