"""Reading and writing the leader label at the API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from extender.errors import ApiError, NotLeader
from extender.kube.client import MERGE, ApiClient
from extender.kube.write.leader import ApiLeaderLabels
from extender.leader.fencing import Term
from extender.ports import LabelledPod, LabelledPods
from extender.settings import Settings
from tests.unit.kube.api_double import Answer, ApiDouble

PODS = "/api/v1/namespaces/gang-system/pods"
LIST = f"GET {PODS}?labelSelector=gang-extender.io%2Fleader%3Dtrue"
LEASE = "gang-system/gang-extender"


def labelled_pod(name: str, by: str | None = LEASE) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "resourceVersion": f"of-{name}"}
    if by is not None:
        about["annotations"] = {"gang-extender.io/leads-by": by, "other": "thing"}
    return {"metadata": about}


class LabelScene:
    def __init__(self, *pods: dict[str, Any], answers: dict[str, list[Answer]] | None = None):
        self.api = ApiDouble({LIST: [(200, {"items": list(pods)})], **(answers or {})})
        self.now = 0.0
        self.term = Term(lambda: self.now)
        self.term.begin(until=10.0)
        settings = Settings(
            lease="own", pod_name="us", pod_namespace="gang-system", lease_namespace="gang-system"
        )
        self.labels = ApiLeaderLabels(cast(ApiClient, self.api), settings, self.term)


def test_no_pod_carries_the_label_at_first() -> None:
    assert LabelScene().labels.read() == LabelledPods()


def test_pods_labelled_for_our_lease_or_by_hand_are_found() -> None:
    found = LabelScene(
        labelled_pod("us"), labelled_pod("old"), labelled_pod("by-hand", by=None)
    ).labels.read()

    others = (LabelledPod("old", "of-old"), LabelledPod("by-hand", "of-by-hand"))
    assert found == LabelledPods(is_ours=True, others=others)


def test_the_leader_of_another_lease_in_our_namespace_keeps_its_label() -> None:
    assert (
        LabelScene(labelled_pod("theirs", by="gang-system/other")).labels.read() == LabelledPods()
    )


def test_our_pod_labelled_by_hand_does_not_count_as_labelled_by_us() -> None:
    assert not LabelScene(labelled_pod("us", by=None)).labels.read().is_ours


def test_our_pod_gets_the_label_and_the_name_of_the_lease() -> None:
    scene = LabelScene()
    scene.labels.put_on(scene.term.current())

    (asked,) = scene.api.asked
    assert (asked.method, asked.path, asked.content_type) == ("PATCH", f"{PODS}/us/status", MERGE)
    assert asked.body["metadata"] == {
        "labels": {"gang-extender.io/leader": "true"},
        "annotations": {"gang-extender.io/leads-by": LEASE},
    }


def test_the_label_is_removed_from_another_pod_only_at_the_version_that_was_read() -> None:
    scene = LabelScene()
    scene.labels.take_off(LabelledPod("old", "7"), scene.term.current())

    (asked,) = scene.api.asked
    assert asked.path == f"{PODS}/old/status"
    assert asked.body["metadata"] == {
        "labels": {"gang-extender.io/leader": None},
        "annotations": {"gang-extender.io/leads-by": None},
        "resourceVersion": "7",
    }


@pytest.mark.parametrize("write", ["put_on", "withdraw"])
def test_no_label_is_written_after_the_term_it_was_decided_in(write: str) -> None:
    scene = LabelScene()
    number = scene.term.current()
    scene.now = 10.0
    scene.term.begin(until=20.0)

    with pytest.raises(NotLeader):
        getattr(scene.labels, write)(number)
    with pytest.raises(NotLeader):
        scene.labels.take_off(LabelledPod("old", "7"), number)
    assert scene.api.asked == []


def test_a_response_that_is_no_pod_list_is_an_error() -> None:
    with pytest.raises(ApiError, match="not a list of pods"):
        LabelScene(answers={LIST: [(200, {"kind": "Status"})]}).labels.read()
