"""`gang-extender plan` names missing kinds of objects that could change the plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cache.changes import Kind
from extender.cli.main import main
from tests import objects

ROOT = Path(__file__).parents[3]


NODE = objects.node("n0")


def group(name: str, **spec: Any) -> objects.Object:
    return objects.pod_group(name, **{"min_member": 1, **spec})


def pod(name: str, gang: str | None, cpus: int = 4, on: str = "") -> objects.Object:
    return objects.stored_pod(name, gang=gang, cpu=str(cpus), node=on)


NAMESPACE = objects.namespace("a")
QUOTA: objects.Object = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "compute", "namespace": "a"},
    "spec": {"hard": {"cpu": "1"}},
}
TRAIN = [NODE, group("train"), pod("train-0", "train")]
#: A gang of `poor` is evicted for `rich`, whose queue deserves the node.
CROWDED = [
    NODE,
    NAMESPACE,
    objects.queue("poor", reclaimable=True),
    objects.queue("rich", 3),
    group("old", queue="poor"),
    pod("old-0", "old", on="n0"),
    group("new", queue="rich"),
    pod("new-0", "new", cpus=3),
]
BUDGET = objects.budget("old", "a", {"app": "else"}, 1) | {"status": {"disruptionsAllowed": 1}}


def plan(*items: dict[str, Any], flags: tuple[str, ...] = ()) -> Result:
    text = yaml.safe_dump_all(items)
    return CliRunner().invoke(main, ["plan", "-f", "-", "-o", "json", *flags], input=text)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        pytest.param(
            TRAIN, "Namespaces (a): they set which queues their gangs use", id="namespaces"
        ),
        pytest.param(
            [*TRAIN[:1], NAMESPACE, group("train", priorityClassName="vip"), TRAIN[2]],
            "PriorityClasses (vip): PodGroups name them and count as without one",
            id="priority classes",
        ),
        pytest.param(
            CROWDED,
            "PodDisruptionBudgets: 1 pod is to be evicted, and a budget could forbid it",
            id="budgets",
        ),
        pytest.param(
            [NODE, NAMESPACE, group("big", minMember=2, minResources={"cpu": "8"})],
            "ResourceQuotas (a): gangs there create pods that a quota might not admit",
            id="quotas",
        ),
        pytest.param([NAMESPACE, *TRAIN[1:]], "Nodes: without them nothing can start", id="nodes"),
    ],
)
def test_a_missing_kind_that_could_change_the_plan_is_named(
    items: list[dict[str, Any]], words: str
) -> None:
    result = plan(*items)

    assert result.exit_code == 0, result.output
    assert f"not in the input: {words}\n" in result.stderr


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([*TRAIN, NAMESPACE], id="no evictions and no classes"),
        pytest.param([*CROWDED, BUDGET], id="budgets were given"),
        pytest.param([NODE], id="there are no gangs"),
        pytest.param(
            [
                NODE,
                NAMESPACE,
                objects.priority_class("vip", 7),
                group("train", priorityClassName="vip"),
                TRAIN[2],
            ],
            id="the class is in the input",
        ),
        pytest.param(
            [NODE, NAMESPACE, group("train", minResources={"cpu": "4"}), TRAIN[2]],
            id="its pods were admitted already",
        ),
        pytest.param(
            [
                NODE,
                NAMESPACE,
                group("big", minMember=2, minResources={"cpu": "8"}),
                QUOTA,
            ],
            id="quotas were given",
        ),
    ],
)
def test_a_missing_kind_that_cannot_change_the_plan_is_not_named(
    items: list[dict[str, Any]],
) -> None:
    assert plan(*items).stderr == ""


@pytest.mark.parametrize(
    ("flags", "queue", "reason"),
    [
        (("--default-queue", "common"), "common", "Admitted"),
        (("--namespaces-are-queues",), "a", "Admitted"),
        (("--unlisted-namespaces", "deny"), "default", "QueueNotAllowed"),
    ],
)
def test_queues_of_namespaces_are_set_by_the_flags_of_serve(
    flags: tuple[str, ...], queue: str, reason: str
) -> None:
    (gang,) = json.loads(plan(*TRAIN, NAMESPACE, flags=flags).stdout)["gangs"]

    assert (gang["queue"], gang["reason"]) == (queue, reason)


def test_the_command_that_saves_a_cluster_saves_every_kind_the_plan_reads() -> None:
    text = main.commands["plan"].help or ""
    saved = re.findall(r"kubectl get -A -o yaml > \S+[\s\\]+(nodes,\S+)", text)

    assert [set(kinds.split(",")) for kinds in saved] == [{kind.value for kind in Kind}]


def test_missing_budgets_are_named_where_they_make_gangs() -> None:
    items = [NODE, NAMESPACE, pod("single", None)]
    words = "PodDisruptionBudgets (a): they make gangs of pods without a group"

    assert plan(*items, flags=("--budgets-are-gangs",)).stderr == f"not in the input: {words}\n"
    assert plan(*items).stderr == ""
    assert plan(*items, BUDGET, flags=("--budgets-are-gangs",)).stderr == ""
