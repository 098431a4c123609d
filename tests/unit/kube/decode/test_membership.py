from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from extender.model.gang import Membership
from extender.model.pod import Pod
from tests import objects
from tests.unit.kube.decode.stored import read_pod


def read(**meta: Any) -> Membership:
    return read_pod(objects.stored_pod("p", **meta))[1]


def test_an_annotation_wins_over_a_label() -> None:
    membership = read(
        annotations={"scheduling.x-k8s.io/pod-group": "train"},
        labels={"scheduling.k8s.io/group-name": "other"},
    )

    assert membership.key == "a/train"


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize(
    "key",
    [
        "gang-extender.io/min-member",
        "scheduling.k8s.io/group-min-member",
        "scheduling.volcano.sh/group-min-member",
        "pod-group.scheduling.sigs.k8s.io/min-available",
    ],
)
def test_pods_may_declare_their_gang_size_without_a_pod_group(key: str, where: str) -> None:
    gang = "gang-extender.io/gang"
    membership = read(**{where: {gang: "train", key: "4"}})

    assert (membership.key, membership.min_member, membership.problem) == ("a/train", 4, "")


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet", "StatefulSet"])
def test_ordinary_pods_of_one_controller_are_one_gang(kind: str) -> None:
    owners = [
        {"kind": "Other", "name": "x", "uid": "1"},
        {"kind": kind, "name": "web", "uid": "2", "controller": True},
    ]
    membership = read(ownerReferences=owners)

    assert membership == Membership(key=membership.key, named=False)
    assert membership.key == f"a/{kind.lower()}:web"


def test_a_pod_without_a_controller_is_a_gang_by_itself() -> None:
    assert read() == Membership(key=read().key, named=False)
    assert read().key == "a/pod:p"


def test_the_pods_of_a_job_that_declare_their_gang_size_are_a_named_gang() -> None:
    membership = read(
        ownerReferences=[{"kind": "Job", "name": "train", "uid": "1", "controller": True}],
        annotations={"gang-extender.io/min-member": "8"},
    )

    assert (membership.key, membership.named, membership.min_member) == ("a/job:train", True, 8)


@pytest.mark.parametrize("written", ["three", "0", "-1", "1.5", "9" * 5000, "٣"])
def test_an_unreadable_gang_size_is_a_problem(written: str) -> None:
    membership = read(annotations={"gang-extender.io/min-member": written})

    assert membership.named
    assert membership.problem.startswith("min-member is ")
    assert membership.problem.endswith("write a whole number such as 4")
    assert len(membership.problem) < 120


def test_a_pod_may_name_its_queue() -> None:
    assert read(annotations={"scheduling.volcano.sh/queue-name": "gold"}).queue == "gold"
    assert read(labels={"scheduling.volcano.sh/queue-name": "gold"}).queue == "gold"


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"schedulingGroup": {"podGroupName": "train"}}, "a/native:train"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "a/native:w.g"),
    ],
)
def test_native_groups_are_left_to_kube_scheduler(spec: dict[str, Any], key: str) -> None:
    thing = objects.stored_pod("p", gang="other")
    thing["spec"].update(spec)
    membership = read_pod(thing)[1]

    assert (membership.key, membership.native) == (key, True)


def test_all_pods_of_a_gang_share_one_membership() -> None:
    assert read(labels={"x": "1"}, annotations={"gang-extender.io/gang": "g"}) is read(
        labels={"x": "2"}, annotations={"gang-extender.io/gang": "g"}
    )


HUGE = "x" * 250_000
MARKS = [
    "gang-extender.io/gang",
    "gang-extender.io/min-member",
    "scheduling.volcano.sh/queue-name",
    "gang-extender.io/started-in",
    "gang-extender.io/woken",
    "volcano.sh/task-spec",
    "volcano.sh/task-priority",
    "volcano.sh/preemptable",
]


@pytest.mark.parametrize("mark", MARKS)
def test_texts_kept_of_a_pod_are_limited_in_length(mark: str) -> None:
    thing = objects.stored_pod("p", node="n", annotations={mark: f"1 by {HUGE}"})
    thing["metadata"]["ownerReferences"] = [{"kind": HUGE, "name": HUGE, "controller": True}]
    thing["status"]["nominatedNodeName"] = HUGE
    pod, membership = read_pod(thing)

    kept = [
        getattr(each, field.name)
        for each, kind in ((pod, Pod), (membership, Membership))
        for field in fields(kind)
    ]
    assert max(len(text) for text in kept if isinstance(text, str)) <= 400


def test_a_gang_name_that_is_too_long_is_a_problem_and_still_one_gang() -> None:
    one, same, other = (read(annotations={MARKS[0]: HUGE + end}) for end in ("a", "a", "b"))

    assert one is same
    assert one.key != other.key
    assert one.problem == "the name of its gang has over 253 characters; write a shorter one"


def test_a_name_of_the_greatest_length_is_kept() -> None:
    longest = "x" * 253
    member = read(annotations={MARKS[0]: longest, "scheduling.volcano.sh/queue-name": longest})

    assert (member.key, member.queue, member.problem) == (f"a/{longest}", longest, "")


def test_pods_of_a_controller_with_a_long_name_are_no_problem() -> None:
    owners = [{"kind": "Odd", "name": HUGE, "uid": "2", "controller": True}]

    assert (read(ownerReferences=owners).problem, read(ownerReferences=owners).named) == ("", False)
