"""What differs from one pass to the next: a recording holds that alone, after one whole beginning.

A snapshot shares with its predecessor whatever did not change, so what is the same object needs no
look inside. A plan is made anew each time, and there equal is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import msgspec
import numpy as np

from extender.errors import BadInput
from extender.model.node import Amounts, Node, NodeFacts, NodeTable
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.recording.forms import Form, Forms, check_names, kept_fields

#: Nothing was there before.
NONE: Any = None
#: Nothing changed.
SAME: Any = object()
_encode = msgspec.msgpack.Encoder().encode


def _raw(plain: Any) -> msgspec.Raw:
    """Encode a small part for itself: the whole, at once, would stop every other thread."""
    return msgspec.Raw(_encode(plain))


class Difference:
    """One way to say what changed."""

    def between(self, old: Any, new: Any) -> Any:
        """Give what makes *new* of *old*, which may be `NONE`; `SAME` when nothing does."""
        raise NotImplementedError

    def applied(self, old: Any, change: Any) -> Any:
        """Make the new value of the *old* one."""
        raise NotImplementedError


class _Whole(Difference):
    def __init__(self, form: Form[Any], *, by_value: bool) -> None:
        self._form = form
        self._by_value = by_value or form.is_exact

    def between(self, old: Any, new: Any) -> Any:
        if old is not NONE and (old is new or (self._by_value and old == new)):
            return SAME
        return _raw([self._form.write(new)])

    def applied(self, old: Any, change: Any) -> Any:
        (written,) = change
        return self._form.read(written)


class _Keyed(Difference):
    """A mapping by names: those that came or changed, those that went, and the order after it."""

    def __init__(self, form: Form[Any], *, by_value: bool) -> None:
        self._form = form
        self._by_value = by_value or form.is_exact

    def between(self, old: Any, new: Any) -> Any:
        before: Mapping[str, Any] = {} if old is NONE else old
        if old is not NONE and old is new:
            return SAME
        changed, by_value, absent = {}, self._by_value, object()
        for key, value in new.items():
            known = before.get(key, absent)
            if known is not value and not (by_value and known == value):
                changed[key] = _raw(self._form.write(value))
        gone = [key for key in before if key not in new]
        names = list(new)
        if names == [
            *(key for key in before if key in new),
            *(k for k in names if k not in before),
        ]:
            if not changed and not gone and old is not NONE:
                return SAME
            return [0, gone, changed]
        if names == sorted(names):
            return [1, gone, changed]
        return [0, list(before), {key: _raw(self._form.write(each)) for key, each in new.items()}]

    def applied(self, old: Any, change: Any) -> Any:
        is_sorted, gone, changed = change
        after = {} if old is NONE else dict(old)
        for key in gone:
            del after[key]
        for key, written in changed.items():
            if type(key) is not str:
                raise BadInput("a key that is no text")
            after[key] = self._form.read(written)
        return dict(sorted(after.items())) if is_sorted else after


class _Places(Difference):
    """A long tuple: by place while its length is the same."""

    def __init__(self, form: Form[Any]) -> None:
        self._form = form

    def between(self, old: Any, new: Any) -> Any:
        if old is new and old is not NONE:
            return SAME
        if old is NONE or len(old) != len(new):
            return [None, [_raw(self._form.write(each)) for each in new]]
        places = [at for at, each in enumerate(new) if each is not old[at]]
        return [places, [_raw(self._form.write(new[at])) for at in places]] if places else SAME

    def applied(self, old: Any, change: Any) -> Any:
        places, written = change
        if places is None:
            return tuple(map(self._form.read, written))
        after = list(old)
        for at, each in zip(places, written, strict=True):
            after[at] = self._form.read(each)
        return tuple(after)


class _Rows(Difference):
    """A table of numbers: the rows that changed, while it is as large."""

    def between(self, old: Any, new: Any) -> Any:
        if old is new and old is not NONE:
            return SAME
        if old is NONE or old.shape != new.shape:
            return [None, list(new.shape), _bytes(new)]
        rows = np.flatnonzero((old != new).any(axis=1))
        return [rows.tolist(), [len(rows), new.shape[1]], _bytes(new[rows])] if len(rows) else SAME

    def applied(self, old: Any, change: Any) -> Any:
        rows, shape, written = change
        table = np.frombuffer(written, "<i8").astype(np.int64).reshape(shape)
        if table.ndim != 2:
            raise BadInput("a table that has no rows and columns")
        if rows is None:
            return table
        after = old.copy()
        after[rows] = table
        return after


def _bytes(table: Amounts) -> bytes:
    return np.ascontiguousarray(table, "<i8").tobytes()


class _Parts(Difference):
    """Something whose fields change each for itself."""

    def __init__(
        self, kind: Any, parts: Mapping[str, Difference], make: Callable[..., Any] | None = None
    ) -> None:
        self._kind = kind
        self._parts = parts
        self._make = make or kind

    def between(self, old: Any, new: Any) -> Any:
        if old is new and old is not NONE:
            return SAME
        changes = {}
        for name, part in self._parts.items():
            before = NONE if old is NONE else getattr(old, name)
            change = part.between(before, getattr(new, name))
            if change is not SAME:
                changes[name] = change
        return changes if changes or old is NONE else SAME

    def applied(self, old: Any, change: Any) -> Any:
        known = {} if old is NONE else {name: getattr(old, name) for name in self._parts}
        check_names(self._kind, [*known, *change], tuple(self._parts))
        for name, each in change.items():
            known[name] = self._parts[name].applied(known.get(name, NONE), each)
        return self._make(**known)


def _facts(nodes: tuple[Node, ...]) -> NodeFacts:
    return NodeFacts(nodes, {node.name: row for row, node in enumerate(nodes)})


def of_snapshot(forms: Forms) -> Difference:
    """Say how snapshots change."""
    return _parts(Snapshot, forms, by_value=False)


def of_plan(forms: Forms) -> Difference:
    """Say how plans change."""
    return _parts(Plan, forms, by_value=True)


def _parts(kind: Any, forms: Forms, *, by_value: bool) -> _Parts:
    parts = {
        name: _part(hint, forms, by_value=by_value) for name, hint in kept_fields(kind).items()
    }
    return _Parts(kind, parts, _facts if kind is NodeFacts else None)


def _part(hint: Any, forms: Forms, *, by_value: bool) -> Difference:
    if hint == Amounts:
        return _Rows()
    if hint in (NodeTable, NodeFacts):
        return _parts(hint, forms, by_value=by_value)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple and inner[0] is Node:
        return _Places(forms.of(Node))
    if origin is not None and issubclass(origin, Mapping):
        key = getattr(inner[0], "__supertype__", inner[0])
        if key is str:
            return _Keyed(forms.of(inner[1]), by_value=by_value)
    return _Whole(forms.of(hint), by_value=by_value)
