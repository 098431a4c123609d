"""What `kubectl create -f` would create: the manifests and the pods of their controllers.

Jobs, Deployments, ReplicaSets, StatefulSets and Volcano Jobs are replaced by their pods; other
objects stay as they are. Defaults of the API server are filled in: namespace, time, priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.clock import timestamp_ms
from extender.errors import InvalidInput
from extender.model.annotations import GROUP_NAME, ROLE
from extender.text import shown
from extender.whatif.hypothesis import identity
from extender.whatif.manifests import Manifest

Written = Mapping[str, Any]
#: The prefix of the uid of hypothetical objects; no real uid has it.
MARK = "what-if:"
#: The largest number of pods of one controller.
_MOST_PODS = 20_000
_CLUSTER_WIDE = ("Node", "Namespace", "PriorityClass", "Queue")
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name", "volcano.sh/job-name")


@dataclass(slots=True)
class SubmittedManifests:
    """New objects, and remarks about them."""

    manifests: list[Manifest] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def submitted(
    files: Iterable[Manifest],
    present: Sequence[Manifest],
    *,
    namespace: str,
    now: float,
    schedulers: frozenset[str],
) -> SubmittedManifests:
    """Return what *files* would create besides *present*; *namespace* is the default namespace."""
    new = SubmittedManifests()
    for place, written in files:
        kind, space, _ = identity(written)
        if kind not in _CLUSTER_WIDE and not space:
            metadata = {**written["metadata"], "namespace": namespace}
            written = {**written, "metadata": metadata}
        for each in _expand(written, place, present):
            new.manifests.append(Manifest(place, _created_now(each, now)))
    _fill_in_priorities(new, present)
    _add_namespaces(new, present)
    _note_schedulers(new, schedulers)
    return new


def _created_now(written: Written, now: float) -> Written:
    """Return an object as it would be created now, without its saved state."""
    kind, space, name = identity(written)
    metadata = {
        key: each
        for key, each in written["metadata"].items()
        if key in ("name", "namespace", "labels", "annotations", "ownerReferences")
    }
    metadata |= {"uid": f"{MARK}{kind}/{space}/{name}", "creationTimestamp": timestamp_ms(now)}
    made = {**written, "metadata": metadata}
    if kind in ("Pod", "PodGroup"):
        made["status"] = {}
    if kind == "Pod" and isinstance(written.get("spec"), Mapping):
        made["spec"] = {key: each for key, each in written["spec"].items() if key != "nodeName"}
    return made


def _expand(written: Written, place: str, present: Sequence[Manifest]) -> Iterator[Written]:
    kind = str(written["kind"])
    group = str(written.get("apiVersion", "")).partition("/")[0]
    maker = _MAKERS.get((group, kind))
    if maker is None:
        yield written
        return
    if kind == "Job":
        _check_is_new(written, place, present)
    yield from maker(written, _spec(written), place)


def _spec(written: Written) -> Written:
    """Return the spec of an object; {} for an invalid one."""
    spec = written.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _check_is_new(job: Written, place: str, present: Sequence[Manifest]) -> None:
    _, space, name = identity(job)
    for _, each in present:
        kind, where, pod = identity(each)
        if (kind, where) != ("Pod", space):
            continue
        labels = each["metadata"].get("labels") or {}
        if any(labels.get(label) == name for label in _JOB_NAMES):
            raise InvalidInput(
                f"{place}: Job {space}/{name} exists already, with pod {pod}; rename it, or"
                " remove -f"
            )


def _job(job: Written, spec: Written, place: str) -> Iterator[Written]:
    number = _number(job, spec.get("parallelism", 1), "spec.parallelism", place)
    if spec.get("completions") is not None:
        number = min(number, _number(job, spec["completions"], "spec.completions", place))
    if not spec.get("suspend"):
        yield from _pods(job, spec.get("template"), number, "Job", place)


def _replicas(controller: Written, spec: Written, place: str) -> Iterator[Written]:
    number = _number(controller, spec.get("replicas", 1), "spec.replicas", place)
    owner = "StatefulSet" if controller["kind"] == "StatefulSet" else "ReplicaSet"
    yield from _pods(controller, spec.get("template"), number, owner, place)


def _volcano_job(job: Written, spec: Written, place: str) -> Iterator[Written]:
    _, space, name = identity(job)
    tasks = spec.get("tasks")
    pods: list[Written] = []
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        fields = task if isinstance(task, Mapping) else {}
        role = str(fields.get("name") or f"default{index}")
        number = _number(job, fields.get("replicas", 1), f"spec.tasks[{index}].replicas", place)
        annotations = {GROUP_NAME: name, ROLE: role}
        for pod in _pods(job, fields.get("template"), number, "Job", place, f"{name}-{role}"):
            metadata = pod["metadata"]
            metadata = {
                **metadata,
                "annotations": {**(metadata.get("annotations") or {}), **annotations},
            }
            default = {"schedulerName": spec.get("schedulerName") or "volcano"}
            pods.append({**pod, "metadata": metadata, "spec": {**default, **pod["spec"]}})
    group = {"minMember": spec.get("minAvailable") or len(pods)}
    group |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    yield {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": space},
        "spec": group,
    }
    yield from pods


def _pods(
    controller: Written, template: Any, number: int, owner: str, place: str, stem: str = ""
) -> Iterator[Written]:
    kind, space, name = identity(controller)
    fields = template if isinstance(template, Mapping) else {}
    if not isinstance(fields.get("spec"), Mapping):
        raise InvalidInput(f"{place}: {kind} {space}/{name} has no template with a spec")
    metadata = fields["metadata"] if isinstance(fields.get("metadata"), Mapping) else {}
    for index in range(number):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **metadata,
                "name": f"{stem or name}-{index}",
                "namespace": space,
                "ownerReferences": [{"kind": owner, "name": name, "controller": True}],
            },
            "spec": fields["spec"],
        }


def _number(controller: Written, number: Any, where: str, place: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MOST_PODS:
        return number
    kind, space, name = identity(controller)
    raise InvalidInput(
        f"{place}: {kind} {space}/{name}: {where}: {shown(number)} is not a number of pods from 0"
        f" to {_MOST_PODS}"
    )


_MAKERS: Mapping[tuple[str, str], Callable[[Written, Written, str], Iterator[Written]]] = {
    ("batch", "Job"): _job,
    ("batch.volcano.sh", "Job"): _volcano_job,
    ("apps", "Deployment"): _replicas,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "StatefulSet"): _replicas,
}


def _fill_in_priorities(new: SubmittedManifests, present: Sequence[Manifest]) -> None:
    """Set the priority of pods from their class, if its value is known."""
    everything = [each for _, each in (*present, *new.manifests)]
    listed = {identity(each)[2]: each.get("value", 0) for each in everything if _is_class(each)}
    used = {_class_of(each): _spec(each)["priority"] for each in everything if _has_priority(each)}
    # The API server gives a pod without a class the global default.
    defaults = [each for each in everything if _is_class(each) and each.get("globalDefault")]
    values = (each.get("value") for each in defaults)
    usual = min((value for value in values if isinstance(value, int)), default=0)
    unknown: set[str] = set()
    for index, (place, each) in enumerate(new.manifests):
        wanted = _class_of(each)
        if not wanted:
            if usual and each["kind"] == "Pod" and not _has_priority(each):
                admitted = {**_spec(each), "priority": usual}
                new.manifests[index] = Manifest(place, {**each, "spec": admitted})
            continue
        if wanted not in listed and wanted in used:
            # A running extender knows used classes only by the priority of their pods.
            listed[wanted] = used[wanted]
            new.manifests.append(Manifest(place, _priority_class(wanted, used[wanted])))
        if wanted not in listed:
            unknown.add(wanted)
        elif each["kind"] == "Pod" and not _has_priority(each):
            ranked = {**_spec(each), "priority": listed[wanted]}
            new.manifests[index] = Manifest(place, {**each, "spec": ranked})
    for name in sorted(unknown):
        new.remarks.append(
            f"the priority of PriorityClass {name} is unknown, so it counts as 0; add the class"
            " with -f"
        )


def _is_class(written: Written) -> bool:
    return bool(written["kind"] == "PriorityClass")


def _has_priority(written: Written) -> bool:
    return written["kind"] == "Pod" and "priority" in _spec(written)


def _class_of(written: Written) -> str:
    """Return the priority class that a pod or a PodGroup names."""
    name = _spec(written).get("priorityClassName")
    return name if isinstance(name, str) and written["kind"] in ("Pod", "PodGroup") else ""


def _priority_class(name: str, value: Any) -> Written:
    metadata = {"metadata": {"name": name}, "value": value}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **metadata}


def _add_namespaces(new: SubmittedManifests, present: Sequence[Manifest]) -> None:
    known = {
        identity(each)[2] for _, each in (*present, *new.manifests) if each["kind"] == "Namespace"
    }
    used = {identity(each)[1] for _, each in new.manifests} - {""}
    for name in sorted(used - known):
        new.remarks.append(
            f"there is no namespace {name}; it counts as one without labels and annotations"
        )
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        new.manifests.append(Manifest("-f", namespace))


def _note_schedulers(new: SubmittedManifests, schedulers: frozenset[str]) -> None:
    others: dict[str, str] = {}
    for _, each in new.manifests:
        kind, space, name = identity(each)
        if kind == "Pod":
            scheduler = str(_spec(each).get("schedulerName") or "default-scheduler")
            if scheduler not in schedulers:
                others.setdefault(scheduler, f"{space}/{name}")
    for scheduler, pod in sorted(others.items()):
        new.remarks.append(
            f"pod {pod} has the scheduler {scheduler}, so it is not planned; set its schedulerName"
            f" to {min(schedulers)}, or use --scheduler-name {scheduler}"
        )
