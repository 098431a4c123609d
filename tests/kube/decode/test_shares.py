"""What annotations say that a namespace may have of queues."""

from __future__ import annotations

import pytest

from extender.kube.decode.shares import read_shares
from extender.model.queue import AT_LEAST, AT_MOST, Share
from extender.model.resources import Resources


def test_a_namespace_without_such_annotations_has_no_shares() -> None:
    assert read_shares("b", {"other": "x"}) == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "{research: {cpu: 8, nvidia.com/gpu: 2}}",
        '{"research": {"cpu": "8000m", "nvidia.com/gpu": 2}}',
    ],
)
def test_at_most_and_at_least_are_read_from_yaml_and_from_json(text: str) -> None:
    least = "{research: {cpu: 0.5, memory: 1Gi}}"
    shares, problem = read_shares("b", {AT_MOST: text, AT_LEAST: least})

    assert problem == ""
    assert shares == (
        Share(
            queue="research",
            namespace="b",
            most=Resources({"cpu": 8000, "nvidia.com/gpu": 2}),
            least=Resources({"cpu": 500, "memory": 2**30}),
        ),
    )
    assert shares[0].name == "research/b"


def test_several_queues_are_sorted_whichever_annotation_names_them() -> None:
    shares, _ = read_shares("b", {AT_MOST: "{z: {cpu: 1}}", AT_LEAST: "{a: {cpu: 1}}"})

    assert [share.queue for share in shares] == ["a", "z"]


def test_at_most_nothing_is_nothing_and_at_least_nothing_says_nothing() -> None:
    shares, problem = read_shares("b", {AT_MOST: "{q: {cpu: 0}}", AT_LEAST: "{q: {cpu: 0}}"})

    assert problem == ""
    assert (shares[0].most, shares[0].least) == (Resources({"cpu": 0}), Resources())


@pytest.mark.parametrize("text", ["", "{}", "null", "{q: }"])
def test_an_empty_annotation_limits_nothing(text: str) -> None:
    shares, problem = read_shares("b", {AT_MOST: text})

    assert problem == ""
    assert not any(share.most for share in shares)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{research: {cpu: 8", "it is neither YAML nor JSON"),
        ("research", "it is no mapping of queues to amounts"),
        ("[research]", "it is no mapping of queues to amounts"),
        ("{research: 8}", "what it says of research is no mapping of names to amounts"),
        ("{research: {cpu: eight}}", "'eight' is not a quantity; write it like 500m, 2"),
        ("{research: {cpu: true}}", "True is not a quantity"),
        ("{research: {cpu: [8]}}", "cpu: [8] is not a quantity"),
        ("{research: {cpu: -1}}", "cpu is -1, and nothing can be less than 0"),
    ],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_is_named_with_the_mend(text: str, why: str) -> None:
    shares, problem = read_shares("b", {AT_MOST: text, AT_LEAST: "{q: {cpu: 1}}"})

    assert problem.startswith("the annotation gang-extender.io/at-most of namespace b cannot be")
    assert why in problem
    assert problem.endswith("; write it like '{research: {cpu: 8}}'")
    assert [share.queue for share in shares] == ["q"], "what can be read counts"
