"""A recording keeps every field that a decision depends on."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import count
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest

from extender.errors import InvalidInput
from extender.model.node import Amounts, HostPorts, Node, NodeFacts
from extender.model.pod import HostPort, Pod, Shape
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import VOLCANO, Policy, Rules
from extender.replay import serialize
from extender.replay.compare import plan_differences
from extender.replay.serialize import Forms
from tests.unit.planner.test_backfill import brief, crowd, old

#: Fields that follow from others, or can be computed again. No decision may depend on a field
#: that is added here.
_FOLLOWS = {("Gang", "memo"), ("NodeFacts", "memo"), ("NodeFacts", "index"), ("PodGroup", "key")}
_NUMBERS = count(1)
_SHAPE = Shape(requests=Resources({"cpu": 1}))


def made(hint: Any) -> Any:
    """Make a value of a type that differs from every other made value."""
    hint, number = getattr(hint, "__supertype__", hint), next(_NUMBERS)
    origin, inner = get_origin(hint), get_args(hint)
    if hint == Amounts:
        return np.array([[number, number + 1]], dtype=np.int64)
    if origin in (Union, types.UnionType):
        return made(next(each for each in inner if each is not type(None)))
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(map(made, inner))
    if origin in (tuple, frozenset):
        return origin([made(inner[0])])
    if origin is not None and issubclass(origin, Mapping):
        return {made(inner[0]): made(inner[1])}
    simple: dict[Any, Any] = {
        str: f"text-{number}",
        int: number,
        float: number + 0.5,
        bool: True,
        Any: [number, "x", None, {"a": 1.5}],
        Shape: _SHAPE,
        Resources: Resources({"memory": number, "cpu": 2}),
        HostPorts: HostPorts([HostPort(number, "UDP", "10.0.0.1"), HostPort(number)]),
        Rules: VOLCANO,
    }
    if hint in simple:
        return simple[hint]
    if issubclass(hint, Enum):
        return list(hint)[-1]
    hints = get_type_hints(hint)
    if is_dataclass(hint):
        names = [each.name for each in fields(hint) if (hint.__name__, each.name) not in _FOLLOWS]
        values = {name: made(hints[name]) for name in names}
        if hint is NodeFacts:
            values["index"] = {node.name: row for row, node in enumerate(values["nodes"])}
        return hint(**values)
    return hint(**{name: made(hints[name]) for name in hint._fields})


def must_be_the_same(old: Any, new: Any, where: str = "") -> None:
    """Compare field by field and in order, independent of the classes' own equality."""
    if isinstance(old, np.ndarray):
        assert old.tolist() == new.tolist(), where
        assert old.dtype == new.dtype
    elif is_dataclass(old):
        assert type(old) is type(new), where
        for each in fields(old):
            if (type(old).__name__, each.name) not in _FOLLOWS or each.name != "memo":
                place = f"{where}.{each.name}"
                must_be_the_same(getattr(old, each.name), getattr(new, each.name), place)
    elif isinstance(old, HostPorts):
        assert list(old.counts.items()) == list(new.counts.items()), where
    elif isinstance(old, Mapping):
        assert type(new) is Resources or not isinstance(old, Resources), where
        assert len(old) == len(new), where
        for (key, value), (same, other) in zip(old.items(), new.items(), strict=True):
            must_be_the_same(key, same, where)
            must_be_the_same(value, other, f"{where}[{key}]")
    elif isinstance(old, tuple):
        assert type(old) is type(new), where
        for at, (value, other) in enumerate(zip(old, new, strict=True)):
            must_be_the_same(value, other, f"{where}[{at}]")
    else:
        assert (type(old), old) == (type(new), new), where


def sent(change: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(change))


class RoundTrip:
    """Writes values and reads them back."""

    def __init__(self, of: Any) -> None:
        self._here, there = Forms(), Forms()
        self._out, self._in, self._there = of(self._here), of(there), there
        self._policy = self._here.of(Policy), there.of(Policy)
        self._old: Any = serialize.NONE
        self._read: Any = serialize.NONE

    def through(self, value: Any) -> Any:
        change = self._out.between(self._old, value)
        self._there.shapes.learn(sent(self._here.shapes.take_new()))
        if change is not serialize.SAME:
            self._read = self._in.applied(self._read, sent(change))
        self._old = value
        return self._read


@pytest.mark.parametrize(
    ("of", "kind"), [(serialize.of_snapshot, Snapshot), (serialize.of_plan, Plan)]
)
def test_every_field_of_a_snapshot_and_a_plan_is_kept(of: Any, kind: Any) -> None:
    first, second = made(kind), made(kind)
    round_trip = RoundTrip(of)

    must_be_the_same(first, round_trip.through(first))
    must_be_the_same(second, round_trip.through(second))


@pytest.mark.parametrize("name", [each.name for each in fields(Snapshot)])
def test_a_single_changed_field_is_kept(name: str) -> None:
    first = made(Snapshot)
    second = replace(first, **{name: made(get_type_hints(Snapshot)[name])})
    round_trip = RoundTrip(serialize.of_snapshot)
    round_trip.through(first)

    must_be_the_same(second, round_trip.through(second))


def test_an_equal_pod_with_a_new_refusal_is_written_again() -> None:
    gangs = made(get_type_hints(Snapshot)["gangs"])
    ((key, gang),) = gangs.items()
    first = replace(made(Snapshot), gangs=gangs)
    refused = replace(gang, pods=(replace(gang.pods[0], refusal="no room"),))
    second = replace(first, gangs={key: refused})
    round_trip = RoundTrip(serialize.of_snapshot)
    round_trip.through(first)

    must_be_the_same(second, round_trip.through(second))


def test_facts_that_admit_a_gang_to_reserved_capacity_are_kept() -> None:
    before = crowd(old(), brief())
    plan = make_plan(before)
    assert "it ends before a/big can start" in plan.verdicts[brief().key].message

    again = make_plan(RoundTrip(serialize.of_snapshot).through(before))

    assert [*plan_differences(plan, again)] == []


def test_pods_that_share_a_shape_still_share_it_and_others_do_not() -> None:
    alike = Shape(requests=_SHAPE.requests)
    pods = [replace(made(Pod), shape=shape) for shape in (_SHAPE, alike, _SHAPE)]
    snapshot = made(Snapshot)
    ((key, gang),) = snapshot.gangs.items()
    snapshot = replace(snapshot, gangs={key: replace(gang, pods=tuple(pods))}, rejected_nodes={})

    (read,) = RoundTrip(serialize.of_snapshot).through(snapshot).gangs.values()

    one, two, three = (pod.shape for pod in read.pods)
    assert one is three
    assert one is not two


def test_an_equal_entry_is_written_again_only_if_its_mappings_have_another_order() -> None:
    (queue,) = made(get_type_hints(Snapshot)["queues"]).values()
    first = {"q": replace(queue, annotations={"a": "1", "b": "2"})}
    same, turned = (
        {"q": replace(queue, annotations=each)}
        for each in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    )
    before = replace(made(Snapshot), queues=first)
    delta = serialize.of_snapshot(Forms())

    assert delta.between(before, replace(before, queues=same)) is serialize.SAME
    assert [*delta.between(before, replace(before, queues=turned))] == ["queues"]


def test_added_and_removed_entries_keep_the_order() -> None:
    hint = get_type_hints(Snapshot)["queues"]
    some = {name: next(iter(made(hint).values())) for name in "abcde"}
    first = replace(made(Snapshot), queues={name: some[name] for name in "ace"})
    round_trip = RoundTrip(serialize.of_snapshot)
    round_trip.through(first)

    for names in ("abce", "bce", "ecb", "ecba", "", "cd"):
        later = replace(first, queues={name: some[name] for name in names})
        assert list(round_trip.through(later).queues) == list(names)


def test_changed_nodes_keep_their_position_and_unchanged_nodes_their_identity() -> None:
    nodes = tuple(replace(made(Node), name=name) for name in "abc")

    def table(*nodes: Node) -> Snapshot:
        facts = NodeFacts(nodes, {node.name: row for row, node in enumerate(nodes)})
        snapshot = made(Snapshot)
        return replace(snapshot, nodes=replace(snapshot.nodes, facts=facts))

    round_trip = RoundTrip(serialize.of_snapshot)
    first = round_trip.through(table(*nodes)).nodes.facts
    cordoned = replace(nodes[1], unschedulable=False)
    second = round_trip.through(table(nodes[0], cordoned, nodes[2])).nodes.facts
    third = round_trip.through(table(nodes[0], nodes[2])).nodes.facts

    assert [node.unschedulable for node in second.nodes] == [True, False, True]
    assert second.nodes[0] is first.nodes[0]
    assert third.index == {"a": 0, "c": 1}


def test_a_policy_is_kept_with_its_rules() -> None:
    here, there = Forms().of(Policy), Forms().of(Policy)

    for policy in (
        policy_parser.DEFAULT,
        policy_parser.parse("compatibility: volcano"),
        made(Policy),
    ):
        read = there.read(sent(here.write(policy)))
        must_be_the_same(policy, read)
        assert read.rules is policy.rules


def test_every_field_of_a_plan_is_compared() -> None:
    other = made(Plan)
    for each in fields(Plan):
        changed = replace(Plan(), **{each.name: getattr(other, each.name)})
        assert [*plan_differences(Plan(), changed)], each.name


def test_an_unsupported_type_is_an_error_before_anything_is_recorded() -> None:
    with pytest.raises(TypeError, match="there is no form to record"):
        Forms().of(complex)


def test_a_recording_with_fewer_fields_is_read_and_one_with_other_fields_is_not() -> None:
    written = Forms()
    form = written.of(Node)
    schema = written.schema()
    older = {**schema, "Node": [name for name in schema["Node"] if name != "managed"]}
    node = made(Node)
    plain = sent(form.write(node))[:-1]

    assert Forms(older).of(Node).read(plain) == replace(node, managed=True)
    with pytest.raises(InvalidInput, match="Node has an unknown field 'colour'"):
        Forms({**schema, "Node": [*schema["Node"], "colour"]}).of(Node)
    with pytest.raises(InvalidInput, match="Node has no field allocatable"):
        Forms({**schema, "Node": ["name"]}).of(Node)
