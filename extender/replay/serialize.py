"""The serialization of snapshots and plans, and of the changes between two of them, without loss.

msgspec writes and reads the values by their type hints: a dataclass becomes an array of its fields.
Every field is recorded unless `LEFT_OUT` names it, so a new field is recorded too. An unknown type
fails when the forms are created, not when a cycle is recorded. The names of the fields are in the
header of the file, so that another version finds them by name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from msgspec import Meta, convert, defstruct

from extender.errors import InvalidInput
from extender.model.gang import Gang, PodGroup
from extender.model.node import Amounts, HostPorts, Node, NodeFacts, NodeTable, PortKey
from extender.model.pod import Shape
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.policy import OURS, VOLCANO, Rules

T = TypeVar("T")
#: Fields that follow from others, and memos, which can be computed again.
LEFT_OUT = {
    Gang: ("memo",),
    NodeFacts: ("memo", "index"),
    PodGroup: ("key",),
}
_RULES = {"ours": OURS, "volcano": VOLCANO}
_encode = msgspec.msgpack.Encoder().encode


class _Custom(type):
    """msgspec asks its hook for values of such a type, and takes what the hook returns."""

    def __instancecheck__(cls, value: object) -> bool:
        return True


class _Names(metaclass=_Custom):
    """A set of texts, written in sorted order."""

    write = sorted

    @staticmethod
    def read(written: Any) -> frozenset[str]:
        return frozenset(convert(written, list[str]))


class _WrittenAmounts(metaclass=_Custom):
    """Amounts by name; a sum of many requests may be too large for an integer of msgpack."""

    @staticmethod
    def write(value: Resources) -> dict[str, int | str]:
        return {
            name: each if -(2**63) <= each < 2**64 else str(each) for name, each in value.items()
        }

    @staticmethod
    def read(written: Any) -> Resources:
        amounts = convert(written, dict[str, int | Annotated[str, Meta(max_length=100)]])
        return Resources({name: int(each) for name, each in amounts.items()})


class _UsedPorts(metaclass=_Custom):
    """Used host ports: each key with its count."""

    @staticmethod
    def write(value: HostPorts) -> list[tuple[PortKey, int]]:
        return list(value.counts.items())

    @staticmethod
    def read(written: Any) -> HostPorts:
        return HostPorts(counts=dict(convert(written, list[tuple[PortKey, int]])))


class _RulesName(metaclass=_Custom):
    """Rules compare by identity, and there are two sets."""

    @staticmethod
    def write(value: Rules) -> str:
        for name, rules in _RULES.items():
            if value is rules:
                return name
        raise InvalidInput("rules that are neither ours nor Volcano's cannot be recorded")

    @staticmethod
    def read(written: Any) -> Rules:
        if written not in _RULES:
            raise InvalidInput(f"there are no rules {written!r:.40}")
        return _RULES[written]


class _ShapeNumber(metaclass=_Custom):
    """The number of a shape in the file."""


_CUSTOM = {
    Shape: _ShapeNumber,
    Resources: _WrittenAmounts,
    HostPorts: _UsedPorts,
    Rules: _RulesName,
}


class Form(Generic[T]):
    """Writes and reads values of one type; `read` validates untrusted data."""

    def __init__(self, forms: Forms, hint: Any, written: Any, *, by_value: bool = False) -> None:
        self._forms, self._hint, self._written = forms, hint, written
        self._by_value = by_value

    def is_same(self, old: Any, new: T) -> bool:
        """Return whether *new* need not be written after *old*.

        Equal values may differ in the order of a mapping, or in a field that is not compared.
        """
        if old is new:
            return True
        return bool(old == new) and (self._by_value or self.write(old) == self.write(new))

    def write(self, value: T) -> msgspec.Raw:
        """Encode *value* on its own: encoding a cycle at once would block all threads."""
        hook = self._forms.write_custom
        return msgspec.Raw(
            _encode(convert(value, self._written, from_attributes=True, dec_hook=hook))
        )

    def read(self, plain: Any) -> T:
        """Return the value of plain data; raise `ValidationError` for an invalid one."""
        written = convert(plain, self._written, dec_hook=self._forms.read_custom)
        read: T = convert(written, self._hint, from_attributes=True, dec_hook=_as_it_is)
        return read


def _as_it_is(kind: type, value: Any) -> Any:
    return value


class Shapes:
    """Shapes compare by identity, so each is written once and referred to by its number."""

    def __init__(self, form: Form[Shape]) -> None:
        self._form = form
        self._numbers: dict[Shape, int] = {}
        self._known: list[Shape] = []
        self._new: list[msgspec.Raw] = []

    def write(self, value: Shape) -> int:
        """Return the number of a shape."""
        number = self._numbers.get(value)
        if number is None:
            self._numbers[value] = number = len(self._numbers)
            self._new.append(self._form.write(value))
        return number

    def read(self, written: Any) -> Shape:
        """Return the shape of a number."""
        if type(written) is not int or not 0 <= written < len(self._known):
            raise InvalidInput(f"there is no shape {written!r:.40}")
        return self._known[written]

    def take_new(self) -> list[msgspec.Raw]:
        """Return the shapes that are new since the last call."""
        new, self._new = self._new, []
        return new

    def learn(self, written: Any) -> None:
        """Add the new shapes of a recording."""
        self._known += map(self._form.read, written)


class Forms:
    """All forms of one file, and the shapes it has written."""

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._structs: dict[type, type[msgspec.Struct]] = {}
        self.shapes = Shapes(Form(self, Shape, self._struct(Shape)))

    def schema(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the fields of each class with a form, in order."""
        found = {kind.__name__: each.__struct_fields__ for kind, each in self._structs.items()}
        return dict(sorted(found.items()))

    def of(self, hint: Any, *, by_value: bool = False) -> Form[Any]:
        """Return the form of a type hint; *by_value* if equal values are the same."""
        return Form(self, hint, self.written(hint), by_value=by_value)

    def write_custom(self, kind: Any, value: Any) -> Any:
        """Return *value* in its own form."""
        return self.shapes.write(value) if kind is _ShapeNumber else kind.write(value)

    def read_custom(self, kind: Any, written: Any) -> Any:
        """Return the value of its own form."""
        return self.shapes.read(written) if kind is _ShapeNumber else kind.read(written)

    def written(self, hint: Any) -> Any:
        """Return the hint of what is written for *hint*."""
        hint = getattr(hint, "__supertype__", hint)  # a NewType
        origin, inner = get_origin(hint), get_args(hint)
        if hint in _CUSTOM:
            return _CUSTOM[hint]
        if origin is frozenset:
            return _Names
        if origin is not None:
            kind = Union if origin is types.UnionType else origin
            return kind[tuple(map(self.written, inner))]
        if is_dataclass(hint):
            return self._struct(hint)
        if hasattr(hint, "_fields"):
            hints = get_type_hints(hint)
            parts = [(name, self.written(hints[name])) for name in hint._fields]
            return NamedTuple(hint.__name__, parts)
        if hint in (Any, ..., type(None)) or issubclass(hint, str | int | float | Enum):
            return hint
        raise TypeError(f"there is no form to record a {hint}")

    def _struct(self, kind: Any) -> type[msgspec.Struct]:
        """Return a struct that is written as an array of the fields of *kind*."""
        if kind not in self._structs:
            hints = kept_fields(kind)
            names = tuple(hints)
            if self._schema is not None:
                names = check_names(kind, self._schema.get(kind.__name__), names)
            self._structs[kind] = defstruct(
                kind.__name__,
                [(name, self.written(hints[name])) for name in names],
                array_like=True,
                forbid_unknown_fields=True,
            )
        return self._structs[kind]


def kept_fields(kind: Any) -> dict[str, Any]:
    """Return the recorded fields of a dataclass, with their hints."""
    hints, left_out = get_type_hints(kind), LEFT_OUT.get(kind, ())
    return {each.name: hints[each.name] for each in fields(kind) if each.name not in left_out}


def check_names(kind: Any, written: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields of *kind* in a recording; raise `InvalidInput` for unknown ones."""
    names = convert(written, tuple[str, ...])
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(f"{kind.__name__} has an unknown field {unknown[0]!r:.40}")
    needed = [
        each.name
        for each in fields(kind)
        if each.name in known and each.default is MISSING and each.default_factory is MISSING
    ]
    if missing := [name for name in needed if name not in names]:
        raise InvalidInput(f"{kind.__name__} has no field {missing[0]}")
    return names


#: There is no earlier value.
NONE: Any = None
#: Nothing changed.
SAME: Any = object()


class Delta:
    """Computes and applies the changes between two values of one type."""

    def between(self, old: Any, new: Any) -> Any:
        """Return the change from *old*, which may be `NONE`, to *new*; `SAME` for none."""
        raise NotImplementedError

    def applied(self, old: Any, change: Any) -> Any:
        """Return the new value for *old* and a change."""
        raise NotImplementedError


class _Whole(Delta):
    def __init__(self, form: Form[Any]) -> None:
        self._form = form

    def between(self, old: Any, new: Any) -> Any:
        if old is not NONE and self._form.is_same(old, new):
            return SAME
        return [self._form.write(new)]

    def applied(self, old: Any, change: Any) -> Any:
        (written,) = change
        return self._form.read(written)


class _Keyed(Delta):
    """A mapping by names: added or changed keys, removed keys, and the order."""

    def __init__(self, form: Form[Any]) -> None:
        self._form = form

    def between(self, old: Any, new: Any) -> Any:
        before: Mapping[str, Any] = {} if old is NONE else old
        if old is not NONE and old is new:
            return SAME
        changed, absent = {}, object()
        for key, value in new.items():
            if not self._form.is_same(before.get(key, absent), value):
                changed[key] = self._form.write(value)
        removed = [key for key in before if key not in new]
        names = list(new)
        if names == [
            *(key for key in before if key in new),
            *(k for k in names if k not in before),
        ]:
            if not changed and not removed and old is not NONE:
                return SAME
            return [0, removed, changed]
        if names == sorted(names):
            return [1, removed, changed]
        return [0, list(before), {key: self._form.write(each) for key, each in new.items()}]

    def applied(self, old: Any, change: Any) -> Any:
        is_sorted, removed, changed = change
        after = {} if old is NONE else dict(old)
        for key in removed:
            del after[key]
        for key, written in changed.items():
            if type(key) is not str:
                raise InvalidInput("a key that is not a text")
            after[key] = self._form.read(written)
        return dict(sorted(after.items())) if is_sorted else after


class _Places(Delta):
    """A long tuple: by position while its length is the same."""

    def __init__(self, form: Form[Any]) -> None:
        self._form = form

    def between(self, old: Any, new: Any) -> Any:
        if old is new and old is not NONE:
            return SAME
        if old is NONE or len(old) != len(new):
            return [None, [self._form.write(each) for each in new]]
        positions = [at for at, each in enumerate(new) if each is not old[at]]
        return [positions, [self._form.write(new[at]) for at in positions]] if positions else SAME

    def applied(self, old: Any, change: Any) -> Any:
        positions, written = change
        if positions is None:
            return tuple(map(self._form.read, written))
        after = list(old)
        for at, each in zip(positions, written, strict=True):
            after[at] = self._form.read(each)
        return tuple(after)


class _Rows(Delta):
    """A table of numbers: the changed rows while its size is the same."""

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
            raise InvalidInput("a table that is not two-dimensional")
        if rows is None:
            return table
        after = old.copy()
        after[rows] = table
        return after


def _bytes(table: Amounts) -> bytes:
    return np.ascontiguousarray(table, "<i8").tobytes()


class _Parts(Delta):
    """A class whose fields change independently."""

    def __init__(
        self, kind: Any, parts: Mapping[str, Delta], make: Callable[..., Any] | None = None
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


def of_snapshot(forms: Forms) -> Delta:
    """Return the delta of snapshots."""
    return _parts(Snapshot, forms, by_value=False)


def of_plan(forms: Forms) -> Delta:
    """Return the delta of plans."""
    return _parts(Plan, forms, by_value=True)


def _parts(kind: Any, forms: Forms, *, by_value: bool) -> _Parts:
    parts = {
        name: _part(hint, forms, by_value=by_value) for name, hint in kept_fields(kind).items()
    }
    return _Parts(kind, parts, _facts if kind is NodeFacts else None)


def _part(hint: Any, forms: Forms, *, by_value: bool) -> Delta:
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
            return _Keyed(forms.of(inner[1], by_value=by_value))
    return _Whole(forms.of(hint, by_value=by_value))
