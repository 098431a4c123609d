"""Saved Kubernetes objects, read from files and folders, with errors that name the place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from extender.errors import BadInput
from extender.text import written
from extender.whatif.objects import Objects, Thing, decoded, told

#: Of a folder, files that end so are read.
_SUFFIXES = (".json", ".yaml", ".yml")
_CHUNK = 1 << 20
#: A hundred thousand pods are about a gigabyte of YAML.
_MOST_BYTES = 2 << 30


def read(
    paths: Sequence[str],
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> Objects:
    """Read files of saved objects, or folders of them, `-` being standard input.

    Ours are pods of *schedulers* and, where there are any, nodes with one of *node_labels*. In
    *exempt* namespaces nothing is a gang.
    """
    return decoded(written_in(paths), schedulers, node_labels, exempt)


def written_in(paths: Sequence[str], most_bytes: int = _MOST_BYTES) -> Iterator[Thing]:
    """Give what files hold, object by object and as it is written there."""
    for path in chain.from_iterable(map(_files, paths)):
        for document in _documents(path, most_bytes):
            yield from told(document, path)


def _files(path: str) -> list[str]:
    """Give the files of a folder, by name; a file is itself."""
    if path == "-" or not _is_folder(path):
        return [path]
    found = [each for each in sorted(Path(path).iterdir()) if each.suffix in _SUFFIXES]
    if not found:
        raise BadInput(f"{path}: holds no file that ends in {', '.join(_SUFFIXES)}")
    return [str(each) for each in found]


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # whoever opens it will say what is wrong: a name of thousands of letters
        return False


def _documents(path: str, most_bytes: int) -> Iterator[Any]:
    text = _text(path, most_bytes)
    if text.lstrip().startswith("{"):
        # `kubectl -o json`, read twenty times faster; what is no JSON may still be YAML.
        with suppress(msgspec.DecodeError, RecursionError):
            yield msgspec.json.decode(text)
            return
    try:
        yield from written.load_all(text, written.SAVED)
    except BadInput as error:
        raise BadInput(f"{path}: neither YAML nor JSON: {error}") from error


def _text(path: str, most_bytes: int) -> str:
    """Read all of it, but not of something that never ends, nor of what is no text."""
    content = bytearray()
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                content += chunk
                if len(content) > most_bytes:
                    raise BadInput(f"{path}: is larger than any cluster, {most_bytes} bytes")
                if b"\0" in chunk:
                    raise BadInput(f"{path}: is not text in UTF-8")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not text in UTF-8") from error
