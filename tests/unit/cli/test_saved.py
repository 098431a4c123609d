from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from extender.cache.changes import SeenPod
from extender.cli import saved
from extender.errors import InvalidInput
from extender.model.gang import PodGroup
from tests import objects as make

#: Reads the objects of a file with this text.
Read: TypeAlias = Callable[[str], saved.Objects]


@pytest.fixture
def read_text(tmp_path: Path) -> Read:
    def read(text: str) -> saved.Objects:
        file = tmp_path / "saved.yaml"
        file.write_text(text)
        return saved.read([str(file)], frozenset({"gang-scheduler"}))

    return read


@pytest.fixture
def read(read_text: Read) -> Callable[[object], list[Any]]:
    def items(document: object) -> list[Any]:
        return [change.item for change in read_text(yaml.safe_dump(document)).changes]

    return items


def test_every_watched_kind_is_read_from_a_file(read: Any) -> None:
    meta = {"name": "x", "namespace": "a"}
    kinds = [
        ("v1", "Pod"),
        ("v1", "Node"),
        ("v1", "Namespace"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("policy/v1", "PodDisruptionBudget"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
        ("scheduling.incubator.k8s.io/v1alpha1", "Queue"),
    ]
    read_kinds = [
        type(read({"apiVersion": version, "kind": kind, "metadata": meta})[0]).__name__
        for version, kind in kinds
    ]

    assert read_kinds == [
        "SeenPod",
        "Node",
        "Namespace",
        "PriorityClass",
        "DisruptionBudget",
        "PodGroup",
        "PodGroup",
        "Queue",
    ]


def test_lists_of_every_form_are_read(read: Any) -> None:
    pod = make.stored_pod("p")
    bare = {key: pod[key] for key in ("metadata", "spec", "status")}

    assert len(read({"apiVersion": "v1", "kind": "List", "items": [pod, pod]})) == 2
    assert len(read({"apiVersion": "v1", "kind": "PodList", "items": [bare]})) == 1
    assert read({"apiVersion": "v1", "kind": "List", "items": None}) == []


def test_unused_kinds_are_skipped(read: Any) -> None:
    assert read({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}) == []
    native = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    assert read({**native, "metadata": {"name": "x"}}) == []
    assert read(None) == []


def test_a_podgroup_keeps_its_dialect(read_text: Read) -> None:
    thing = make.pod_group("g") | {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    (change,) = read_text(yaml.safe_dump(thing)).changes

    assert isinstance(change.item, PodGroup)
    assert change.item.dialect == change.dialect == "scheduling.x-k8s.io"


def test_yaml_dates_and_numbers_are_read(read_text: Read) -> None:
    text = """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, creationTimestamp: 2026-01-01T00:00:00Z}
        spec: {containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]}
    """
    (change,) = read_text(text).changes
    item = change.item

    assert isinstance(item, SeenPod)
    assert item.pod.created == 1767225600.0
    assert item.pod.requests.amount("cpu") == 2000


def test_an_invalid_object_is_refused_with_its_field(read: Any) -> None:
    thing = make.pod_group("g", min_member="three")
    with pytest.raises(InvalidInput, match=r"spec\.minMember expected int"):
        read(thing)


@pytest.mark.parametrize("document", ["words", 3, [], {"metadata": {}}, {"kind": 3}])
def test_a_document_without_a_kind_is_refused(document: object, read: Any) -> None:
    with pytest.raises(InvalidInput, match="not a Kubernetes object: it has no kind"):
        read(document)


def test_an_object_that_cannot_be_json_is_refused(read: Any) -> None:
    with pytest.raises(InvalidInput, match="Pod p: cannot be JSON"):
        read({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {None: "x"}}})
