"""Words of a policy file that mean nothing here: refused, or remarked upon where they may stand.

A misspelt argument would otherwise leave the default in force without a word. Volcano's own
arguments may stand in a file that was written for it, and so may unknown ones where Volcano's
ways are followed; but nobody should believe that they do anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from extender.errors import BadConfiguration
from extender.text.plain import shown


def nearest(word: str, known: Sequence[str]) -> str:
    """Say which of *known* is meant, or which there are."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known[:14])}"


def strangers(
    written: Iterable[str],
    known: Sequence[str],
    without_effect: Sequence[str],
    owner: str,
    *,
    forgiving: bool,
) -> Iterator[str]:
    """Give a remark on each of the arguments *written* that has no effect.

    One that nobody knows is refused, unless we are *forgiving*.
    """
    for name in written:
        if _is_among(name, known):
            continue
        if _is_among(name, without_effect):
            yield f"{owner}: argument {shown(name)} is Volcano's and has no effect here"
            continue
        mend = nearest(name, known) if known else "it takes none"
        if not forgiving:
            raise BadConfiguration(f"{owner} has no argument {shown(name)}; {mend}")
        yield f"{owner} has no argument {shown(name)}, which therefore has no effect; {mend}"


def _is_among(name: str, words: Sequence[str]) -> bool:
    return any(
        name == word or (word.endswith(".*") and name.startswith(word.removesuffix("*")))
        for word in words
    )
