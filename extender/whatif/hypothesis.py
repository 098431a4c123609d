"""What somebody supposes with `--with` and `--without`: objects changed or taken away.

Objects are changed as they are written, so what is supposed is read by the same rules as what is
there. A pod whose node is taken away waits again, as the one would that its controller makes in
its place; those of other schedulers, DaemonSets for the most part, go with the node.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from extender.errors import InvalidInput, InvalidQuantity
from extender.kube.decode.pods import STARTED_IN
from extender.model.gang import GangKey
from extender.model.resources import parse_quantity
from extender.model.snapshot import Snapshot
from extender.whatif.manifests import Manifest

_AMOUNTS = ("capability", "deserved", "guarantee")
_BOOLEANS = {"true": True, "false": False}
_QUEUE = re.compile(
    r"(?P<name>.+?)\.(?P<field>weight|priority|reclaimable|parent|lend"
    rf"|(?:{'|'.join(_AMOUNTS)})\.(?P<resource>.+))"
)
_FIELDS = ["weight", "priority", "reclaimable", "parent", "lend"]
_FIELDS += [f"{each}.{resource}" for each in _AMOUNTS for resource in ("cpu", "memory")]
_NODE = re.compile(r"(?P<name>.+?)\.(?P<field>unschedulable)")
_WITH = "write it like queue/research.weight=5, queue/research.guarantee.cpu=8 or"
_WITH += " node/n7.unschedulable=true"
_WITHOUT = "write it like node/n7, queue/research, gang/team-a/train or pod/team-a/train-0"
#: Beyond so many names, only those that begin alike are compared.
_MANY = 5000


class Hypothesis(NamedTuple):
    """What was typed, each as often as somebody likes."""

    withs: Sequence[str] = ()
    withouts: Sequence[str] = ()

    def applied(
        self, things: Sequence[Manifest], seen: Snapshot, schedulers: frozenset[str]
    ) -> list[Manifest]:
        """Give *things* as they would be; *seen* is what they are read as."""
        changed = list(things)
        for each in self.withouts:
            changed = _without(each, changed, seen, schedulers)
        for each in self.withs:
            changed = _with(each, changed, seen)
        return changed


def identity(written: Mapping[str, Any]) -> tuple[str, str, str]:
    """Give kind, namespace and name."""
    about = written["metadata"]
    return str(written["kind"]), str(about.get("namespace") or ""), str(about["name"])


def _without(
    text: str, things: list[Manifest], seen: Snapshot, schedulers: frozenset[str]
) -> list[Manifest]:
    kind, _, name = text.partition("/")
    if kind == "node":
        _check("--without", "node", name, [node.name for node in seen.nodes.nodes])
        return [*_without_node(name, things, schedulers)]
    if kind == "queue":
        _check("--without", "queue", name, _names(things, "Queue"))
        return [each for each in things if identity(each.content) != ("Queue", "", name)]
    if kind in ("gang", "pod") and name.count("/") == 1:
        namespace, _, own = name.partition("/")
        if kind == "pod":
            _check("--without", "pod", name, _names(things, "Pod"))
            gone = {("Pod", namespace, own)}
        else:
            _check("--without", "gang", name, seen.gangs)
            gone = {("Pod", pod.namespace, pod.name) for pod in seen.gangs[GangKey(name)].pods}
            gone.add(("PodGroup", namespace, own))
        return [each for each in things if identity(each.content) not in gone]
    raise InvalidInput(f"--without {text!r} names nothing; {_WITHOUT}")


def _without_node(
    name: str, things: Iterable[Manifest], schedulers: frozenset[str]
) -> Iterable[Manifest]:
    for place, written in things:
        kind, _, own = identity(written)
        spec = written.get("spec")
        spec = spec if isinstance(spec, Mapping) else {}
        if (kind, own) == ("Node", name):
            continue
        if kind != "Pod" or spec.get("nodeName") != name:
            yield Manifest(place, written)
        elif spec.get("schedulerName") in schedulers and _is_recreated(written):
            yield Manifest(place, _unbound(written))


def _is_recreated(pod: Mapping[str, Any]) -> bool:
    """Ask whether somebody would make it anew: it is neither over nor told to go."""
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, Mapping) else ""
    is_over = phase in ("Succeeded", "Failed")
    return not is_over and not pod["metadata"].get("deletionTimestamp")


def _unbound(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Give a pod as it was before it had a node."""
    about = dict(pod["metadata"])
    marks = about.get("annotations") or {}
    about["annotations"] = {key: each for key, each in marks.items() if key != STARTED_IN}
    spec = {key: each for key, each in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": about, "spec": spec, "status": {"phase": "Pending"}}


def _with(text: str, things: list[Manifest], seen: Snapshot) -> list[Manifest]:
    path, is_said, value = text.partition("=")
    kind, _, rest = path.partition("/")
    found = {"queue": _QUEUE, "node": _NODE}.get(kind, _QUEUE).fullmatch(rest)
    if is_said and kind == "queue" and found is None:
        _check_field(rest, seen)
    if not is_said or kind not in ("queue", "node") or found is None:
        raise InvalidInput(f"--with {text!r} changes nothing; {_WITH}")
    name, field = found["name"], found["field"]
    if kind == "node":
        _check("--with", "node", name, [node.name for node in seen.nodes.nodes])
        way, meant = ("unschedulable",), _boolean(value, path)
        return _set(things, ("Node", "", name), way, meant)
    _check("--with", "queue", name, seen.queues)
    if ("Queue", "", name) not in {identity(each.content) for each in things}:
        # The queue of last resort exists without anybody having written it.
        about = {"metadata": {"name": name}, "spec": {}}
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **about}
        things = [*things, Manifest("--with", queue)]
    return _set(things, ("Queue", "", name), *_queue_field(field, value, path))


def _check_field(rest: str, seen: Snapshot) -> None:
    """Say which field comes nearest, where at least the queue is there."""
    for name in seen.queues:
        if rest.startswith(f"{name}."):
            wrong = rest.removeprefix(f"{name}.")
            (near,) = difflib.get_close_matches(wrong[:300], _FIELDS, n=1, cutoff=0)
            raise InvalidInput(
                f"--with queue/{rest}: a queue has no {wrong}; the nearest is {near}"
            )


def _queue_field(field: str, value: str, path: str) -> tuple[tuple[str, ...], Any]:
    """Give the way to a field of a Queue's spec, and what is to stand there."""
    first, _, resource = field.partition(".")
    if resource:
        try:
            if parse_quantity(value) < 0:
                raise InvalidQuantity(value)
        except InvalidQuantity as error:
            raise InvalidInput(
                f"--with {path}: {value!r} is not an amount, such as 8 or 64Gi"
            ) from error
        return ((first, "resource", resource) if first == "guarantee" else (first, resource)), value
    if field == "parent":
        return (field,), value
    if field in ("reclaimable", "lend"):
        return (("guarantee", "lend") if field == "lend" else (field,)), _boolean(value, path)
    least = 1 if field == "weight" else -(2**31)
    try:
        number = int(value) if len(value) < 12 else least - 1
    except ValueError:
        number = least - 1
    if not least <= number < 2**31:
        what = "a whole number from 1 on" if field == "weight" else "a whole number"
        raise InvalidInput(f"--with {path}: {value!r} is not {what}")
    return (field,), number


def _boolean(value: str, path: str) -> bool:
    if value not in _BOOLEANS:
        raise InvalidInput(f"--with {path}: {value!r} is neither true nor false")
    return _BOOLEANS[value]


def _set(
    things: list[Manifest], whose: tuple[str, str, str], way: tuple[str, ...], value: Any
) -> list[Manifest]:
    return [
        Manifest(
            each.place, {**each.content, "spec": _with_value(each.content.get("spec"), way, value)}
        )
        if identity(each.content) == whose
        else each
        for each in things
    ]


def _with_value(within: Any, way: tuple[str, ...], value: Any) -> Any:
    if not way:
        return value
    there = within if isinstance(within, Mapping) else {}
    return {**there, way[0]: _with_value(there.get(way[0]), way[1:], value)}


def _names(things: Iterable[Manifest], kind: str) -> list[str]:
    whose = (identity(each.content) for each in things)
    return [f"{space}/{name}".lstrip("/") for one, space, name in whose if one == kind]


def _check(flag: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Give *name* if there is one, or say which comes nearest to it."""
    names = [*known]
    if name in names:
        return name
    if len(names) > _MANY:
        names = [each for each in names if each[:3] == name[:3]][:_MANY]
    near = difflib.get_close_matches(name[:300], names, n=1, cutoff=0)
    nearest = f"; the nearest is {near[0]}" if near else ""
    raise InvalidInput(f"{flag} {kind}/{name}: there is no {kind} {name}{nearest}")
