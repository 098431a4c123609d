"""Annotations with the limit and guarantee of a namespace in each queue."""

from __future__ import annotations

import json

import pytest

from extender.cache.changes import Kind, Upsert
from extender.kube.decode.objects import read_shares
from extender.kube.decode.resources import resources
from extender.model.annotations import GUARANTEE, LIMIT
from extender.model.queue import Namespace, NamespaceShare
from extender.model.resources import Resources
from tests.unit.text.yaml_bombs import BOMBS

(NAMESPACES,) = (
    each.decoder for each in resources(frozenset()) if each.decoder.kind is Kind.NAMESPACE
)


def changed(name: str, annotations: dict[str, str]) -> bytes:
    """Return the watch event of a namespace with *annotations*."""
    metadata = {"name": name, "uid": f"u-{name}", "annotations": annotations}
    return json.dumps({"type": "MODIFIED", "object": {"metadata": metadata}}).encode()


def test_a_namespace_without_such_annotations_has_no_shares() -> None:
    assert read_shares("b", {"other": "x"}) == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "{research: {cpu: 8, nvidia.com/gpu: 2}}",
        '{"research": {"cpu": "8000m", "nvidia.com/gpu": 2}}',
    ],
)
def test_limits_and_guarantees_are_read_from_yaml_and_json(text: str) -> None:
    least = "{research: {cpu: 0.5, memory: 1Gi}}"
    shares, problem = read_shares("b", {LIMIT: text, GUARANTEE: least})

    assert problem == ""
    assert shares == (
        NamespaceShare(
            queue="research",
            namespace="b",
            limit=Resources({"cpu": 8000, "nvidia.com/gpu": 2}),
            guarantee=Resources({"cpu": 500, "memory": 2**30}),
        ),
    )
    assert shares[0].name == "research/b"


def test_several_queues_are_sorted_whichever_annotation_names_them() -> None:
    shares, _ = read_shares("b", {LIMIT: "{z: {cpu: 1}}", GUARANTEE: "{a: {cpu: 1}}"})

    assert [share.queue for share in shares] == ["a", "z"]


def test_a_limit_of_zero_counts_and_a_guarantee_of_zero_is_empty() -> None:
    shares, problem = read_shares("b", {LIMIT: "{q: {cpu: 0}}", GUARANTEE: "{q: {cpu: 0}}"})

    assert problem == ""
    assert (shares[0].limit, shares[0].guarantee) == (Resources({"cpu": 0}), Resources())


@pytest.mark.parametrize("text", ["", "{}", "null", "{q: }"])
def test_an_empty_annotation_limits_nothing(text: str) -> None:
    shares, problem = read_shares("b", {LIMIT: text})

    assert problem == ""
    assert not any(share.limit for share in shares)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{research: {cpu: 8", "it is neither YAML nor JSON"),
        ("research", "it is not a mapping of queues to amounts"),
        ("[research]", "it is not a mapping of queues to amounts"),
        ("{research: 8}", "the value of research is not a mapping of names to amounts"),
        ("{research: {cpu: eight}}", "'eight' is not a quantity; write it like 500m, 2"),
        ("{research: {cpu: true}}", "True is not a quantity"),
        ("{research: {cpu: [8]}}", "cpu: [8] is not a quantity"),
        ("{research: {cpu: -1}}", "cpu is -1, and amounts must not be negative"),
    ],
)  # fmt: skip
def test_an_unreadable_annotation_is_named_with_the_correction(text: str, why: str) -> None:
    shares, problem = read_shares("b", {LIMIT: text, GUARANTEE: "{q: {cpu: 1}}"})

    assert problem.startswith("the annotation gang-extender.io/at-most of namespace b cannot be")
    assert why in problem
    assert problem.endswith("; write it like '{research: {cpu: 8}}'")
    assert [share.queue for share in shares] == ["q"], "what can be read counts"


@pytest.mark.parametrize(
    "text",
    [
        *BOMBS.values(),
        "{research: {cpu: 2026-13-45}}",
        f"{{research: {{cpu: {'9' * 5000}}}}}",
        f"{{research: {{cpu: 0x{'f' * 5000}}}}}",
        f"{{research: {{{'c' * 100_000}: x}}}}",
        f"{{{'q' * 100_000}: 1}}",
    ],
    ids=lambda text: text[:12],
)
def test_an_annotation_that_expands_without_end_invalidates_only_its_namespace(text: str) -> None:
    event = NAMESPACES.line(changed("b", {LIMIT: text}))

    assert isinstance(event.change, Upsert)
    assert isinstance(event.change.item, Namespace)
    problem = event.change.item.problem
    assert problem.startswith("the annotation gang-extender.io/at-most of namespace b cannot be")
    assert len(problem) < 1000


def test_an_unreadable_namespace_does_not_keep_its_earlier_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("extender.kube.decode.objects.read_shares", fails)
    event = NAMESPACES.line(changed("b", {}))

    assert event.change == Upsert(
        Namespace(
            name="b",
            uid="u-b",
            problem="namespace b cannot be read: by zero; an administrator must correct it",
        )
    )
