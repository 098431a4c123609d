"""What the address asks for: filters, order and page, read with bounds and written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

#: The name of a queue may be so long.
_LONGEST = 253
_MOST_PAGES = 1_000_000

Item = TypeVar("Item")


class Asked:
    """The fields of an address that a page knows; others are nobody's."""

    def __init__(self, given: Mapping[str, str], *fields: str) -> None:
        self._fields = {
            name: given[name].strip()[:_LONGEST] for name in fields if given.get(name, "").strip()
        }
        number = given.get("page", "")
        is_number = number.isascii() and number.isdigit() and len(number) <= 7
        self.page = min(_MOST_PAGES, max(1, int(number))) if is_number else 1

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "")

    @property
    def is_narrowed(self) -> bool:
        """Ask whether something is left out."""
        return any(name != "sort" for name in self._fields)

    def address(self, **changes: object) -> str:
        """Write the address with *changes*; another choice begins at its first page."""
        fields = {**self._fields, **{name: str(value) for name, value in changes.items()}}
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    def turned(self, column: str) -> str:
        """Write the address that sorts by *column*, or the other way round if it does already."""
        return self.address(sort=f"-{column}" if self["sort"] == column else column)


class Paged(NamedTuple, Generic[Item]):
    """One page of many things."""

    items: Sequence[Item]
    page: int
    pages: int
    first: int
    total: int


def paged(items: Sequence[Item], page: int, size: int) -> Paged[Item]:
    """Cut one page out; behind the last one there is the last one."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    first = (page - 1) * size
    return Paged(items[first : first + size], page, pages, first, len(items))
