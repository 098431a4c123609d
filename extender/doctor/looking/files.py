"""Files that people name: kube-scheduler's configuration, and what it names in turn."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from extender.doctor import entries
from extender.doctor.seen import CallerFiles, Document, SchedulerConfig
from extender.errors import BadInput
from extender.text import written
from extender.tls.secret import masked

#: Told what cannot be seen, and why.
Miss = Callable[[str, str], None]


def configuration(path: Path) -> Document:
    """Read a KubeSchedulerConfiguration; `BadInput` says what is wrong with the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--scheduler-config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--scheduler-config {path} is not text") from error
    try:
        document = written.load(text)
    except BadInput as error:
        raise BadInput(f"--scheduler-config {path} is not YAML: {masked(str(error))}") from error
    return entries.check(document, f"--scheduler-config {path}")


def callers(
    told: Sequence[SchedulerConfig], miss: Miss, ca: Path | None, certificate: Path | None
) -> Iterator[CallerFiles]:
    """Read what each entry that speaks TLS believes and shows; paths are kube-scheduler's.

    *ca* and *certificate* stand in for those that are not on this one.
    """
    for each in told:
        for entry in entries.entries(each.document):
            if entry.is_https:
                where = f"{each.where}, {entry.place}"
                yield CallerFiles(
                    where=where,
                    server_name=str(entry.tls.get("serverName") or entry.host),
                    ca=_content(entry, "ca", ca, "--ca-file", miss),
                    certificate=_content(entry, "cert", certificate, "--cert-file", miss),
                    client_names=each.settings.client_name,
                )


def _content(
    entry: entries.Entry, part: str, instead: Path | None, flag: str, miss: Miss
) -> bytes | None:
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
            raise BadInput(f"{flag} {path} cannot be read: {error.strerror}") from error
        miss(
            f"{part}File {path} of kube-scheduler",
            f"it is not on this machine; look there, or give a copy of it with {flag}",
        )
        return None
