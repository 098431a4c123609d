"""Exempt namespaces: a gang there is not read as a gang."""

from __future__ import annotations

import pytest

from extender.kube.decode.pods import NO_GANG
from extender.model.gang import PodGroup
from tests import objects
from tests.unit.kube.decode.stored import read_group, read_pod

EXEMPT = frozenset({"a"})


def as_group(exempt: frozenset[str] = EXEMPT, **spec: object) -> PodGroup:
    return read_group(objects.pod_group("train", **{"min_member": 3, **spec}), exempt=exempt)


def test_a_pod_of_an_exempt_namespace_is_exempt_with_a_reason() -> None:
    found, _ = read_pod(objects.stored_pod("p"), EXEMPT)

    assert found.is_exempt
    assert found.is_unmanaged
    assert found.why_exempt == "namespace a is exempt"


def test_a_pod_of_another_namespace_is_not_exempt() -> None:
    found, member = read_pod(objects.stored_pod("p", gang="train"), frozenset({"b"}))

    assert (found.is_exempt, found.is_unmanaged, found.why_exempt) == (False, False, "")
    assert member.named


@pytest.mark.parametrize(
    "marks",
    [
        {"scheduling.k8s.io/group-name": "train"},
        {"gang-extender.io/gang": "train", "gang-extender.io/min-member": "3"},
        {"gang-extender.io/gang": "train", "gang-extender.io/min-member": "many"},
    ],
    ids=["a PodGroup", "a size", "an unreadable size"],
)
def test_a_pod_there_is_not_a_gang_member_but_keeps_the_key_of_its_group(
    marks: dict[str, str],
) -> None:
    _, member = read_pod(objects.stored_pod("p", annotations=marks), EXEMPT)

    assert member.key == "a/train"
    assert (member.named, member.min_member, member.problem) == (False, None, "")
    assert member.remark == NO_GANG


def test_kube_system_is_always_exempt() -> None:
    found, member = read_pod(objects.stored_pod("p", gang="train", namespace="kube-system"))

    assert found.why_exempt == "namespace kube-system is exempt"
    assert not member.named


def test_members_of_native_groups_stay_native() -> None:
    raw = objects.stored_pod("p")
    raw["spec"]["schedulingGroup"] = {"podGroupName": "train"}

    assert read_pod(raw, EXEMPT)[1].native


def test_a_pod_group_of_an_exempt_namespace_has_no_minimum() -> None:
    found = as_group(
        minTaskMember={"chief": 1}, minResources={"cpu": "3"}, queue="research",
        networkTopology={"mode": "hard"},
    )  # fmt: skip

    assert found.exempt
    assert (found.min_member, found.role_minima, found.min_resources) == (1, {}, None)
    assert (found.queue, found.problem, found.remark) == ("research", "", NO_GANG)


def test_a_pod_group_of_another_namespace_keeps_its_minimum() -> None:
    found = as_group(frozenset({"b"}))

    assert (found.exempt, found.min_member, found.remark) == (False, 3, "")
