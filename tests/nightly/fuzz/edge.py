"""An edge: where bytes of strangers come in, and what must hold whatever they are."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Self

CORPUS = Path(__file__).with_name("corpus")
#: Longer than this is no sentence any more.
LONGEST_SENTENCE = 1500

#: Of Unicode's classes of direction, those that show letters in another order than they have.
_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = {"\u200e", "\u200f", "\u061c"}


class Objection(AssertionError):
    """What must always hold does not hold; the sentence says what."""


def must(truth: object, sentence: str) -> None:
    """Object unless it is true."""
    if not truth:
        raise Objection(sentence)


def must_be_text(told: str, what: str) -> None:
    """Object to whatever steers a terminal; told apart by Unicode's own tables, not by ours."""
    for each in told:
        if each == "\n":
            continue
        steers = unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
        if steers or each in _MARKS or unicodedata.bidirectional(each) in _TURNS:
            raise Objection(f"{what} steers the terminal by U+{ord(each):04X}")


def must_be_sentence(told: str, what: str) -> None:
    """Object to what is no sentence for a person: empty, of several lines, or without an end."""
    must(told.strip(), f"{what} says nothing")
    must("\n" not in told, f"{what} has several lines")
    must(len(told) <= LONGEST_SENTENCE, f"{what} is far too long")
    must("Traceback" not in told, f"{what} is a traceback")


class Edge(ABC):
    """Lives from `with` to the end of the block; one input after the other is judged.

    An input is always bytes, so that each can be kept as a file.
    """

    #: Also of its folder in the corpus.
    name: str
    #: So many inputs are tried by test_edges.py.
    count: int
    #: How files of the corpus end.
    suffix = ".bin"
    #: No input is longer.
    longest = 1 << 16
    #: What means something there, for mutations to put in.
    words: tuple[bytes, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def real(self) -> list[bytes]:
        """Give real messages, besides those that are kept as files."""
        return []

    @abstractmethod
    def made(self, chance: Random) -> bytes:
        """Make an input by the grammar of this edge."""

    @abstractmethod
    def judge(self, data: bytes) -> None:
        """Raise an `Objection`, or anything else, if what must hold does not."""

    @property
    def kept(self) -> list[Path]:
        """Give the corpus of this edge."""
        return sorted(each for each in (CORPUS / self.name).glob("*") if each.is_file())
