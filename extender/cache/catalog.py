"""Objects by name, each as told in one or several dialects; the most trusted one counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

from extender.cache.listeners import News
from extender.model.dialect import MOST_TRUSTED_FIRST
from extender.model.snapshot import Excess

_RANK = {dialect: rank for rank, dialect in enumerate(MOST_TRUSTED_FIRST)}

Thing = TypeVar("Thing")
Contra = TypeVar("Contra", contravariant=True)
#: Told the key, the object that counted so far, and the one that counts now.
Effect: TypeAlias = Callable[[str, Thing | None, Thing | None, News], None]


class Store(Protocol[Contra]):
    """The objects of one kind; one thread writes at a time."""

    def put(self, key: str, thing: Contra, dialect: str, news: News) -> None:
        """Take in an object as it is now."""

    def drop(self, key: str, dialect: str | None, news: News) -> None:
        """Forget what *dialect* (or anyone) told of an object."""

    def told(self, dialect: str | None) -> list[tuple[str, str]]:
        """Name everything told in *dialect* (or in any), each with its dialect."""


class Catalog(Generic[Thing]):
    """A store whose *effect* is told whenever the object that counts is another one."""

    def __init__(self, effect: Effect[Thing]) -> None:
        self._effect = effect
        self._told: dict[str, dict[str, Thing]] = {}
        self._chosen: dict[str, Thing] = {}

    def get(self, key: str) -> Thing | None:
        """Give the object that counts; takes no lock."""
        return self._chosen.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._chosen

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._chosen.values())

    def told(self, dialect: str | None) -> list[tuple[str, str]]:
        """Name everything told in *dialect* (or in any), each with its dialect."""
        return [
            (key, each)
            for key, told in self._told.items()
            for each in told
            if dialect is None or each == dialect
        ]

    def put(self, key: str, thing: Thing, dialect: str, news: News) -> None:
        """Take in an object as it is now."""
        self._told.setdefault(key, {})[dialect] = thing
        self._choose(key, news)

    def drop(self, key: str, dialect: str | None, news: News) -> None:
        """Forget what *dialect* (or anyone) told of an object."""
        told = self._told.get(key, {})
        if dialect is None:
            told.clear()
        else:
            told.pop(dialect, None)
        if not told:
            self._told.pop(key, None)
        self._choose(key, news)

    def _choose(self, key: str, news: News) -> None:
        told, old = self._told.get(key), self._chosen.get(key)
        if not told:
            if old is not None:
                del self._chosen[key]
                news.changed = True
                self._effect(key, old, None, news)
            return
        new = told[min(told, key=lambda dialect: _RANK.get(dialect, len(_RANK)))]
        if new != old:
            self._chosen[key] = new
            news.changed = True
            self._effect(key, old, new, news)


class Large:
    """Which objects are larger than we read, and in what; one thread writes at a time."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Excess] = {}
        self._sorted: tuple[Excess, ...] | None = ()

    def note(self, kind: str, key: str, excess: Excess | None) -> None:
        """Hear how an object is now; None when it is not too large, or gone."""
        known = self._found.get((kind, key))
        if known == excess:
            return
        if excess is None:
            del self._found[kind, key]
        else:
            self._found[kind, key] = excess
        self._sorted = None

    def all(self) -> tuple[Excess, ...]:
        """Give them sorted; the same value while they are the same."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._found.values()))
        return self._sorted
