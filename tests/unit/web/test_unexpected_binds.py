"""Binds that kube-scheduler never sends: pods of others, pods without filter, unknown nodes."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import OtherSchedulersPod
from tests import objects
from tests.unit.web.conftest import HookCall, World
from tests.unit.web.test_exempt import bind_call, node_of

NOT_OURS = str(OtherSchedulersPod())


def test_a_pod_of_another_scheduler_is_not_bound_without_filter_and_this_is_logged_once(
    world: World, call: HookCall, caplog: pytest.LogCaptureFixture
) -> None:
    world.node("node-0")
    theirs = world.pod("theirs", scheduler="default-scheduler")

    for _ in range(3):
        assert call("bind", bind_call(theirs)).json == {"Error": NOT_OURS}
    assert not node_of(world, theirs)
    said = [each for each in caplog.records if "another scheduler's pod" in each.message]
    assert [each.facts["pod"] for each in said] == ["demo/theirs"]  # type: ignore[attr-defined]


def test_a_pod_of_another_profile_is_bound_after_filter_whatever_the_watch_shows(
    world: World, call: HookCall
) -> None:
    world.node("node-0")
    theirs = world.pod("theirs", scheduler="default-scheduler")
    call("filter", {"Pod": theirs, "NodeNames": ["node-0"]})
    theirs["metadata"]["labels"] = {"seen": "again"}
    world.manifests.put(theirs)

    assert call("bind", bind_call(theirs)).json == {"Error": ""}
    assert node_of(world, theirs) == "node-0"


def test_a_pod_of_kube_system_that_is_not_managed_is_not_bound_without_filter(
    world: World, call: HookCall
) -> None:
    world.node("node-0")
    dns = _in_kube_system(world, "default-scheduler")

    assert call("bind", bind_call(dns)).json == {"Error": NOT_OURS}
    assert not node_of(world, dns)


@pytest.mark.parametrize("scheduler", ["gang-scheduler", "default-scheduler"])
def test_no_pod_is_bound_to_a_node_that_does_not_exist(
    world: World, call: HookCall, scheduler: str
) -> None:
    dns = _in_kube_system(world, scheduler)
    call("filter", {"Pod": dns, "NodeNames": ["no-such-node"]})

    error = call("bind", bind_call(dns, node="no-such-node")).json["Error"]
    assert error == "the chosen node does not exist"
    assert not node_of(world, dns)


@pytest.mark.parametrize("gang", [None, "train"])
def test_a_managed_pod_is_not_bound_before_it_passed_filter(
    world: World, call: HookCall, gang: str | None
) -> None:
    world.node("node-0")
    if gang:
        world.group(gang, 1)
    ours = world.pod("ours", gang)

    assert "filter has not admitted the pod here" in call("bind", bind_call(ours)).json["Error"]
    assert not node_of(world, ours)
    call("filter", {"Pod": ours, "NodeNames": ["node-0"]})
    assert call("bind", bind_call(ours)).json == {"Error": ""}


def _in_kube_system(world: World, scheduler: str) -> Any:
    return world.manifests.create(objects.pod("dns", "kube-system", scheduler=scheduler))


@pytest.mark.parametrize("part", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_bind_with_invalid_names_sends_no_request(call: HookCall, part: str) -> None:
    names = {"PodName": "p", "PodNamespace": "a", "PodUID": "u", "Node": "n"}

    error = call("bind", {**names, part: "x" * 254}).json["Error"]
    assert error == "a name or uid is longer than 253 characters"


@pytest.mark.parametrize("part", ["name", "namespace", "uid"])
def test_names_and_uids_beyond_their_limit_are_not_stored(
    world: World, call: HookCall, part: str
) -> None:
    theirs = objects.pod("theirs", scheduler="default-scheduler")
    theirs["metadata"] |= {"uid": "u", part: "x" * 254}

    answer = call("filter", {"Pod": theirs, "NodeNames": ["node-0"]}).json
    assert answer["Error"] == "a name or uid is longer than 253 characters"
    assert not len(world.runtime.core.ledger.filter_results)
