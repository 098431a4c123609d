"""Objects beyond the size limits: what is read of them, and what is reported."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from extender.kube.decode import limits, objects, pods, resources
from extender.kube.decode.limits import cut_nesting
from extender.kube.decode.shapes import Shapes
from extender.model.gang import PodGroup
from extender.model.node import Node
from extender.model.pod import Requirement
from tests import objects as make
from tests.unit.kube.decode.stored import read_group, read_pod

ASKED = {"cpu": 1000, "memory": 64 << 20, "pods": 1}


def ports(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
    opened = [{"containerPort": 80, "hostPort": 1000 + each} for each in range(number)]
    return {"containers": [{"name": "main", "resources": resources, "ports": opened}]}


def containers(number: int) -> dict[str, Any]:
    main = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    return {"containers": [main, *({"name": f"c{each}"} for each in range(number - 1))]}


def tolerations(number: int, value: str = "") -> dict[str, Any]:
    return {"tolerations": [{"key": f"k{each}", "value": value} for each in range(number)]}


def selector(number: int) -> dict[str, Any]:
    return {"nodeSelector": {f"k{each}": "v" for each in range(number)}}


def term(values: list[str]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": rule}}


def preferred(number: int) -> dict[str, Any]:
    wishes = [{"weight": 1, "preference": term(["v"])} for _ in range(number)]
    rule = {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    return {"affinity": {"nodeAffinity": rule}}


LARGE = [
    pytest.param(ports(257), "256 host ports", id="ports"),
    pytest.param(containers(1001), "1000 containers", id="containers"),
    pytest.param(tolerations(257), "256 tolerations", id="tolerations"),
    pytest.param(tolerations(9, "x" * 9_999), "256 tolerations", id="long tolerations"),
    pytest.param(selector(129), "128 labels in its nodeSelector", id="selector"),
    pytest.param(required(*[term(["v"])] * 20_000), "node affinity", id="many terms"),
    pytest.param(required(term([str(each) for each in range(1001)])), "affinity", id="values"),
    pytest.param(required(term(["v" * 200_000])), "node affinity", id="long value"),
    pytest.param(preferred(1001), "node affinity", id="preferences"),
]


def spec(thing: dict[str, Any], **said: Any) -> dict[str, Any]:
    thing["spec"] |= said
    return thing


@pytest.mark.parametrize(("said", "complaint"), LARGE)
def test_a_pod_over_a_size_limit_is_invalid_with_a_reason(
    said: dict[str, Any], complaint: str
) -> None:
    pod, membership = read_pod(spec(make.stored_pod("p", gang="g"), **said))

    assert membership.problem.startswith("a pod of it has more than ")
    assert complaint in membership.problem
    assert membership.problem.endswith("; write fewer")
    assert dict(pod.requests) == ASKED
    assert (pod.shape.selector, pod.shape.affinity, pod.shape.tolerations) == ((), None, ())
    assert len(pod.shape.host_ports) <= 256


@pytest.mark.parametrize(("said", "complaint"), LARGE)
def test_a_scheduled_pod_over_a_size_limit_is_counted_in_full_and_reported(
    said: dict[str, Any], complaint: str
) -> None:
    pod, membership = read_pod(spec(make.stored_pod("p", node="n", gang="g"), **said))

    assert (membership.problem, complaint in membership.excess) == ("", True)
    assert dict(pod.requests) == ASKED


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_over_a_size_limit_does_not_invalidate_its_gang(phase: str) -> None:
    thing = spec(make.stored_pod("p", gang="g"), **ports(300)) | {"status": {"phase": phase}}

    assert read_pod(thing)[1].problem == ""


def test_pods_of_other_schedulers_over_a_size_limit_are_cut_without_a_problem() -> None:
    pod, membership = read_pod(spec(make.stored_pod("p"), schedulerName="other", **ports(300)))

    assert (membership.problem, len(pod.shape.host_ports)) == ("", 256)


def test_a_pod_at_every_size_limit_is_read_unchanged() -> None:
    thing = spec(
        make.stored_pod("p", labels={f"k{each}": "v" for each in range(256)}), **ports(256)
    )
    spec(thing, **tolerations(256), **selector(128), **required(term(["v"] * 990)))
    pod, membership = read_pod(thing)

    assert (membership.problem, membership.excess) == ("", "")
    assert (len(pod.labels), len(pod.shape.host_ports)) == (256, 256)
    assert (len(pod.shape.selector), len(pod.shape.tolerations)) == (128, 256)
    assert pod.shape.affinity is not None
    assert len(pod.shape.affinity[0].labels[0].values) == 990


def test_container_ports_are_not_limited() -> None:
    thing = make.stored_pod("p")
    thing["spec"]["containers"][0]["ports"] = [{"containerPort": 80}] * 2000

    assert read_pod(thing)[1].problem == ""


@pytest.mark.parametrize("node", ["", "n"])
@pytest.mark.parametrize("number", [257, 60_000])
def test_a_pod_with_too_many_labels_is_reported_and_scheduled_without_them(
    number: int, node: str
) -> None:
    """A refusal would cost a status write that takes the API server a second."""
    many = {f"k{each}": "v" for each in range(number)}

    pod, membership = read_pod(make.stored_pod("p", node=node, labels=many))

    assert (membership.problem, membership.excess) == ("", "more than 256 labels")
    assert len(pod.labels) == 256


@pytest.mark.parametrize("node", ["", "n"])
@pytest.mark.parametrize(("length", "kept"), [(64, 256), (65, 252), (380, 43)])
def test_a_pod_with_too_long_labels_is_reported_and_scheduled_without_them(
    length: int, kept: int, node: str
) -> None:
    """A label may have 380 characters: without a limit 130 KB of a pod would be kept."""
    long = {f"k{each:03}": "v" * (length - 4) for each in range(256)}

    pod, membership = read_pod(make.stored_pod("p", node=node, labels=long))

    excess = "more than 16,384 characters in its labels" if kept < 256 else ""
    assert (membership.problem, membership.excess) == ("", excess)
    assert dict(pod.labels) == dict(list(long.items())[:kept])


def test_too_many_labels_do_not_hide_another_problem() -> None:
    many = {f"k{each}": "v" for each in range(257)}

    _, membership = read_pod(spec(make.stored_pod("p", labels=many), **ports(300)))

    assert "256 host ports" in membership.problem


def names(number: int) -> dict[str, str]:
    return {"cpu": "1", **{f"a.io/r{each}": "1" for each in range(number)}, "nvidia.com/gpu": "8"}


def asking(amounts: dict[str, str], node: str = "") -> dict[str, Any]:
    thing = make.stored_pod("p", node=node)
    thing["spec"]["containers"][0]["resources"]["requests"] = amounts
    return thing


def test_a_pod_that_requests_thousands_of_resources_is_invalid_unless_it_runs() -> None:
    pending, of_pending = read_pod(asking(names(8000)))
    running, of_running = read_pod(asking(names(8000), node="n"))

    assert "more than 64 kinds of resources" in of_pending.problem
    assert (len(pending.requests), pending.requests.amount("cpu")) == (64, 1000)
    assert (of_running.problem, running.requests.amount("nvidia.com/gpu")) == ("", 8)
    assert of_running.excess == "more than 64 kinds of resources"


def test_pods_over_the_same_size_limit_share_one_membership() -> None:
    one, other = (read_pod(spec(make.stored_pod(n, gang="g"), **ports(300))) for n in ("p", "q"))

    assert one[1] is other[1]
    assert one[0].shape is other[0].shape


@pytest.mark.parametrize(
    ("said", "excess"),
    [
        ({"min_member": 1_000_000_000}, "a minimum of 1,000,000,000 members"),
        ({"queue": "q" * 254}, "a queue name of 254 characters"),
        ({"priorityClassName": "p" * 300}, "a priority class name of 300 characters"),
        ({"min_member": limits.MOST_MEMBERS, "queue": "q" * 253}, ""),
    ],
)
def test_a_pod_group_beyond_the_limits_is_read_and_reported(
    said: dict[str, Any], excess: str
) -> None:
    read = read_group(make.pod_group("train", **{"min_member": 2, **said}))

    assert (read.excess, read.problem) == (excess, "")


@pytest.mark.parametrize(
    ("marks", "excess"),
    [
        ({"gang-extender.io/min-member": "999999999"}, "a minimum of 999,999,999 members"),
        ({"scheduling.volcano.sh/queue-name": "q" * 254}, "a queue name of 254 characters"),
        ({"gang-extender.io/gang": "g" * 254}, "a gang name of 254 characters"),
        ({"gang-extender.io/gang": "g" * 253, "gang-extender.io/min-member": "4"}, ""),
    ],
)
def test_a_pod_with_annotations_beyond_the_limits_is_read_and_reported(
    marks: dict[str, str], excess: str
) -> None:
    assert read_pod(make.stored_pod("p", annotations=marks))[1].excess == excess


def test_a_pod_group_with_too_many_roles_or_resources_is_invalid_with_a_reason() -> None:
    def group(**said: Any) -> PodGroup:
        return read_group(make.pod_group("train", min_member=2, **said))

    roles = group(minTaskMember={f"r{each}": 1 for each in range(257)})
    amounts = group(minResources=names(64))
    limits = group(minResources={f"limits.a.io/{each}": "1" for each in range(65)})
    long = group(minResources={"x" * 100_000: "1"}, queue="q" * 100_000)

    assert "it has more than 256 roles in minTaskMember; write fewer" in roles.problem
    for each in (amounts, limits):
        assert "more than 64 kinds of resources in minResources" in each.problem
        assert each.excess
    assert amounts.min_resources is not None
    assert (len(amounts.min_resources), len(limits.min_limits)) == (64, 64)
    assert "whose name has over 317 characters" in long.problem
    assert len(long.queue) < 253
    assert group(minTaskMember={f"r{each}": 1 for each in range(256)}).problem == ""
    assert group(minResources=names(62)).problem == ""


def test_a_large_selector_of_a_disruption_budget_is_cut() -> None:
    def budget(**said: Any) -> tuple[tuple[Requirement, ...], str]:
        thing = {"metadata": {"name": "b", "namespace": "a"}, "spec": {"selector": said}}
        read = objects.to_budget(msgspec.convert(thing, objects.RawBudget))
        return read.selector, read.excess

    many = {f"k{each:05}": "v" for each in range(10_000)}
    wide = [{"key": "k", "operator": "In", "values": [str(each) for each in range(999)]}] * 9
    by_labels, excess = budget(matchLabels=many)
    by_values, also = budget(matchExpressions=wide)

    assert (len(by_labels), by_labels[0]) == (128, Requirement("k00000", "In", ("v",)))
    assert len(by_values) == 1
    assert excess == also == "more labels, expressions and values in its selector than are read"
    assert budget(matchLabels={"a": "b"})[1] == ""


def test_a_node_offers_at_most_64_kinds_of_resources_built_in_ones_first() -> None:
    thing = make.node("n", ready=True)
    thing["status"]["allocatable"] |= {f"a.io/r{each}": "1" for each in range(8000)}
    read = resources.nodes().item(json.dumps(thing).encode())

    assert isinstance(read, Node)
    assert len(read.allocatable) == 64
    assert {"cpu", "memory", "pods"} <= set(read.allocatable)


def test_cached_shapes_are_limited_by_size_and_not_by_number() -> None:
    shapes = Shapes(max_weight=20_000)
    for number in range(200):
        values = [f"{number}-{each}" for each in range(900)]
        thing = spec(make.stored_pod("p"), **required(term(values)))
        shapes.of(pods.pod(json.dumps(thing).encode()), ours=True)

        assert len(shapes) <= 20_000 / 900


def test_the_size_of_the_json_counts_for_a_cached_shape() -> None:
    shapes = Shapes(max_weight=2_000)
    for number in range(100):
        thing = make.stored_pod("p")
        main = {"name": "m", "resources": {"requests": {"cpu": f"{number + 1}m"}}}
        thing["spec"]["containers"] = [main] * 90
        shapes.of(pods.pod(json.dumps(thing).encode()), ours=True)

        assert len(shapes) <= 2_000 / 90


def test_shapes_over_a_size_limit_are_cached_separately_and_few_of_them() -> None:
    shapes = Shapes(max_weight=2_000)
    small = pods.pod(json.dumps(make.stored_pod("p")).encode())
    first, _ = shapes.of(small, ours=True)
    for number in range(100):
        large = asking({**names(200), "cpu": str(number + 1)}, node="n")
        raw = pods.pod(json.dumps(large).encode())

        assert shapes.of(raw, ours=True)[0] is shapes.of(raw, ours=True)[0]
    assert len(shapes) <= 16 + 1
    assert shapes.of(small, ours=True)[0] is first


def test_many_containers_with_equal_requests_are_within_the_limits() -> None:
    thing = make.stored_pod("p")
    thing["spec"]["containers"] = [
        {"name": f"c{each}", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
        for each in range(300)
    ]

    assert read_pod(thing)[1].excess == ""


TEXTS = st.text(alphabet='[]{}"\\\n\u0000ab,:', max_size=8)
THINGS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


def cut(thing: Any, deepest: int) -> Any:
    """Return *thing* cut at *deepest*, by the simple rule."""
    if not isinstance(thing, list | dict):
        return thing
    if deepest == 0:
        return None
    if isinstance(thing, list):
        return [cut(each, deepest - 1) for each in thing]
    return {key: cut(each, deepest - 1) for key, each in thing.items()}


def deepest_of(thing: Any) -> int:
    if not isinstance(thing, list | dict):
        return 0
    inner = thing.values() if isinstance(thing, dict) else thing
    return 1 + max(map(deepest_of, inner), default=0)


@given(THINGS, st.integers(0, 5), st.sampled_from([None, 1]))
def test_values_that_are_too_deep_become_null_and_the_rest_is_unchanged(
    thing: Any, deepest: int, indent: int | None
) -> None:
    left = cut_nesting(json.dumps(thing, indent=indent).encode(), deepest)

    assert (left is None) == (deepest_of(thing) <= deepest)
    assert left is None or json.loads(left) == cut(thing, deepest)


@given(st.binary(max_size=60) | st.text(alphabet='[]{}"\\ab').map(str.encode), st.integers(0, 3))
def test_any_input_comes_back_within_the_depth_limit(data: bytes, deepest: int) -> None:
    left = cut_nesting(data, deepest)
    if left is not None:
        assert cut_nesting(left, deepest) in (None, left)


def test_ten_thousand_levels_are_cut() -> None:
    data = b'{"a":' * 10_000 + b"1" + b"}" * 10_000

    assert cut_nesting(data, 2) == b'{"a":{"a":null}}'


@given(THINGS, st.integers(0, 5), st.integers(1, 9))
def test_the_block_size_does_not_change_the_result(thing: Any, deepest: int, size: int) -> None:
    data = json.dumps(thing).encode()

    assert cut_nesting(data, deepest, size) == cut_nesting(data, deepest)


def test_invalid_json_stays_invalid() -> None:
    for data in (b'{"a' + b"[" * 100, b"[" * 100, b"]" * 100 + b"[" * 300, b""):
        left = cut_nesting(data, 3)
        with pytest.raises(ValueError, match=r"\w"):
            json.loads(left if left is not None else data)
