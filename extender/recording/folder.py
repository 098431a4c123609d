"""The folder of a recording: who may write to it, what is there, and that it never grows too large.

Whoever records holds a lock on the folder, so that two of us never write beside each other.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from extender.errors import BadInput
from extender.recording.layout import FILES, file_name, number_of


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """List the files of a recording, oldest first."""
    found = [(number_of(each.name), each) for each in folder.iterdir()]
    return sorted((number, each) for number, each in found if number is not None)


class Folder:
    """Ours to write to, from `Folder(…)` until `close`; all files have *most_bytes* at most."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._file: int | None = None
        self._name = self._path
        self._written = 0
        with suppress(FileExistsError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.mkdir(mode=0o700)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise BadInput(f"{path}: somebody else records there; name another folder") from error

    @property
    def left(self) -> int:
        """How many bytes the file has room for; none before the first `begin`."""
        return 0 if self._file is None else self._most_bytes // FILES - self._written

    def begin(self) -> None:
        """Make the next file, after old ones have gone for which there would be no room."""
        self._end_file()
        there = numbered(self._path)
        self._number = (there[-1][0] if there else 0) + 1
        sizes = {each: each.stat().st_size for _, each in there}
        while sizes and sum(sizes.values()) > self._most_bytes - self._most_bytes // FILES:
            oldest = next(iter(sizes))
            oldest.unlink(missing_ok=True)
            del sizes[oldest]
        self._name = self._path / file_name(self._number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._name, flags, 0o600)
        self._written = 0

    def write(self, content: bytes) -> None:
        """Append *content*, all of it or nothing."""
        if self._file is None or len(content) > self.left:
            raise BadInput("a file of the recording is full")
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._written)
            raise
        self._written += len(content)

    def close(self) -> None:
        """Let go of it."""
        self._end_file()
        with suppress(OSError):
            os.close(self._lock)

    def _end_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None
