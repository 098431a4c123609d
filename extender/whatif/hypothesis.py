"""The hypothetical changes of `--with` and `--without`: objects changed or removed.

The manifests are changed, so the result is decoded by the same rules as the present objects. If a
node is removed, its pods wait again, as those that their controllers would create. Pods of other
schedulers, mostly of DaemonSets, are removed with the node.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from extender.errors import InvalidInput, InvalidQuantity
from extender.model.annotations import STARTED_IN
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
#: Above this number of names, only those with the same first letters are compared.
_MANY = 5000


class Hypothesis(NamedTuple):
    """The values of `--with` and `--without`."""

    withs: Sequence[str] = ()
    withouts: Sequence[str] = ()

    def applied(
        self, manifests: Sequence[Manifest], snapshot: Snapshot, schedulers: frozenset[str]
    ) -> list[Manifest]:
        """Return the changed *manifests*; *snapshot* is decoded from them."""
        changed = list(manifests)
        for each in self.withouts:
            changed = _without(each, changed, snapshot, schedulers)
        for each in self.withs:
            changed = _with(each, changed, snapshot)
        return changed


def identity(written: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return kind, namespace and name."""
    metadata = written["metadata"]
    return str(written["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])


def _without(
    text: str, manifests: list[Manifest], snapshot: Snapshot, schedulers: frozenset[str]
) -> list[Manifest]:
    kind, _, name = text.partition("/")
    if kind == "node":
        _check("--without", "node", name, [node.name for node in snapshot.nodes.nodes])
        return [*_without_node(name, manifests, schedulers)]
    if kind == "queue":
        _check("--without", "queue", name, _names(manifests, "Queue"))
        return [each for each in manifests if identity(each.content) != ("Queue", "", name)]
    if kind in ("gang", "pod") and name.count("/") == 1:
        namespace, _, own_name = name.partition("/")
        if kind == "pod":
            _check("--without", "pod", name, _names(manifests, "Pod"))
            gone = {("Pod", namespace, own_name)}
        else:
            _check("--without", "gang", name, snapshot.gangs)
            gone = {("Pod", pod.namespace, pod.name) for pod in snapshot.gangs[GangKey(name)].pods}
            gone.add(("PodGroup", namespace, own_name))
        return [each for each in manifests if identity(each.content) not in gone]
    raise InvalidInput(f"--without {text!r} is not a known form; {_WITHOUT}")


def _without_node(
    name: str, manifests: Iterable[Manifest], schedulers: frozenset[str]
) -> Iterable[Manifest]:
    for place, written in manifests:
        kind, _, own_name = identity(written)
        spec = written.get("spec")
        spec = spec if isinstance(spec, Mapping) else {}
        if (kind, own_name) == ("Node", name):
            continue
        if kind != "Pod" or spec.get("nodeName") != name:
            yield Manifest(place, written)
        elif spec.get("schedulerName") in schedulers and _is_recreated(written):
            yield Manifest(place, _unbound(written))


def _is_recreated(pod: Mapping[str, Any]) -> bool:
    """Return whether a controller would recreate the pod: it is not finished and not deleted."""
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, Mapping) else ""
    is_over = phase in ("Succeeded", "Failed")
    return not is_over and not pod["metadata"].get("deletionTimestamp")


def _unbound(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as it was before it was bound."""
    metadata = dict(pod["metadata"])
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: each for key, each in annotations.items() if key != STARTED_IN}
    spec = {key: each for key, each in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _with(text: str, manifests: list[Manifest], snapshot: Snapshot) -> list[Manifest]:
    path, has_value, value = text.partition("=")
    kind, _, rest = path.partition("/")
    found = {"queue": _QUEUE, "node": _NODE}.get(kind, _QUEUE).fullmatch(rest)
    if has_value and kind == "queue" and found is None:
        _check_field(rest, snapshot)
    if not has_value or kind not in ("queue", "node") or found is None:
        raise InvalidInput(f"--with {text!r} is not a known form; {_WITH}")
    name, field = found["name"], found["field"]
    if kind == "node":
        _check("--with", "node", name, [node.name for node in snapshot.nodes.nodes])
        return _set(manifests, ("Node", "", name), ("unschedulable",), _boolean(value, path))
    _check("--with", "queue", name, snapshot.queues)
    if ("Queue", "", name) not in {identity(each.content) for each in manifests}:
        # The default queue exists without a manifest.
        queue = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {},
        }
        manifests = [*manifests, Manifest("--with", queue)]
    return _set(manifests, ("Queue", "", name), *_queue_field(field, value, path))


def _check_field(rest: str, snapshot: Snapshot) -> None:
    """Raise `InvalidInput` with the nearest field, if the queue exists."""
    for name in snapshot.queues:
        if rest.startswith(f"{name}."):
            wrong = rest.removeprefix(f"{name}.")
            (near,) = difflib.get_close_matches(wrong[:300], _FIELDS, n=1, cutoff=0)
            raise InvalidInput(
                f"--with queue/{rest}: a queue has no {wrong}; the nearest is {near}"
            )


def _queue_field(field: str, value: str, path: str) -> tuple[tuple[str, ...], Any]:
    """Return the path of a field in the spec of a Queue, and its value."""
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
        what = "a whole number of at least 1" if field == "weight" else "a whole number"
        raise InvalidInput(f"--with {path}: {value!r} is not {what}")
    return (field,), number


def _boolean(value: str, path: str) -> bool:
    if value not in _BOOLEANS:
        raise InvalidInput(f"--with {path}: {value!r} is neither true nor false")
    return _BOOLEANS[value]


def _set(
    manifests: list[Manifest], target: tuple[str, str, str], path: tuple[str, ...], value: Any
) -> list[Manifest]:
    return [
        Manifest(
            each.place, {**each.content, "spec": _with_value(each.content.get("spec"), path, value)}
        )
        if identity(each.content) == target
        else each
        for each in manifests
    ]


def _with_value(within: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    fields = within if isinstance(within, Mapping) else {}
    return {**fields, path[0]: _with_value(fields.get(path[0]), path[1:], value)}


def _names(manifests: Iterable[Manifest], kind: str) -> list[str]:
    identities = (identity(each.content) for each in manifests)
    return [f"{space}/{name}".lstrip("/") for one, space, name in identities if one == kind]


def _check(flag: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Return *name* if it is known, or raise `InvalidInput` with the nearest name."""
    names = [*known]
    if name in names:
        return name
    if len(names) > _MANY:
        names = [each for each in names if each[:3] == name[:3]][:_MANY]
    near = difflib.get_close_matches(name[:300], names, n=1, cutoff=0)
    nearest = f"; the nearest is {near[0]}" if near else ""
    raise InvalidInput(f"{flag} {kind}/{name}: there is no {kind} {name}{nearest}")
