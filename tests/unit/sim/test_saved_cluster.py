"""`snapshot:` of a scenario: nodes and queues of an existing cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.kube.encode import listing
from extender.model.queue import Queue
from tests import objects
from tests.scene import gang, node_table, snapshot

SCENARIO = """
span: 10m
snapshot: saved.json
arrivals:
- {queue: red, name: r, size: 2, each: {cpu: 3}, lasts: 1m}
"""


def node(name: str, cpus: object = 4, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    return objects.node(name, cpu=str(cpus), ready=ready, **spec)


SAVED = [
    node("a"),
    node("b", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
    node("c", unschedulable=True),
    node("d", ready=False),
    node("e", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
    objects.queue("red", weight=3),
    objects.queue("blue", weight=1),
]


def simulate(folder: Path, saved: object, scenario: str = SCENARIO, *more: str) -> Result:
    text = saved if isinstance(saved, str) else json.dumps(_list(saved))
    (folder / "saved.json").write_text(text)
    (folder / "day.yaml").write_text(scenario)
    return CliRunner().invoke(main, ["simulate", "-f", str(folder / "day.yaml"), *more])


def _list(items: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_objects_saved_by_kubectl_are_simulated(tmp_path: Path, write: Any) -> None:
    told = simulate(tmp_path, write(_list(SAVED)))

    assert told.exit_code == 0, told.output
    # Two pods of three cpus: one on each node, the tainted one too.
    assert "10m 00s of 2 nodes and 1 gang" in told.stdout
    assert re.search(r"gangs that ended +1\n", told.stdout)
    said = "saved.json: 2 nodes and 2 queues; left out: 3 nodes cordoned or of the control plane\n"
    assert told.stderr.endswith(said)
    assert told.stderr.count("\n") == 1


def test_the_snapshot_of_the_operations_port_is_simulated(tmp_path: Path) -> None:
    seen = snapshot(gang("x", 2), nodes=node_table([8, 8]), queues=[Queue(name="red")])
    told = simulate(tmp_path, json.dumps(listing(seen), default=list))

    assert told.exit_code == 0, told.output
    assert "of 2 nodes and 1 gang" in told.stdout
    assert re.search(r"gangs that ended +1\n", told.stdout)
    assert "left out: 2 pods, because a simulation begins empty" in told.stderr


def test_the_scenario_adds_nodes_and_queues_and_replaces_saved_queues(tmp_path: Path) -> None:
    more = "nodes: [{name: n, count: 2, has: {cpu: 4}}]\nmishaps: [{at: 1s, lose: a}]\n"
    assert "of 4 nodes" in simulate(tmp_path, SAVED, SCENARIO + more).stdout
    full = [*SAVED[:2], objects.queue("red", capability={"cpu": "1"})]
    freed = SCENARIO + "queues: [{name: red}]\n"

    assert re.search(r"gangs that never started +1\n", simulate(tmp_path, full).stdout)
    assert re.search(r"gangs that never started +0\n", simulate(tmp_path, full, freed).stdout)


def test_a_trace_uses_saved_queues_unchanged(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("team,cpu,at,lasts\nred,2,0,60\nnew,2,0,60\n")
    columns = "{arrives: at, duration: lasts, cpu: cpu}"
    trace = f"trace: {{file: t.csv, queue-by: team, columns: {columns}}}"
    full = [*SAVED[:2], objects.queue("red", capability={"cpu": "1"})]
    told = simulate(tmp_path, full, f"span: 10m\nsnapshot: saved.json\n{trace}\n")

    assert told.exit_code == 0, told.output
    assert re.search(r"^red +1 +1 +0 ", told.stdout, re.MULTILINE)
    assert re.search(r"^new +1 +1 +1 ", told.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("saved", "scenario", "said"),
    [
        ([], SCENARIO, "there are no nodes; add nodes, or a snapshot with nodes"),
        (SAVED, SCENARIO.replace("saved", "gone"), "gone.json: cannot be read: No such file"),
        ("{", SCENARIO, "saved.json: neither YAML nor JSON"),
        ("[1]", SCENARIO, "saved.json: has something that is not a Kubernetes object"),
        ([node("a", "many")], SCENARIO, "saved.json: Node a: status.allocatable.cpu"),
        (SAVED, SCENARIO.replace("red", "rad"), "the queue 'rad', which is not in queues"),
        (
            [node("n-0"), *SAVED],
            SCENARIO + "nodes: [{name: n, has: {cpu: 1}}]\n",
            "nodes has 'n-0', and so has the snapshot; rename it",
        ),
    ],
)
def test_an_invalid_snapshot_is_one_line(
    tmp_path: Path, saved: object, scenario: str, said: str
) -> None:
    told = simulate(tmp_path, saved, scenario)

    assert told.exit_code == 2, told.output
    assert told.stdout == ""
    assert said in told.stderr
    assert told.stderr.count("\n") == 1


TREE = """
span: 200s
pace: 1s
snapshot: saved.json
arrivals:
- {queue: team, name: t, count: 3, before: 0s, size: 4, each: {cpu: 1}, lasts: 100s}
- {queue: other, name: o, count: 3, before: 0s, size: 4, each: {cpu: 1}, lasts: 100s}
"""
HIERARCHY = """
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}]
"""


def test_a_parent_queue_with_its_deserved_share_misses_nothing(tmp_path: Path) -> None:
    half = {"deserved": {"cpu": "4"}}
    saved = [
        node("n", 8),
        objects.queue("root"),
        objects.queue("org", parent="root", **half),
        objects.queue("team", parent="org", **half),
        objects.queue("other", parent="root", **half),
    ]
    (tmp_path / "tree.conf").write_text(HIERARCHY)

    told = simulate(tmp_path, saved, TREE, "--config", str(tmp_path / "tree.conf"))

    found = re.search(r"fairness gap, mean +([0-9.]+)%", told.stdout)
    assert found is not None, told.output
    assert float(found[1]) < 3, "each has its half but for the first seconds"
