"""What `kubectl create -f` would bring into a cluster: controllers' pods, made as they make them.

Jobs, Deployments, ReplicaSets, StatefulSets and Volcano's Jobs are taken apart; whatever else is
no pod stays as it is. What the API server fills in is filled in here: namespace, time, priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.clock import timestamp_ms
from extender.errors import InvalidInput
from extender.text import shown
from extender.whatif.hypothesis import identity
from extender.whatif.manifests import Manifest

Written = Mapping[str, Any]
#: Begins the uid of what is not there; no real one looks like it.
MARK = "what-if:"
#: Of one controller.
_MOST_PODS = 20_000
_CLUSTER_WIDE = ("Node", "Namespace", "PriorityClass", "Queue")
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name", "volcano.sh/job-name")


@dataclass(slots=True)
class SubmittedManifests:
    """Objects beside those that are there, and what is to be said of them."""

    manifests: list[Manifest] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def submitted(
    files: Iterable[Manifest],
    there: Sequence[Manifest],
    *,
    namespace: str,
    now: float,
    schedulers: frozenset[str],
) -> SubmittedManifests:
    """Give what *files* would bring beside what is *there*; *namespace* is for who names none."""
    new = SubmittedManifests()
    for place, written in files:
        kind, space, _ = identity(written)
        if kind not in _CLUSTER_WIDE and not space:
            about = {**written["metadata"], "namespace": namespace}
            written = {**written, "metadata": about}
        for each in _expand(written, place, there):
            new.manifests.append(Manifest(place, _created_now(each, now)))
    _fill_in_priorities(new, there)
    _add_namespaces(new, there)
    _note_schedulers(new, schedulers)
    return new


def _created_now(written: Written, now: float) -> Written:
    """Give an object that is created now, wherever it was saved."""
    kind, space, name = identity(written)
    about = {
        key: each
        for key, each in written["metadata"].items()
        if key in ("name", "namespace", "labels", "annotations", "ownerReferences")
    }
    about |= {"uid": f"{MARK}{kind}/{space}/{name}", "creationTimestamp": timestamp_ms(now)}
    made = {**written, "metadata": about}
    if kind in ("Pod", "PodGroup"):
        made["status"] = {}
    if kind == "Pod" and isinstance(written.get("spec"), Mapping):
        made["spec"] = {key: each for key, each in written["spec"].items() if key != "nodeName"}
    return made


def _expand(written: Written, place: str, there: Sequence[Manifest]) -> Iterator[Written]:
    kind = str(written["kind"])
    group = str(written.get("apiVersion", "")).partition("/")[0]
    maker = _MAKERS.get((group, kind))
    if maker is None:
        yield written
        return
    if kind == "Job":
        _check_is_new(written, place, there)
    yield from maker(written, _spec(written), place)


def _spec(written: Written) -> Written:
    """Give the spec of an object that anybody may have written."""
    spec = written.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _check_is_new(job: Written, place: str, there: Sequence[Manifest]) -> None:
    _, space, name = identity(job)
    for _, each in there:
        kind, where, pod = identity(each)
        if (kind, where) != ("Pod", space):
            continue
        labels = each["metadata"].get("labels") or {}
        if any(labels.get(label) == name for label in _JOB_NAMES):
            raise InvalidInput(
                f"{place}: Job {space}/{name} is there already, with pod {pod}; give it another"
                " name, or leave out -f"
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
    for place_in, task in enumerate(tasks if isinstance(tasks, list) else ()):
        said = task if isinstance(task, Mapping) else {}
        role = str(said.get("name") or f"default{place_in}")
        number = _number(job, said.get("replicas", 1), f"spec.tasks[{place_in}].replicas", place)
        marks = {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": role}
        for pod in _pods(job, said.get("template"), number, "Job", place, f"{name}-{role}"):
            about = pod["metadata"]
            about = {**about, "annotations": {**(about.get("annotations") or {}), **marks}}
            usual = {"schedulerName": spec.get("schedulerName") or "volcano"}
            pods.append({**pod, "metadata": about, "spec": {**usual, **pod["spec"]}})
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
    said = template if isinstance(template, Mapping) else {}
    if not isinstance(said.get("spec"), Mapping):
        raise InvalidInput(f"{place}: {kind} {space}/{name} has no template with a spec")
    about = said["metadata"] if isinstance(said.get("metadata"), Mapping) else {}
    for index in range(number):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **about,
                "name": f"{stem or name}-{index}",
                "namespace": space,
                "ownerReferences": [{"kind": owner, "name": name, "controller": True}],
            },
            "spec": said["spec"],
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


def _fill_in_priorities(new: SubmittedManifests, there: Sequence[Manifest]) -> None:
    """Give pods the number of their class, where anybody says which it is."""
    everything = [each for _, each in (*there, *new.manifests)]
    listed = {identity(each)[2]: each.get("value", 0) for each in everything if _is_class(each)}
    used = {_class_of(each): _spec(each)["priority"] for each in everything if _has_priority(each)}
    # As the API server admits who names none.
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
            # A running extender tells of the classes that are in use by their numbers alone.
            listed[wanted] = used[wanted]
            new.manifests.append(Manifest(place, _priority_class(wanted, used[wanted])))
        if wanted not in listed:
            unknown.add(wanted)
        elif each["kind"] == "Pod" and not _has_priority(each):
            ranked = {**_spec(each), "priority": listed[wanted]}
            new.manifests[index] = Manifest(place, {**each, "spec": ranked})
    for name in sorted(unknown):
        new.remarks.append(
            f"which priority PriorityClass {name} has is not known here, so it counts as 0; add the"
            " class with -f"
        )


def _is_class(written: Written) -> bool:
    return bool(written["kind"] == "PriorityClass")


def _has_priority(written: Written) -> bool:
    return written["kind"] == "Pod" and "priority" in _spec(written)


def _class_of(written: Written) -> str:
    """Give the priority class that a pod or its group names."""
    name = _spec(written).get("priorityClassName")
    return name if isinstance(name, str) and written["kind"] in ("Pod", "PodGroup") else ""


def _priority_class(name: str, value: Any) -> Written:
    about = {"metadata": {"name": name}, "value": value}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **about}


def _add_namespaces(new: SubmittedManifests, there: Sequence[Manifest]) -> None:
    known = {
        identity(each)[2] for _, each in (*there, *new.manifests) if each["kind"] == "Namespace"
    }
    used = {identity(each)[1] for _, each in new.manifests} - {""}
    for name in sorted(used - known):
        new.remarks.append(
            f"there is no namespace {name}; it counts as one on which nothing is written"
        )
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        new.manifests.append(Manifest("-f", namespace))


def _note_schedulers(new: SubmittedManifests, schedulers: frozenset[str]) -> None:
    others: dict[str, str] = {}
    for _, each in new.manifests:
        kind, space, name = identity(each)
        if kind == "Pod":
            said = str(_spec(each).get("schedulerName") or "default-scheduler")
            if said not in schedulers:
                others.setdefault(said, f"{space}/{name}")
    for scheduler, pod in sorted(others.items()):
        new.remarks.append(
            f"pod {pod} is for the scheduler {scheduler}, so it is not planned; write schedulerName"
            f" {min(schedulers)} in it, or say --scheduler-name {scheduler}"
        )
