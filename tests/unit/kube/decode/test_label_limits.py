"""Labels over the limit are cut out of the JSON of pods, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.cache.changes import SeenPod, Upsert
from extender.kube.decode import pods, resources
from extender.kube.decode.limits import _LONGEST_LABELS as LONGEST_LABELS, drop_labels
from tests import objects

SCHEDULERS = frozenset({"gang-scheduler"})
MANY = {f"k{each}": "" for each in range(60_000)}


def written(thing: Any) -> bytes:
    return json.dumps(thing, separators=(",", ":"), sort_keys=True).encode()


LONG = 2 * LONGEST_LABELS
UNCHANGED = {
    "small": written(objects.stored_pod("p", labels={"a": "b"})),
    "large without its labels": written(
        objects.stored_pod("p", labels={"a": "b"}, annotations={"note": "x" * LONG})
    ),
    "few long labels": written(objects.stored_pod("p", labels={"k": "v" * LONG})),
    **{
        f"no pod: {text.decode()}": text + b" " * LONG
        for text in (b"", b"{", b"[1]", b'{"metadata":{"labels":3,"x":"')
    },
    **{
        f"malformed labels: {labels.decode()}": b'{"metadata":{"name":"p","labels":%s}}'
        % (labels % filling)
        for labels, filling in (
            (b'"%s"', b"1" * LONGEST_LABELS),
            (b"[%s1]", b"1," * LONGEST_LABELS),
            (b'{"a":%s1}', b"1," * LONGEST_LABELS),
            (b'{"%s":1}', b"1," * LONGEST_LABELS),
        )
    },
}


@pytest.mark.parametrize("data", UNCHANGED.values(), ids=UNCHANGED)
def test_json_without_many_labels_is_unchanged(data: bytes) -> None:
    assert drop_labels(data) == data


def test_of_many_labels_the_first_are_kept_and_the_rest_of_the_pod_is_unchanged() -> None:
    whole = objects.stored_pod("p", gang="g", labels=MANY)

    left = json.loads(drop_labels(written(whole)))

    assert 256 < len(left["metadata"]["labels"]) < 2000
    assert left["metadata"].pop("labels").items() <= whole["metadata"].pop("labels").items()
    assert left == whole


@pytest.mark.parametrize(
    ("label", "value"),
    [("scheduling.x-k8s.io/pod-group", "g"), ("volcano.sh/task-spec", "worker")],
)
def test_labels_that_we_read_are_kept_at_any_position(label: str, value: str) -> None:
    pod = objects.stored_pod("p", labels={**MANY, label: value})

    assert json.loads(drop_labels(written(pod)))["metadata"]["labels"][label] == value


def test_an_object_that_begins_like_the_labels_is_not_cut() -> None:
    """A tenant could otherwise choose where the JSON is cut."""
    begins = {each: MANY[each] for each in sorted(MANY)[:50]}
    whole = objects.stored_pod("p", annotations=begins, labels=MANY)
    whole["metadata"]["deeper"] = {"annotations": begins}

    left = json.loads(drop_labels(written(whole)))

    assert left["metadata"]["annotations"] == begins
    assert left["metadata"]["deeper"] == {"annotations": begins}


def test_annotations_equal_to_the_labels_are_not_cut() -> None:
    """Annotations come before the labels; a cut there would leave all labels."""
    whole = objects.stored_pod("p", annotations=MANY, labels=MANY)

    left = json.loads(drop_labels(written(whole)))

    assert left["metadata"]["annotations"] == MANY
    assert 256 < len(left["metadata"]["labels"]) < 2000


def test_the_watch_and_a_hook_read_a_pod_alike() -> None:
    pod = objects.stored_pod("p", gang="g", labels=MANY)
    line = resources.pods(SCHEDULERS).line(written({"type": "MODIFIED", "object": pod}))

    assert isinstance(line.change, Upsert)
    assert isinstance(line.change.item, SeenPod)
    read = pods.to_pod(pods.pod(written(pod)), schedulers=SCHEDULERS)
    assert (line.change.item.pod, line.change.item.membership) == read
    assert line.change.item.membership.excess == "more than 256 labels"


def test_of_labels_of_the_greatest_length_enough_are_kept_to_exceed_the_limit() -> None:
    longest = {f"{each:a>253}/{'n' * 63}": "v" * 63 for each in range(2000)}

    left = json.loads(drop_labels(written(objects.stored_pod("p", labels=longest))))

    assert 256 < len(left["metadata"]["labels"]) < 300
