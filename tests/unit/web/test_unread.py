"""Pages that are being read have a bound together, however many read, and however slowly."""

from __future__ import annotations

from extender.web.http.desk import Written
from extender.web.http.unread import Unread


class Reader:
    def __init__(self, unread: Unread) -> None:
        self.unread = unread
        self.told: list[str] = []

    def put_out(self, reason: str) -> None:
        self.told.append(reason)
        self.unread.end(self)


def page(size: int) -> Written:
    return Written(200, b"", (b"x" * size,))


def test_a_page_counts_once_however_many_read_it() -> None:
    unread, shared = Unread(most=10), page(8)
    readers = [Reader(unread) for _ in range(50)]
    for each in readers:
        unread.begin(each, shared)

    assert not any(each.told for each in readers)


def test_who_has_read_something_else_for_the_longest_ends_for_a_new_one() -> None:
    unread = Unread(most=10)
    oldest, older, newest = (Reader(unread) for _ in range(3))
    unread.begin(oldest, page(4))
    unread.begin(older, page(4))
    unread.begin(newest, page(4))

    assert (oldest.told, older.told, newest.told) == (["unread"], [], [])


def test_the_newest_is_read_however_large_it_is() -> None:
    unread = Unread(most=10)
    before, reader = Reader(unread), Reader(unread)
    unread.begin(before, page(4))
    unread.begin(reader, page(100))

    assert (before.told, reader.told) == (["unread"], [])


def test_who_has_read_counts_no_more() -> None:
    unread = Unread(most=10)
    first, second = Reader(unread), Reader(unread)
    for _ in range(5):
        unread.begin(first, page(6))
        unread.end(first)
        unread.end(first)
    unread.begin(first, page(6))
    unread.begin(first, page(6))
    unread.begin(second, page(4))

    assert not first.told
    assert not second.told
