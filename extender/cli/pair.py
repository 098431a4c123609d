"""`gang-extender pair`: a secret between an extender and the kube-scheduler in the same pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from extender.errors import BadInput
from extender.settings import is_loopback
from extender.text import written as documents
from extender.tls import secret

#: What is written there.
SECRET_FILE = "hook-secret"  # noqa: S105 - the name of a file
CONFIG_FILE = "scheduler-config.yaml"


@click.command()
@click.option(
    "--scheduler-config",
    "written",
    required=True,
    type=click.Path(path_type=Path),
    help="kube-scheduler's configuration as `gang-extender scheduler-config` prints it.",
)
@click.option(
    "--directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where both files go: a volume in memory that only these two containers mount.",
)
def pair(written: Path, directory: Path) -> None:
    """Make a secret, and kube-scheduler's configuration with it.

    For an init container. Writes hook-secret, for `serve --hook-secret-file`, and
    scheduler-config.yaml, in which it stands in the URL of the hooks. A secret that is there stays:
    init containers may run again beside what has started.
    """
    configuration = _read(written)
    kept = directory / SECRET_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        told = kept.read_bytes().strip() if kept.exists() else b""
        if not secret.is_secret(told):
            told = secret.new()
            _write(kept, told)
        _write(directory / CONFIG_FILE, _with(configuration, told, written))
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be written: {error.strerror}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document = documents.load(path.read_text())
    except OSError as error:
        raise BadInput(f"--scheduler-config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--scheduler-config {path} is not text") from error
    except BadInput as error:
        told = secret.masked(str(error))
        raise BadInput(f"--scheduler-config {path} is not YAML: {told}") from error
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise BadInput(f"--scheduler-config {path} is not a KubeSchedulerConfiguration")
    return document


def _with(configuration: dict[str, Any], told: bytes, path: Path) -> bytes:
    """Put the secret where it stays on this machine, and nowhere else."""
    entries = [each for each in configuration.get("extenders") or () if isinstance(each, dict)]
    beside = [each for each in entries if _is_beside(str(each.get("urlPrefix") or ""))]
    if not beside:
        raise BadInput(f"{path} has no extender at http://127.0.0.1, so nobody would be told")
    for each in beside:
        each["urlPrefix"] = secret.into(each["urlPrefix"], told)
    return yaml.safe_dump(configuration, sort_keys=False).encode()


def _is_beside(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def _write(path: Path, content: bytes) -> None:
    """Put a file there whole, for us alone."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
