"""Reads the extenders of a KubeSchedulerConfiguration as kube-scheduler does."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from extender import yaml_loader
from extender.doctor.facts import CallerFiles, Document, SchedulerConfig
from extender.errors import InvalidInput
from extender.settings import is_loopback
from extender.tls.hook_secret import masked

#: The scheduler name of a profile without one, or of a file without profiles.
DEFAULT_PROFILE = "default-scheduler"
#: The ports of HTTP and HTTPS, which many servers share.
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
    """An entry of `extenders`."""

    index: int
    document: Document

    @property
    def place(self) -> str:
        """Return its path in the file."""
        return f"extenders[{self.index}]"

    @property
    def url(self) -> str:
        """Return its URL, with a secret in it masked."""
        return masked(str(self.document.get("urlPrefix") or ""))

    @property
    def host(self) -> str:
        """Return the host of its URL."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_https(self) -> bool:
        """Return whether it uses TLS; the URL decides, not `enableHTTPS` alone."""
        return urlsplit(self.url).scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Return whether the connection stays on this machine."""
        return is_loopback(self.host)

    @property
    def tls(self) -> Mapping[str, Any]:
        """Return its tlsConfig."""
        config = self.document.get("tlsConfig")
        return config if isinstance(config, dict) else {}

    @property
    def timeout_s(self) -> float | None:
        """Return its httpTimeout; None when it has none."""
        timeout = self.document.get("httpTimeout")
        return None if timeout in (None, "") else seconds(str(timeout))

    def has(self, verb: str) -> bool:
        """Return whether it has the verb *verb*."""
        return bool(self.document.get(f"{verb}Verb"))

    @property
    def server(self) -> str:
        """Return host and port as they are written."""
        return urlsplit(self.url).netloc

    def is_same_extender(self, other: Entry) -> bool:
        """Return whether both name one extender: by the URL, or by an uncommon port."""
        port = urlsplit(self.url).port
        same_port = port is not None and port == urlsplit(other.url).port
        return self.server == other.server or (same_port and port not in _COMMON_PORTS)


def entries(configuration: Document) -> list[Entry]:
    """Return our entries: the one that binds and those of the same server; without one, all."""
    items = configuration.get("extenders") or []
    found = [Entry(index, each) for index, each in enumerate(items)]
    binders = [each for each in found if each.has("bind")]
    if not binders:
        return found
    return [each for each in found if any(map(each.is_same_extender, binders))]


def profiles(configuration: Document) -> list[str]:
    """Return the scheduler names that have a profile."""
    items = configuration.get("profiles") or [{}]
    return [str(each.get("schedulerName") or DEFAULT_PROFILE) for each in items]


def seconds(text: str) -> float:
    """Parse a duration in Go's notation: 45s, 1m30s, 500ms."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.lstrip("+"):
        raise InvalidInput(f"{text!r} is not a duration; write it like 45s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def check(document: object, where: str) -> Document:
    """Return *document* if it has the shape of a KubeSchedulerConfiguration; raise otherwise."""
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise InvalidInput(
            f"{where} is not a KubeSchedulerConfiguration; give the file that kube-scheduler's"
            " --config names"
        )
    for name in ("profiles", "extenders"):
        items = document.get(name) or []
        if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
            raise InvalidInput(
                f"{where}: {name} is not a list of objects, which kube-scheduler requires"
            )
    for each in (
        Entry(index, items) for index, items in enumerate(document.get("extenders") or [])
    ):
        try:
            _ = each.timeout_s, each.host, urlsplit(each.url).port
        except (InvalidInput, ValueError) as error:
            raise InvalidInput(f"{where}: {each.place}: {error}") from error
    return document


#: Called with what could not be read, and why.
NotReadable = Callable[[str, str], None]


def configuration(path: Path) -> Document:
    """Read a KubeSchedulerConfiguration; `InvalidInput` says what is wrong with the file."""
    return check(read_yaml(path), f"--scheduler-config {path}")


def read_yaml(path: Path) -> Any:
    """Read the YAML of a file that --scheduler-config names; no error shows a secret in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--scheduler-config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"--scheduler-config {path} is not text") from error
    try:
        return yaml_loader.load(text)
    except InvalidInput as error:
        raise InvalidInput(
            f"--scheduler-config {path} is not YAML: {masked(str(error))}"
        ) from error


def callers(
    configurations: Sequence[SchedulerConfig],
    not_readable: NotReadable,
    ca: Path | None,
    certificate: Path | None,
) -> Iterator[CallerFiles]:
    """Yield the TLS files of each entry that uses TLS; paths are kube-scheduler's.

    *ca* and *certificate* replace files that are not on this machine.
    """
    for each in configurations:
        for entry in entries(each.document):
            if entry.is_https:
                where = f"{each.where}, {entry.place}"
                yield CallerFiles(
                    where=where,
                    server_name=str(entry.tls.get("serverName") or entry.host),
                    ca=_content(entry, "ca", ca, "--ca-file", not_readable),
                    certificate=_content(entry, "cert", certificate, "--cert-file", not_readable),
                    client_names=each.settings.client_name,
                )


def _content(
    entry: Entry, part: str, replacement: Path | None, flag: str, not_readable: NotReadable
) -> bytes | None:
    if data := entry.tls.get(f"{part}Data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            return b""
    path = replacement or (Path(str(name)) if (name := entry.tls.get(f"{part}File")) else None)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        if replacement:
            raise InvalidInput(f"{flag} {path} cannot be read: {error.strerror}") from error
        not_readable(
            f"{part}File {path} of kube-scheduler",
            f"it is not on this machine; run this there, or give a copy of it with {flag}",
        )
        return None
