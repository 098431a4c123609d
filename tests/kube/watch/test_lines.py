from __future__ import annotations

from hypothesis import given, strategies as st

from extender.kube.watch.progress import lines


def test_lines_are_cut_at_newlines() -> None:
    assert list(lines([b"one\ntwo\n"])) == [b"one", b"two"]


def test_a_line_may_come_in_pieces() -> None:
    assert list(lines([b"o", b"n", b"e\ntw", b"o\n"])) == [b"one", b"two"]


def test_an_unfinished_line_is_no_line() -> None:
    assert list(lines([b"one\ntw"])) == [b"one"]


def test_empty_lines_are_left_out() -> None:
    assert list(lines([b"\n\none\n", b"\n", b""])) == [b"one"]


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_however_it_is_cut_the_lines_are_the_same(whole: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert list(lines(chunks)) == whole
