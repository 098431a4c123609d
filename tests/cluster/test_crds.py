"""The CRDs on the real API server: validation, printed columns, and an upgrade."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import objects

from .api import ApiError, Object
from .control_plane import MANIFESTS, ControlPlane
from .waiting import wait_for

QUEUES = "queues.scheduling.volcano.sh/v1beta1"
FILES = sorted((MANIFESTS / "crds").glob("*.sh.yaml"))
TEAM = "crds"


@pytest.fixture(autouse=True, scope="module")
def team(lab: ControlPlane) -> None:
    lab.api.create(objects.namespace(TEAM), objects.node("n1", cpu="4"))


def group(name: str, **spec: Any) -> Object:
    return objects.pod_group(name, TEAM, **{"min_member": 1, **spec})


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        (group("bad", min_member=-1), "spec.minMember"),
        (group("bad", minTaskMember={"worker": -1}), "spec.minTaskMember.worker"),
        (group("bad", minResources={"cpu": "two"}), "spec.minResources.cpu"),
        (objects.queue("bad", weight=0), "spec.weight"),
        (objects.queue("bad", capability={"cpu": "1,5"}), "spec.capability.cpu"),
        (objects.queue("bad", deserved={"memory": "1 Gi"}), "spec.deserved.memory"),
        (
            objects.queue("bad", guarantee={"resource": {"nvidia.com/gpu": "many"}}),
            "spec.guarantee.resource.nvidia.com/gpu",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_invalid_field_is_refused_by_name(lab: ControlPlane, thing: Object, field: str) -> None:
    with pytest.raises(ApiError) as refused:
        lab.api.create(thing)

    assert field in str(refused.value)


def test_objects_valid_in_volcano_are_accepted(lab: ControlPlane) -> None:
    affinity = {
        "nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["big"]},
        "nodeGroupAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["old"]},
    }
    amounts = {"cpu": 2, "memory": "1.5Gi", "nvidia.com/gpu": "1e1", "pods": "-1"}
    lab.api.create(
        group(
            "volcano",
            min_member=0,
            minTaskMember={"ps": 0, "worker": 9},
            minResources=amounts,
            networkTopology={"mode": "soft", "highestTierAllowed": 2},
        ),
        objects.queue("volcano", capability=amounts, deserved=amounts, affinity=affinity),
    )

    stored = lab.api.get(objects.POD_GROUPS, "volcano", TEAM)
    assert stored["spec"]["networkTopology"]["highestTierAllowed"] == 2
    assert lab.api.get(QUEUES, "volcano")["spec"]["affinity"] == affinity


def test_deeply_nested_fields_are_pruned(lab: ControlPlane) -> None:
    deep: object = 1
    for _ in range(200):
        deep = {"a": deep}
    lab.api.create(
        group("deep", networkTopology={"mode": "hard", "a": deep}, subGroupPolicy=[{"a": deep}]),
        objects.queue("deep", affinity={"a": deep}, extendClusters=[{"a": deep}]),
    )

    stored = lab.api.get(objects.POD_GROUPS, "deep", TEAM)["spec"]
    assert (stored["networkTopology"], stored["subGroupPolicy"]) == ({"mode": "hard"}, [{}])
    stored = lab.api.get(QUEUES, "deep")["spec"]
    assert (stored["affinity"], stored["extendClusters"]) == ({}, [{}])


def rows(lab: ControlPlane, what: str, name: str) -> dict[str, str]:
    """Return what `kubectl get` shows of one object, by column."""
    head, row = lab.kubectl("get", what, name, "-n", TEAM, "-o", "wide").splitlines()
    starts = [head.index(word) for word in head.split()]
    ends = [*starts[1:], None]
    return {
        word: row[start:end].strip()
        for word, start, end in zip(head.split(), starts, ends, strict=True)
    }


def test_kubectl_shows_phase_reason_and_usage(lab: ControlPlane) -> None:
    lab.api.create(objects.queue("team", weight=3))
    lab.api.create(group("huge", min_member=2, queue="team"))
    lab.api.create(*objects.pods(2, "huge", TEAM, gang="huge", cpu="64"))
    with lab.extender() as extender, lab.scheduler(lab.scheduler_config(extender)):

        def shows_reason() -> bool:
            shown = rows(lab, "podgroup", "huge")
            assert shown["REASON"] == "ExceedsCluster", shown
            assert (shown["MINMEMBER"], shown["QUEUE"], shown["RUNNING"]) == ("2", "team", "0")
            assert shown["STATUS"] in ("Pending", "Inqueue"), shown
            assert shown["MESSAGE"].startswith("needs 2 x 64 cpu"), shown
            return bool(shown["AGE"])

        def shows_usage() -> bool:
            shown = rows(lab, "queue", "team")
            assert (shown["WEIGHT"], shown["STATE"]) == ("3", "Open"), shown
            assert (shown["SHARE"], shown["RUNNING"]) == ("0.0000", "0"), shown
            assert shown["DESERVED-CPU"], shown
            return bool(shown["AGE"])

        wait_for(shows_reason, 60, "the group is shown with its reason", every_s=0.5)
        wait_for(shows_usage, 60, "the queue is shown with its usage", every_s=0.5)


def test_queue_without_its_parent_shows_the_reason(lab: ControlPlane) -> None:
    lab.api.create(objects.queue("orphan", parent="missing"))
    with lab.extender():
        wait_for(
            lambda: rows(lab, "queue", "orphan")["REASON"] not in ("", "<none>"),
            60,
            "the queue is shown with its finding",
            every_s=0.5,
        )


def test_kubectl_explain_describes_fields(lab: ControlPlane) -> None:
    kind = f"--api-version={QUEUES.partition('.')[2]}"
    words = {
        "podgroup.spec.minMember": "must be able to start together",
        "podgroup.status.conditions.reason": "in one word",
        "queue.spec.guarantee.lend": "may borrow the unused part",
        "queue.status.deserved": "given the capacity and the demand",
    }

    def unexplained() -> list[str]:
        texts = {field: " ".join(lab.kubectl("explain", field, kind).split()) for field in words}
        return [field for field, what in words.items() if what not in texts[field]]

    # The API server rebuilds its OpenAPI document after every change to a CRD, and kubectl finds
    # none meanwhile.
    wait_for(lambda: not unexplained(), 30, "kubectl explains them", every_s=0.5)


def loosened(schema: Any) -> Any:
    """Return *schema* without checks of values, as in earlier CRDs."""
    if isinstance(schema, list):
        return [loosened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    checks = ("pattern", "minimum", "maximum")
    return {
        key: loosened(each)
        for key, each in schema.items()
        if key not in checks or isinstance(each, dict)
    }


def former(file: Path) -> Object:
    made: Object = copy.deepcopy(yaml.safe_load(file.read_text()))
    for version in made["spec"]["versions"]:
        version["schema"] = loosened(version["schema"])
    return made


def test_objects_of_earlier_crds_can_be_updated_under_stricter_ones(lab: ControlPlane) -> None:
    lab.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(map(former, FILES)))
    wrong = group("old", minTaskMember={"worker": -1}, minResources={"cpu": "two"})
    wait_for(lambda: lab.api.create(wrong), 30, "the former CRDs are in force")
    lab.api.create(*objects.pods(1, "old", TEAM, gang="old"))

    lab.kubectl("apply", *(f"--filename={file}" for file in FILES))
    probe = group("probe", minResources={"cpu": "two"})

    def is_strict() -> bool:
        try:
            lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(probe))
        except AssertionError as refused:
            return "spec.minResources.cpu" in str(refused)
        return False

    wait_for(is_strict, 30, "the new CRDs are in force", every_s=0.2)
    at = ("podgroup", "old", "-n", TEAM)
    lab.kubectl("label", *at, "touched=yes")
    with lab.extender() as extender:
        wait_for(
            lambda: lab.api.get(objects.POD_GROUPS, "old", TEAM).get("status", {}).get("phase"),
            60,
            "its status is written",
        )
        assert "status not written" not in extender.log_since_start()
    with pytest.raises(AssertionError, match=r"spec\.minResources\.cpu"):
        lab.kubectl("patch", *at, "--type=merge", "-p", '{"spec":{"minResources":{"cpu":"three"}}}')
    fix = '{"spec":{"minResources":{"cpu":"3"},"minTaskMember":{"worker":1}}}'
    lab.kubectl("patch", *at, "--type=merge", "-p", fix)
