"""Pages that are being read have a bound together, however many read, and however slowly."""

from __future__ import annotations

from extender.web.http.desk import Written
from extender.web.http.reading import Reading


class Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.told: list[str] = []

    def put_out(self, reason: str) -> None:
        self.told.append(reason)
        self.reading.end(self)


def page(size: int) -> Written:
    return Written(200, b"", (b"x" * size,))


def test_a_page_counts_once_however_many_read_it() -> None:
    reading, shared = Reading(most=10), page(8)
    readers = [Reader(reading) for _ in range(50)]
    for each in readers:
        reading.begin(each, shared)

    assert not any(each.told for each in readers)


def test_who_has_read_something_else_for_the_longest_ends_for_a_new_one() -> None:
    reading = Reading(most=10)
    oldest, older, newest = (Reader(reading) for _ in range(3))
    reading.begin(oldest, page(4))
    reading.begin(older, page(4))
    reading.begin(newest, page(4))

    assert (oldest.told, older.told, newest.told) == (["unread"], [], [])


def test_the_newest_is_read_however_large_it_is() -> None:
    reading = Reading(most=10)
    before, reader = Reader(reading), Reader(reading)
    reading.begin(before, page(4))
    reading.begin(reader, page(100))

    assert (before.told, reader.told) == (["unread"], [])


def test_who_has_read_counts_no_more() -> None:
    reading = Reading(most=10)
    first, second = Reader(reading), Reader(reading)
    for _ in range(5):
        reading.begin(first, page(6))
        reading.end(first)
        reading.end(first)
    reading.begin(first, page(6))
    reading.begin(first, page(6))
    reading.begin(second, page(4))

    assert not first.told
    assert not second.told
