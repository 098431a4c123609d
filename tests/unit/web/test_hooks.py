"""The responses of the hooks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.waiting import wait_for
from tests.unit.web.conftest import HookCall, World

NODES = ["node-0", "node-1"]


@pytest.fixture(autouse=True)
def nodes(world: World) -> None:
    for name in NODES:
        world.node(name)


def ask(pod: Any) -> dict[str, Any]:
    return {"Pod": pod, "Nodes": None, "NodeNames": NODES}


def bind_call(pod: Any, node: str) -> dict[str, str]:
    about = pod["metadata"]
    return {
        "PodName": about["name"],
        "PodNamespace": about["namespace"],
        "PodUID": about["uid"],
        "Node": node,
    }


def test_an_ordinary_pod_is_allowed_everywhere(world: World, call: HookCall) -> None:
    answer = call("filter", ask(world.pod("web"))).json

    assert answer["NodeNames"] == NODES
    assert answer["FailedAndUnresolvableNodes"] == {}
    assert answer["Error"] == ""


def test_a_pod_of_another_scheduler_is_allowed_everywhere_even_in_a_gang(
    world: World, call: HookCall
) -> None:
    answer = call("filter", ask(world.pod("web", "nobody", scheduler="other"))).json

    assert answer["NodeNames"] == NODES


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


def test_a_pod_of_a_missing_group_is_refused_with_that_reason(world: World, call: HookCall) -> None:
    answer = call("filter", ask(world.pod("lost-0", "lost"))).json

    assert answer["FailedAndUnresolvableNodes"]["node-0"].startswith("PodGroupMissing:")


def test_a_member_of_an_admitted_gang_is_allowed_on_one_node(world: World, call: HookCall) -> None:
    world.group("train", 2)
    pods = [world.pod(f"train-{index}", "train") for index in range(2)]

    def steered() -> Any:
        answer = call("filter", ask(pods[0])).json
        return answer if len(answer["NodeNames"]) == 1 else None

    answer = wait_for(steered, 10, "the member is steered")
    assert answer["NodeNames"][0] in NODES


def test_a_whole_gang_is_bound_and_answered_with_success(world: World, call: HookCall) -> None:
    import concurrent.futures

    world.group("train", 2)
    pods = [world.pod(f"train-{index}", "train") for index in range(2)]
    chosen = [
        wait_for(lambda pod=pod: call("filter", ask(pod)).json["NodeNames"], 10, "steered")[0]
        for pod in pods
    ]

    with concurrent.futures.ThreadPoolExecutor() as callers:
        answers = list(
            callers.map(
                lambda pair: call("bind", bind_call(*pair)).json, zip(pods, chosen, strict=True)
            )
        )

    assert answers == [{"Error": ""}, {"Error": ""}]
    assert {seen.pod.node for seen in world.api.pods.values()} == set(chosen)


def test_scores_are_integers_for_every_node(world: World, call: HookCall) -> None:
    scores = call("prioritize", ask(world.pod("web"))).json

    assert [(each["Host"], each["Score"]) for each in scores] == [("node-0", 0), ("node-1", 0)]
    assert all(isinstance(each["Score"], int) for each in scores)


def test_no_pod_is_evicted_for_a_gang_without_a_placement(world: World, call: HookCall) -> None:
    world.group("train", 2)
    victims = {"node-0": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}

    answer = call(
        "preempt",
        {"Pod": world.pod("train-0", "train"), "NodeNameToMetaVictims": victims},
    ).json

    assert answer == {"NodeNameToMetaVictims": {}}


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


def test_a_node_without_a_name_gets_200_with_an_error(world: World, call: HookCall) -> None:
    answer = call("filter", {"Pod": world.pod("web"), "Nodes": {"items": [{}]}}).json

    assert answer["Error"].startswith("not a node of kube-scheduler")


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"null", b'{"Pod": 1}'])
def test_an_invalid_body_gets_200_with_an_error(call: HookCall, verb: str, body: bytes) -> None:
    reply = call(verb, body)

    assert reply.status == 200
    assert reply.json["Error"]
    assert "%" not in reply.json["Error"]


def test_a_large_pod_is_accepted(world: World, call: HookCall) -> None:
    pod = world.pod("web")
    pod["metadata"]["annotations"]["padding"] = "x" * 1_400_000

    assert call("filter", ask(pod)).json["NodeNames"] == NODES


def test_hooks_also_answer_under_v1(world: World, call: HookCall) -> None:
    assert call("v1/filter", ask(world.pod("web"))).json["NodeNames"] == NODES
