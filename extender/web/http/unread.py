"""Pages that are being read: however many read one it is there once, and all together have a bound.

Who reads slowly keeps a page in memory, and the next one who asks may get a newer one: so it is
not enough to count readers.
"""

from __future__ import annotations

from typing import Protocol

from extender.web.http.desk import Written


class Reader(Protocol):
    """Somebody who reads a page."""

    def put_out(self, reason: str) -> None:
        """End at once; he may be told as having left before this returns."""


class Unread:
    """Who reads which page; everything happens on one loop."""

    def __init__(self, most: int) -> None:
        """Bound the bytes of all pages together; the newest is read however large it is."""
        self._most = most
        self._size = 0
        #: Longest first.
        self._pages: dict[Reader, Written] = {}
        self._readers: dict[int, int] = {}

    def begin(self, reader: Reader, page: Written) -> None:
        """Let somebody read *page*; who has read something else for the longest ends for it."""
        self.end(reader)
        self._pages[reader] = page
        before = self._readers.get(id(page), 0)
        self._readers[id(page)] = before + 1
        if not before:
            self._size += page.size
        while self._size > self._most:
            others = (each for each, read in self._pages.items() if read is not page)
            longest = next(others, None)
            if longest is None:
                return
            self.end(longest)
            longest.put_out("unread")

    def end(self, reader: Reader) -> None:
        """Hear that somebody has read his page, or left."""
        page = self._pages.pop(reader, None)
        if page is None:
            return
        left = self._readers.pop(id(page)) - 1
        if left:
            self._readers[id(page)] = left
        else:
            self._size -= page.size
