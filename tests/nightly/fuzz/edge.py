"""An edge: a place that reads untrusted bytes, and what must hold for any input."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Self

CORPUS = Path(__file__).with_name("corpus")
#: A message must not be longer.
LONGEST_SENTENCE = 1500

#: Unicode's classes of direction that change the order of displayed letters.
_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = {"\u200e", "\u200f", "\u061c"}


class Objection(AssertionError):
    """Something that must hold for any input does not hold."""


def must(truth: object, sentence: str) -> None:
    """Raise unless *truth* is true."""
    if not truth:
        raise Objection(sentence)


def must_be_text(text: str, what: str) -> None:
    """Raise if *text* contains control characters of terminals, by Unicode's tables."""
    for each in text:
        if each == "\n":
            continue
        steers = unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
        if steers or each in _MARKS or unicodedata.bidirectional(each) in _TURNS:
            raise Objection(f"{what} steers the terminal by U+{ord(each):04X}")


def must_be_sentence(text: str, what: str) -> None:
    """Raise if *text* is not a message: empty, of several lines, or too long."""
    must(text.strip(), f"{what} says nothing")
    must("\n" not in text, f"{what} has several lines")
    must(len(text) <= LONGEST_SENTENCE, f"{what} is far too long")
    must("Traceback" not in text, f"{what} is a traceback")


class Edge(ABC):
    """Checks one input after the other, during a `with` block.

    An input is bytes, so that it can be kept as a file.
    """

    #: Also the name of its folder in the corpus.
    name: str
    #: The number of inputs in test_edges.py.
    count: int
    #: The suffix of files in the corpus.
    suffix = ".bin"
    #: The maximum size of an input.
    longest = 1 << 16
    #: Tokens of the format, for mutations.
    words: tuple[bytes, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def real(self) -> list[bytes]:
        """Return real messages, besides those in the corpus."""
        return []

    @abstractmethod
    def made(self, rng: Random) -> bytes:
        """Return an input by the grammar of this edge."""

    @abstractmethod
    def judge(self, data: bytes) -> None:
        """Raise an `Objection`, or any other error, if the input fails."""

    @property
    def kept(self) -> list[Path]:
        """Return the corpus of this edge."""
        return sorted(each for each in (CORPUS / self.name).glob("*") if each.is_file())
