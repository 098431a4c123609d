"""Counts the elements of all containers that are reachable from an object, by their owner."""

from __future__ import annotations

import gc
import logging
import threading
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

#: Types that lead to no state of the product.
_ENDS = (
    str, bytes, int, float, complex, bool, type(None), type, ModuleType, FunctionType,
    BuiltinMethodType, logging.Logger, threading.Thread, type(threading.Lock()),
)  # fmt: skip
_CONTAINERS = (dict, list, set, frozenset, deque, tuple)


def sizes(*roots: object, besides: tuple[type, ...] = ()) -> Counter[str]:
    """Count the elements of containers by `Type.attribute` of their owner.

    A container that is reachable twice counts where it is found first. Objects of the types in
    *besides* are skipped.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    kept = list(roots)  # an object that is freed might share its id with a later one
    todo = [(type(root).__name__, root) for root in roots]
    while todo:
        label, thing = todo.pop()
        if id(thing) in seen or isinstance(thing, besides):
            continue
        if isinstance(thing, _ENDS) and not isinstance(thing, FunctionType):
            continue
        seen.add(id(thing))
        kept.append(thing)
        if isinstance(thing, np.ndarray):
            found[label] += thing.size
        elif isinstance(thing, _CONTAINERS):
            found[label] += len(thing)
        todo += _inside(label, thing)
    return found


def _inside(label: str, thing: Any) -> Iterator[tuple[str, object]]:
    if isinstance(thing, dict):
        yield from ((label, each) for pair in thing.items() for each in pair)
    elif isinstance(thing, _CONTAINERS):
        yield from ((label, each) for each in thing)
    if isinstance(thing, FunctionType):
        cells = (each.cell_contents for each in thing.__closure__ or () if _is_full(each))
        yield from ((f"{label}({thing.__qualname__})", each) for each in cells)
        return
    if isinstance(thing, MethodType):
        yield label, thing.__self__
        return
    if isinstance(thing, partial):
        yield from ((label, each) for each in (thing.func, thing.args, thing.keywords))
        return
    attributes = dict(_attributes(thing))
    yield from ((f"{type(thing).__name__}.{name}", each) for name, each in attributes.items())
    if not attributes and not isinstance(thing, _CONTAINERS):
        # Implemented in C: a cache of functools, an iterator, a weak reference.
        yield from ((label, each) for each in gc.get_referents(thing))


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(thing, name):
                yield name, getattr(thing, name)


def _is_full(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def grown(before: Counter[str], after: Counter[str], spare: int = 12) -> list[str]:
    """Return what grew by more than *spare*, with its figures."""
    return [
        f"{label}: {before[label]} -> {count}"
        for label, count in sorted(after.items())
        if count > before[label] + spare
    ]
