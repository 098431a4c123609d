"""The extenders of a KubeSchedulerConfiguration, as kube-scheduler reads them."""

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
        raise InvalidInput(f"{text!r} is not a duration; write it like 45s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def check(document: object, where: str) -> Document:
    """Give *document* if it has the shape of a KubeSchedulerConfiguration; `BadInput` if not."""
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise InvalidInput(
            f"{where} is not a KubeSchedulerConfiguration; give the file that kube-scheduler's"
            " --config names"
        )
    for name in ("profiles", "extenders"):
        told = document.get(name) or []
        if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
            raise InvalidInput(
                f"{where}: {name} is not a list of objects, and kube-scheduler wants one"
            )
    for each in (Entry(index, told) for index, told in enumerate(document.get("extenders") or [])):
        try:
            _ = each.timeout_s, each.host, urlsplit(each.url).port
        except (InvalidInput, ValueError) as error:
            raise InvalidInput(f"{where}: {each.place}: {error}") from error
    return document


#: Told what cannot be seen, and why.
Miss = Callable[[str, str], None]


def configuration(path: Path) -> Document:
    """Read a KubeSchedulerConfiguration; `BadInput` says what is wrong with the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--scheduler-config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"--scheduler-config {path} is not text") from error
    try:
        document = yaml_loader.load(text)
    except InvalidInput as error:
        raise InvalidInput(
            f"--scheduler-config {path} is not YAML: {masked(str(error))}"
        ) from error
    return check(document, f"--scheduler-config {path}")


def callers(
    told: Sequence[SchedulerConfig], miss: Miss, ca: Path | None, certificate: Path | None
) -> Iterator[CallerFiles]:
    """Read what each entry that speaks TLS believes and shows; paths are kube-scheduler's.

    *ca* and *certificate* stand in for those that are not on this one.
    """
    for each in told:
        for entry in entries(each.document):
            if entry.is_https:
                where = f"{each.where}, {entry.place}"
                yield CallerFiles(
                    where=where,
                    server_name=str(entry.tls.get("serverName") or entry.host),
                    ca=_content(entry, "ca", ca, "--ca-file", miss),
                    certificate=_content(entry, "cert", certificate, "--cert-file", miss),
                    client_names=each.settings.client_name,
                )


def _content(entry: Entry, part: str, instead: Path | None, flag: str, miss: Miss) -> bytes | None:
    if data := entry.tls.get(f"{part}Data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            return b""
    path = instead or (Path(str(told)) if (told := entry.tls.get(f"{part}File")) else None)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        if instead:
            raise InvalidInput(f"{flag} {path} cannot be read: {error.strerror}") from error
        miss(
            f"{part}File {path} of kube-scheduler",
            f"it is not on this machine; look there, or give a copy of it with {flag}",
        )
        return None
