"""The serialization of snapshots and plans, and of the changes between two of them, without loss.

The form of a value follows from its type hint. Every field of a class is recorded unless `LEFT_OUT`
names it, so a new field is recorded too. An unknown type fails when the forms are created, not when
a cycle is recorded.

The result is plain data (lists, texts, numbers) for msgpack. The fields of a class are written by
position; their names are in the header of the file, so that another version finds them by name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from extender.errors import InvalidInput
from extender.model.gang import Gang, PodGroup
from extender.model.node import Amounts, HostPorts, Node, NodeFacts, NodeTable
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
#: The most digits of an amount that is written as text.
_MOST_DIGITS = 100
_RULES = {"ours": OURS, "volcano": VOLCANO}


class Form(Generic[T]):
    """Writes and reads values of one type; `read` validates untrusted data."""

    #: Equal values are identical in everything that can influence a decision.
    is_exact = True

    def write(self, value: T) -> Any:
        """Return *value* as plain data."""
        raise NotImplementedError

    def read(self, written: Any) -> T:
        """Return the value of plain data; raise `InvalidInput` for an invalid one."""
        raise NotImplementedError


def _check(written: Any, *kinds: type) -> Any:
    if type(written) not in kinds:
        raise InvalidInput(f"a {type(written).__name__} where a {kinds[0].__name__} should be")
    return written


@dataclass(frozen=True)
class _Atom(Form[Any]):
    kinds: tuple[type, ...]

    def write(self, value: Any) -> Any:
        return value

    def read(self, written: Any) -> Any:
        return _check(written, *self.kinds)


class _Untyped(Form[Any]):
    """Any YAML value: the arguments of plugins."""

    def write(self, value: Any) -> Any:
        return value

    def read(self, written: Any) -> Any:
        return written


@dataclass(frozen=True)
class _EnumName(Form[Any]):
    kind: type[Enum]

    def write(self, value: Enum) -> str:
        return value.name

    def read(self, written: Any) -> Enum:
        try:
            return self.kind[_check(written, str)]
        except KeyError as error:
            raise InvalidInput(f"{self.kind.__name__} has no {written!r:.40}") from error


@dataclass(frozen=True)
class _Optional(Form[Any]):
    form: Form[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_exact", self.form.is_exact)

    def write(self, value: Any) -> Any:
        return None if value is None else self.form.write(value)

    def read(self, written: Any) -> Any:
        return None if written is None else self.form.read(written)


@dataclass(frozen=True)
class _Items(Form[Any]):
    """A tuple, or a frozenset, which is written in sorted order."""

    kind: Callable[..., Any]
    form: Form[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_exact", self.form.is_exact)

    def write(self, value: Any) -> list[Any]:
        written = [*map(self.form.write, value)]
        return sorted(written) if self.kind is frozenset else written

    def read(self, written: Any) -> Any:
        return self.kind(map(self.form.read, _check(written, list)))


@dataclass(frozen=True)
class _Tuple(Form[Any]):
    """A tuple of fixed length, or a named tuple."""

    kind: Callable[..., Any]
    forms: tuple[Form[Any], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_exact", all(form.is_exact for form in self.forms))

    def write(self, value: Any) -> list[Any]:
        return [form.write(each) for form, each in zip(self.forms, value, strict=True)]

    def read(self, written: Any) -> Any:
        _check(written, list)
        if len(written) != len(self.forms):
            raise InvalidInput(f"{len(written)} values where {len(self.forms)} should be")
        return self.kind(form.read(each) for form, each in zip(self.forms, written, strict=True))


@dataclass(frozen=True)
class _Pairs(Form[Any]):
    """A mapping, in its order."""

    key: Form[Any]
    value: Form[Any]
    is_exact = False  # equal mappings may differ in order

    def write(self, value: Mapping[Any, Any]) -> list[Any]:
        return [[self.key.write(key), self.value.write(each)] for key, each in value.items()]

    def read(self, written: Any) -> dict[Any, Any]:
        read = {}
        for pair in _check(written, list):
            key, value = _check(pair, list)
            read[self.key.read(key)] = self.value.read(value)
        return read


class _Amounts(Form[Resources]):
    """Amounts by name; a sum of many requests may be too large for an integer of msgpack."""

    is_exact = False

    def write(self, value: Resources) -> dict[str, int | str]:
        return {name: each if _fits(each) else str(each) for name, each in value.items()}

    def read(self, written: Any) -> Resources:
        amounts = {}
        for name, amount in _check(written, dict).items():
            large = type(amount) is str and len(amount) <= _MOST_DIGITS
            amounts[_check(name, str)] = int(amount) if large else _check(amount, int)
        return Resources(amounts)


def _fits(amount: int) -> bool:
    return -(2**63) <= amount < 2**64


class _UsedPorts(Form[HostPorts]):
    is_exact = False

    def write(self, value: HostPorts) -> list[Any]:
        return [[*key, count] for key, count in value.counts.items()]

    def read(self, written: Any) -> HostPorts:
        counts = {}
        for protocol, port, address, count in _check(written, list):
            if address is not None:
                _check(address, str)
            counts[_check(protocol, str), _check(port, int), address] = _check(count, int)
        return HostPorts.counted(counts)


class _RulesName(Form[Rules]):
    """Rules compare by identity, and there are two sets."""

    def write(self, value: Rules) -> str:
        for name, rules in _RULES.items():
            if value is rules:
                return name
        raise InvalidInput("rules that are neither ours nor Volcano's cannot be recorded")

    def read(self, written: Any) -> Rules:
        if _check(written, str) not in _RULES:
            raise InvalidInput(f"there are no rules {written!r:.40}")
        return _RULES[written]


@dataclass
class _Dataclass(Form[Any]):
    """A dataclass; *order* is the order of the fields in the data that is read."""

    kind: type
    forms: Mapping[str, Form[Any]]
    order: tuple[str, ...] = ()
    _converted: list[tuple[int, Form[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        compared = {each.name for each in fields(self.kind) if each.compare}
        parameters: Any = self.kind.__dataclass_params__  # type: ignore[attr-defined]
        self.is_exact = (
            parameters.eq
            and compared >= set(self.forms)
            and all(form.is_exact for form in self.forms.values())
        )
        self._converted = [
            (position, form)
            for position, form in enumerate(self.forms.values())
            if not isinstance(form, _Atom)
        ]

    def write(self, value: Any) -> list[Any]:
        written = [getattr(value, name) for name in self.forms]
        for position, form in self._converted:
            written[position] = form.write(written[position])
        return written

    def read(self, written: Any) -> Any:
        order = self.order or tuple(self.forms)
        if len(_check(written, list)) != len(order):
            raise InvalidInput(f"{len(written)} fields of {self.kind.__name__}, not {len(order)}")
        pairs = zip(order, written, strict=True)
        return self.kind(**{name: self.forms[name].read(each) for name, each in pairs})


class _Shapes(Form[Shape]):
    """Shapes compare by identity, so each is written once and referred to by its number."""

    is_exact = True

    def __init__(self, whole: Form[Any]) -> None:
        self._whole = whole
        self._numbers: dict[Shape, int] = {}
        self._known: list[Shape] = []
        self._new: list[Any] = []

    def write(self, value: Shape) -> int:
        number = self._numbers.get(value)
        if number is None:
            self._numbers[value] = number = len(self._numbers)
            self._new.append(self._whole.write(value))
        return number

    def read(self, written: Any) -> Shape:
        if not 0 <= _check(written, int) < len(self._known):
            raise InvalidInput(f"there is no shape {written}")
        known: Shape = self._known[written]
        return known

    def take_new(self) -> list[Any]:
        """Return the shapes that are new since the last call."""
        new, self._new = self._new, []
        return new

    def learn(self, written: Any) -> None:
        """Add the new shapes of a recording."""
        self._known += map(self._whole.read, _check(written, list))


class Forms:
    """All forms of one file, and the shapes it has written."""

    _ATOMS: ClassVar[Mapping[Any, tuple[type, ...]]] = {
        str: (str,),
        int: (int,),
        bool: (bool,),
        float: (float, int),
    }

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._classes: dict[type, Form[Any]] = {}
        self.shapes = _Shapes(self._fields_of(Shape))

    def schema(self) -> dict[str, list[str]]:
        """Return the names of the fields of each class with a form, in order."""
        found = {
            kind.__name__: list(form.forms)
            for kind, form in self._classes.items()
            if isinstance(form, _Dataclass)
        }
        return dict(sorted(found.items()))

    def of(self, hint: Any) -> Form[Any]:
        """Return the form of a type hint."""
        hint = getattr(hint, "__supertype__", hint)  # a NewType
        if hint in self._ATOMS:
            return _Atom(self._ATOMS[hint])
        if hint is Any:
            return _Untyped()
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            (only,) = (each for each in inner if each is not type(None))
            return _Optional(self.of(only))
        if origin is tuple and inner[-1] is not Ellipsis:
            return _Tuple(tuple, tuple(map(self.of, inner)))
        if origin in (tuple, frozenset):
            return _Items(origin, self.of(inner[0]))
        if origin is not None and issubclass(origin, Mapping):
            return _Pairs(*map(self.of, inner))
        return self._of_class(hint)

    def _of_class(self, kind: Any) -> Form[Any]:
        own: dict[type, Callable[[], Form[Any]]] = {
            Shape: lambda: self.shapes,
            Resources: _Amounts,
            HostPorts: _UsedPorts,
            Rules: _RulesName,
        }
        if kind in own:
            return own[kind]()
        if kind not in self._classes:
            if isinstance(kind, type) and issubclass(kind, Enum):
                return _EnumName(kind)
            if is_dataclass(kind):
                return self._fields_of(kind)
            if isinstance(kind, type) and hasattr(kind, "_fields"):
                hints = get_type_hints(kind)
                forms = tuple(self.of(hints[name]) for name in kind._fields)
                self._classes[kind] = _Tuple(kind._make, forms)  # type: ignore[attr-defined]
            else:
                raise TypeError(f"there is no form to record a {kind}")
        return self._classes[kind]

    def _fields_of(self, kind: Any) -> _Dataclass:
        forms = {name: self.of(hint) for name, hint in kept_fields(kind).items()}
        order = tuple(forms)
        if self._schema is not None:
            order = check_names(kind, self._schema.get(kind.__name__), order)
        made = _Dataclass(kind, forms, order)
        self._classes[kind] = made
        return made


def kept_fields(kind: Any) -> dict[str, Any]:
    """Return the recorded fields of a dataclass, with their hints."""
    hints, left_out = get_type_hints(kind), LEFT_OUT.get(kind, ())
    return {each.name: hints[each.name] for each in fields(kind) if each.name not in left_out}


def check_names(kind: Any, written: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields of *kind* in a recording; raise `InvalidInput` for unknown ones."""
    names = tuple(_check(name, str) for name in _check(written, list))
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
_encode = msgspec.msgpack.Encoder().encode


def _raw(plain: Any) -> msgspec.Raw:
    """Encode a small part on its own: encoding the whole at once would block all threads."""
    return msgspec.Raw(_encode(plain))


class Delta:
    """Computes and applies the changes between two values of one type."""

    def between(self, old: Any, new: Any) -> Any:
        """Return the change from *old*, which may be `NONE`, to *new*; `SAME` for none."""
        raise NotImplementedError

    def applied(self, old: Any, change: Any) -> Any:
        """Return the new value for *old* and a change."""
        raise NotImplementedError


class _Whole(Delta):
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


class _Keyed(Delta):
    """A mapping by names: added or changed keys, removed keys, and the order."""

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
        return [0, list(before), {key: _raw(self._form.write(each)) for key, each in new.items()}]

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
            return [None, [_raw(self._form.write(each)) for each in new]]
        positions = [at for at, each in enumerate(new) if each is not old[at]]
        return (
            [positions, [_raw(self._form.write(new[at])) for at in positions]]
            if positions
            else SAME
        )

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
            return _Keyed(forms.of(inner[1]), by_value=by_value)
    return _Whole(forms.of(hint), by_value=by_value)
