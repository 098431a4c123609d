from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, strategies as st

from extender.kube.list_watch import lines


def test_lines_are_cut_at_newlines() -> None:
    assert list(lines([b"one\ntwo\n"])) == [b"one", b"two"]


def test_a_line_may_come_in_pieces() -> None:
    assert list(lines([b"o", b"n", b"e\ntw", b"o\n"])) == [b"one", b"two"]


def test_an_unfinished_line_is_not_returned() -> None:
    assert list(lines([b"one\ntw"])) == [b"one"]


def test_empty_lines_are_skipped() -> None:
    assert list(lines([b"\n\none\n", b"\n", b""])) == [b"one"]


def test_an_endless_line_is_cut_and_ends_the_stream() -> None:
    consumed: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for chunk in [b"one\nt", *[b"wo"] * 100, b"\nthree\n"]:
            consumed.append(chunk)
            yield chunk

    assert list(lines(chunks(), longest=10)) == [b"one", b"t" + b"wo" * 5]
    assert len(consumed) == 6, "nothing more is read"


def test_many_short_lines_are_not_taken_for_a_long_line() -> None:
    chunks = [b"one\ntw", b"o\nthr", b"ee\n"] * 10

    assert list(lines(chunks, longest=10)) == [b"one", b"two", b"three"] * 10


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_the_chunking_of_a_stream_does_not_change_its_lines(
    whole: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(line + b"\n" for line in whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert list(lines(chunks)) == whole
