"""Chunks of a stream in, whole lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut *chunks* at newlines; an unfinished last line is the mark of a broken stream: dropped."""
    begun: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        if not rest:
            continue
        line = b"".join(begun)
        if line:
            yield line
        yield from filter(None, rest[:-1])
        begun = [rest[-1]]
