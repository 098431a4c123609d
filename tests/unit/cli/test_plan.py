"""`gang-extender plan`: a plan from saved objects; invalid input gives one line and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from tests import objects
from tests.unit.text.yaml_bombs import BOMBS

POLICY = Path(__file__).parents[3] / "manifests" / "examples" / "namespace-policy"
EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "what-if.yaml"


def plan(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=stdin)


def document(result: Result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_json_lists_admitted_gangs_and_why_the_others_wait() -> None:
    found = document(plan("-f", str(EXAMPLE), "-o", "json"))

    train, report = found["gangs"]
    assert (train["namespace"], train["name"], train["queue"]) == ("lab", "train", "research")
    assert (train["verdict"], train["reason"]) == ("admitted", "Admitted")
    assert set(train["placements"]) == {"train-0", "train-1", "train-2"}
    assert set(found["binds"]) == {f"lab/train-{index}" for index in range(3)}
    assert (report["verdict"], report["placements"]) == ("waiting", {})
    assert found["evictions"] == []
    deserved = {queue["name"]: queue["deserved"] for queue in found["queues"]}
    assert deserved["research"]["cpu"] == "12"
    assert deserved["nightly"]["cpu"] == "4"


def test_queues_share_unused_capacity_as_the_manual_says(tmp_path: Path) -> None:
    things = yaml.safe_load(EXAMPLE.read_text())["items"]
    (train,) = [thing for thing in things if thing["metadata"]["name"] == "train"]
    train["spec"]["minMember"] = 2
    fewer = tmp_path / "fewer.yaml"
    kept = [thing for thing in things if thing["metadata"]["name"] != "train-2"]
    fewer.write_text(yaml.safe_dump({"kind": "List", "items": kept}))
    found = document(plan("-f", str(fewer), "-o", "json"))

    deserved = {queue["name"]: queue["deserved"] for queue in found["queues"]}
    assert (deserved["research"]["cpu"], deserved["nightly"]["cpu"]) == ("8", "8")


def test_several_files_and_stdin_are_one_cluster(tmp_path: Path) -> None:
    items = yaml.safe_load(EXAMPLE.read_text())["items"]
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"kind": "List", "items": items[:2]}))
    rest = yaml.safe_dump_all(items[2:])

    split = document(plan("-f", str(nodes), "-f", "-", "-o", "json", stdin=rest))

    assert split == document(plan("-f", str(EXAMPLE), "-o", "json"))


NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: %s}}"
KIND = "{apiVersion: v1, kind: %s"
QUEUES = """
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}, spec: {parent: b}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: b}, spec: {parent: a}}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(": : [", ["neither YAML nor JSON"], id="not YAML"),
        pytest.param("hello: world", ["not a Kubernetes object"], id="no object"),
        pytest.param(NODE % "{memory: 1.5.3Gi}", ["Node n1", "memory", "1.5.3Gi"], id="quantity"),
        *(
            pytest.param(text, ["neither YAML nor JSON"], id=name)
            for name, text in BOMBS.items()
            if name != "stairs"
        ),
        pytest.param(
            NODE % f"{{cpu: 0x{'f' * 5000}}}", ["Node n1", "cpu", "thousands"], id="a long number"
        ),
        pytest.param(NODE % "{cpu: [1]}", ["Node n1", "cpu", "[1]"], id="a list for an amount"),
        pytest.param(
            f"{KIND % 'Pod'}, metadata: {{name: p}}, spec: {{priority: 0x{'f' * 5000}}}}}",
            ["Pod p"],
            id="a priority of a thousand digits",
        ),
        pytest.param("[1, 2]", ["not a Kubernetes object"], id="a list of numbers"),
        pytest.param('{"kind": "Pod"', ["neither YAML nor JSON"], id="half of JSON"),
        pytest.param(f"{KIND % 'Pod'}, metadata: [1]}}", ["Pod", "metadata"], id="odd metadata"),
        pytest.param(f"{KIND % 'Pod'}, metadata: {{}}}}", ["metadata.name"], id="no name"),
        pytest.param(NODE % "[1]", ["Node n1", "status.allocatable"], id="a list for amounts"),
        pytest.param(
            f"{KIND % 'Node'}, metadata: {{name: n1}}, status: 3}}", ["Node n1", "status"], id="3"
        ),
        pytest.param(
            "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: top},"
            " value: high}",
            ["PriorityClass top", "value", "int"],
            id="a word for a number",
        ),
        pytest.param(
            "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q},"
            " spec: {weight: heavy}}",
            ["Queue q", "spec.weight", "int"],
            id="a word for a weight",
        ),
    ],
)
def test_a_bad_object_is_named_with_file_and_field(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)

    result = plan("-f", str(file))

    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert all(word in result.output for word in ["bad.yaml", *words])


def test_invalid_queues_are_named_and_planned_as_in_a_live_cluster(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)

    result = plan("-f", str(file), "-o", "json")

    said = json.loads(result.stdout)["findings"]
    assert [(each["kind"], each["name"], each["reason"]) for each in said] == [
        ("Queue", "a", "ParentCycle"),
        ("Queue", "b", "ParentCycle"),
    ]
    assert "ParentCycle: queue a is its own ancestor (a below b below a)" in result.stderr


def test_all_files_of_a_directory_are_read_together(tmp_path: Path) -> None:
    output = CliRunner().invoke(main, ["plan", "-f", str(POLICY), "-o", "json"]).stdout

    assert [share["namespace"] for share in json.loads(output)["shares"]] == ["team-b"]
    empty = CliRunner().invoke(main, ["plan", "-f", str(tmp_path)])
    assert empty.exit_code == 2
    assert "has no file that ends in .json, .yaml, .yml" in empty.stderr


def test_only_nodes_that_match_the_selector_are_planned_and_counted() -> None:
    nodes = [objects.node(name, labels={"pool": name}) for name in ("a", "b", "c")]
    saved = yaml.safe_dump_all(nodes)
    several = ("--node-selector", "pool:a", "--node-selector", "pool:b")

    assert document(plan("-f", "-", "-o", "json", *several, stdin=saved))["idle"]["cpu"] == "8"
    assert "on 2 nodes:" in plan("-f", "-", *several, stdin=saved).output


def test_a_budget_makes_a_gang_of_pods_without_a_podgroup() -> None:
    app = {"app": "web"}
    pods = [objects.stored(each) for each in objects.pods(2, "web", labels=app)]
    saved = yaml.safe_dump_all([objects.node("n0"), objects.budget("web", "a", app, 3), *pods])

    (gang,) = document(plan("-f", "-", "-o", "json", "--budgets-are-gangs", stdin=saved))["gangs"]

    assert (gang["name"], gang["reason"]) == ("poddisruptionbudget:web", "NotEnoughMembers")
    assert "minAvailable of PodDisruptionBudget web" in gang["message"]
