"""The responses of the hooks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from extender.errors import OtherSchedulersPod
from tests import objects
from tests.cluster.waiting import wait_for
from tests.unit.web.conftest import HookCall, World, bind_call, node_of

NODES = ["node-0", "node-1"]


@pytest.fixture(autouse=True)
def nodes(world: World) -> None:
    for name in NODES:
        world.node(name)


def ask(pod: Any) -> dict[str, Any]:
    return {"Pod": pod, "Nodes": None, "NodeNames": NODES}


def test_an_ordinary_pod_is_allowed_everywhere(world: World, call: HookCall) -> None:
    answer = call("filter", ask(world.pod("web"))).json

    assert answer["NodeNames"] == NODES
    assert answer["FailedAndUnresolvableNodes"] == {}
    assert answer["Error"] == ""


def test_a_refusal_names_every_node_with_one_constant_reason_that_preemption_cannot_resolve(
    world: World, call: HookCall
) -> None:
    world.group("train", 200)

    answer = call("filter", ask(world.pod("train-0", "train"))).json

    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"]) == set(NODES)
    assert set(answer["FailedAndUnresolvableNodes"].values()) == {
        "NotEnoughMembers: fewer pods of the gang exist than minMember"
    }
    assert not answer["FailedNodes"]


def test_a_whole_gang_is_bound_and_answered_with_success(world: World, call: HookCall) -> None:
    world.group("train", 2)
    pods = [world.pod(f"train-{index}", "train") for index in range(2)]
    chosen = [
        wait_for(lambda pod=pod: call("filter", ask(pod)).json["NodeNames"], 10, "steered")[0]
        for pod in pods
    ]

    with ThreadPoolExecutor() as callers:
        answers = [*callers.map(lambda *it: call("bind", bind_call(*it)).json, pods, chosen)]

    assert answers == [{"Error": ""}, {"Error": ""}]
    assert {seen.pod.node for seen in world.api.pods.values()} == set(chosen)


def test_scores_are_integers_for_every_node(world: World, call: HookCall) -> None:
    scores = call("prioritize", ask(world.pod("web"))).json

    assert [(each["Host"], each["Score"]) for each in scores] == [("node-0", 0), ("node-1", 0)]
    assert all(isinstance(each["Score"], int) for each in scores)


def test_an_ordinary_preemption_passes_and_nodes_without_victims_are_dropped(
    world: World, call: HookCall
) -> None:
    victims = {
        "node-0": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1},
        "node-1": {"Pods": [], "NumPDBViolations": 0},
    }

    answer = call("preempt", {"Pod": world.pod("web"), "NodeNameToMetaVictims": victims}).json

    assert answer == {
        "NodeNameToMetaVictims": {"node-0": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    }


def test_a_call_with_whole_nodes_gets_whole_nodes(world: World, call: HookCall) -> None:
    items = [{"metadata": {"name": name}, "status": {"phase": name}} for name in NODES]

    answer = call(
        "filter", {"Pod": world.pod("web"), "Nodes": {"items": items}, "NodeNames": None}
    ).json

    assert answer["NodeNames"] is None
    assert answer["Nodes"] == {"items": items}


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"null", b'{"Pod":{},"Nodes":{"items":[{}]}}']
)
def test_an_invalid_body_gets_200_with_an_error(call: HookCall, verb: str, body: bytes) -> None:
    reply = call(verb, body)

    assert reply.status == 200
    assert reply.json["Error"]
    assert "%" not in reply.json["Error"]


def test_a_large_pod_is_accepted(world: World, call: HookCall) -> None:
    pod = world.pod("web")
    pod["metadata"]["annotations"]["padding"] = "x" * 1_400_000

    assert call("filter", ask(pod)).json["NodeNames"] == NODES


# Binds that kube-scheduler never sends: pods of others, pods without filter, unknown nodes.

NOT_OURS = str(OtherSchedulersPod())


def test_a_pod_of_another_scheduler_is_not_bound_without_filter_and_this_is_logged_once(
    world: World, call: HookCall, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = world.pod("theirs", scheduler="default-scheduler")

    for _ in range(3):
        assert call("bind", bind_call(theirs)).json == {"Error": NOT_OURS}
    assert not node_of(world, theirs)
    said = [each for each in caplog.records if "another scheduler's pod" in each.message]
    assert [each.facts["pod"] for each in said] == ["demo/theirs"]  # type: ignore[attr-defined]


def test_a_pod_of_another_profile_is_bound_after_filter_whatever_the_watch_shows(
    world: World, call: HookCall
) -> None:
    theirs = world.pod("theirs", scheduler="default-scheduler")
    call("filter", {"Pod": theirs, "NodeNames": ["node-0"]})
    theirs["metadata"]["labels"] = {"seen": "again"}
    world.manifests.put(theirs)

    assert call("bind", bind_call(theirs)).json == {"Error": ""}
    assert node_of(world, theirs) == "node-0"


def test_a_pod_of_kube_system_that_is_not_managed_is_not_bound_without_filter(
    world: World, call: HookCall
) -> None:
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
