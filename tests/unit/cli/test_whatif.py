"""`gang-extender plan --live`, `--with`, `--without`: gangs that would start, and changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.model.pod import Status
from extender.model.queue import Namespace, Queue
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.status.history import GangHistory
from tests import objects
from tests.builders import pod
from tests.scene import gang, node_table, snapshot

EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "what-if.yaml"
#: The time of the history, so that no gang has waited for fifty years.
WHEN = ["--now", "1970-01-12T13:48:20Z"]


def pods_on(node: str, name: str, number: int, status: Status = Status.RUNNING) -> list[Any]:
    return [pod(f"{name}-{each}", on=node, status=status) for each in range(number)]


def seen(*gangs: Any, queues: Any = (), cpus: tuple[int, ...] = (4, 4)) -> Snapshot:
    table = node_table(cpus)
    for each in gangs:
        for member in each.pods:
            if member.node:
                table.used[table.facts.index[member.node]] += (1000, 0, 1)
    there = queues or (Queue(name="left", weight=1), Queue(name="right", weight=1))
    found = snapshot(*gangs, nodes=table, queues=there)
    return replace(
        found, namespaces={"a": Namespace(name="a"), "b": Namespace(name="b", queue="right")}
    )


@pytest.fixture(autouse=True)
def running(history: GangHistory) -> None:
    """Record a cluster where queue left uses six of eight cpus."""
    note(
        history,
        seen(gang("old", pods_on("n0", "old", 3) + pods_on("n1", "older", 3), min_member=6)),
    )


def note(history: GangHistory, now: Snapshot) -> None:
    history.note(now, make_plan(now, policy_parser.DEFAULT))


def job(
    tmp_path: Path, members: int, *, namespace: str = "a", queue: str = "right", **spec: Any
) -> str:
    """Write a PodGroup `new` and its Job of pods of one cpu."""
    template = objects.pod("x", gang="new", memory="0", **spec)
    group = objects.pod_group("new", min_member=members, **({"queue": queue} if queue else {}))
    about = {"name": "new"} | ({"namespace": namespace} if namespace else {})
    batch = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": members, "template": template},
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all({**each, "metadata": about} for each in (group, batch)))
    return str(file)


def plan(*arguments: str, **variables: str) -> Result:
    env = {"KUBECONFIG": "none", **variables}
    return CliRunner().invoke(main, ["plan", *arguments], env=env)


def live(ops_url: str, *arguments: str) -> Result:
    return plan("--live", "--ops-url", ops_url, *WHEN, *arguments)


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def changes(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["about"]: (each["was"], each["now"]) for each in found["differences"]}


def test_a_job_that_fits_would_start_now_and_changes_nothing_for_others(
    ops_url: str, tmp_path: Path
) -> None:
    file = job(tmp_path, 2, queue="left")
    result = live(ops_url, "-f", file)

    assert result.exit_code == 0, result.output
    first, *_ = result.stdout.splitlines()
    assert first.startswith("a/new would start now: Admitted: ")
    assert result.stderr == ""
    assert {*changes(document(live(ops_url, "-f", file, "-o", "json")))} == {"queue left"}


def test_a_job_that_reclaims_deserved_capacity_lists_the_evictions(
    ops_url: str, tmp_path: Path
) -> None:
    file = job(tmp_path, 4)
    said = live(ops_url, "-f", file).stdout
    found = document(live(ops_url, "-f", file, "-o", "json"))

    assert found["asked"] == ["a/new"]
    leaving = {each["pod"] for each in found["evictions"] if each["for"] == "a/new"}
    assert leaving
    assert {f"pod {each}" for each in leaving} <= {*changes(found)}
    assert "would be evicted for it" in said
    for each in leaving:
        assert changes(found)[f"pod {each}"] == ("stays", "evicted for a/new (reclaim)")
    assert sum(f"    {each} on n" in said for each in leaving) == min(5, len(leaving))


def test_a_job_that_must_wait_has_its_reason(ops_url: str, tmp_path: Path) -> None:
    said = live(ops_url, "-f", job(tmp_path, 9)).stdout

    assert said.startswith("a/new would wait: ExceedsCluster: ")
    assert "would start with" in said


def test_pods_of_a_removed_node_wait_again(ops_url: str) -> None:
    found = document(live(ops_url, "--without", "node/n1", "-o", "json"))

    assert changes(found)["gang a/old"][0].startswith("running")
    (old,) = found["gangs"]
    assert (old["verdict"], old["members"]) == ("waiting", 6)


def test_a_gang_a_pod_and_a_queue_can_be_removed(ops_url: str) -> None:
    gang, pod, queue = (
        document(live(ops_url, "--without", gone, "-o", "json"))
        for gone in ("gang/a/old", "pod/a/old-0", "queue/right")
    )

    assert changes(gang)["gang a/old"][1] == "not there"
    assert [each["members"] for each in pod["gangs"]] == [5]
    assert "right" not in {each["name"] for each in queue["queues"]}


def test_a_change_without_effect_is_reported(ops_url: str) -> None:
    assert live(ops_url, "--with", "queue/right.priority=5").stdout.startswith("nothing changes\n")


def test_without_changes_it_is_the_plan_of_the_extender(ops_url: str, history: GangHistory) -> None:
    found = document(live(ops_url, "-o", "json"))

    assert (found["asked"], found["differences"]) == ([], [])
    (old,) = found["gangs"]
    assert (old["namespace"], old["name"], old["verdict"]) == ("a", "old", "running")
    assert "what changes" not in live(ops_url).stdout


def test_a_gang_without_a_queue_gets_the_queue_of_its_namespace(
    ops_url: str, tmp_path: Path
) -> None:
    found = document(live(ops_url, "-f", job(tmp_path, 1, namespace="b", queue=""), "-o", "json"))

    assert {each["name"]: each["queue"] for each in found["gangs"]}["new"] == "right"


def test_an_object_without_a_namespace_gets_that_of_the_kubeconfig(
    ops_url: str, tmp_path: Path
) -> None:
    result = live(ops_url, "-f", job(tmp_path, 1, namespace=""), "-o", "json")

    assert document(result)["asked"] == ["default/new"]
    assert "there is no namespace default; it counts as one" in result.stderr


def test_pods_of_another_scheduler_and_unknown_classes_are_reported(
    ops_url: str, tmp_path: Path
) -> None:
    other = live(ops_url, "-f", job(tmp_path, 1, schedulerName="other"))
    unknown = live(ops_url, "-f", job(tmp_path, 1, priorityClassName="vip"))

    assert "pod a/new-0 has the scheduler other, so it is not planned" in other.stderr
    assert "the priority of PriorityClass vip is unknown" in unknown.stderr


def test_pods_without_a_class_get_the_default_class(
    ops_url: str, history: GangHistory, tmp_path: Path
) -> None:
    late = gang("late", pods_on("", "late", 4, Status.PENDING), priority=3)
    old = gang("old", pods_on("n0", "old", 4) + pods_on("n1", "older", 4), priority=5)
    note(history, replace(seen(old, late), usual_priority=5))

    said = live(ops_url, "-f", job(tmp_path, 4, queue="left")).stdout

    assert said.startswith("a/new would wait: ")
    assert "ahead of it" not in said


def test_an_extender_with_a_different_plan_is_reported(ops_url: str, history: GangHistory) -> None:
    now = seen(gang("old", pods_on("n0", "old", 3)), gang("wait", 2, status=Status.PENDING))
    history.note(
        now, make_plan(seen(gang("wait", 9, status=Status.PENDING)), policy_parser.DEFAULT)
    )

    said = live(ops_url).stderr

    assert "the running extender decides otherwise about 1 of the gangs" in said
    assert "a/wait is waiting there and admitted here" in said


def test_a_volcano_job_and_a_deployment_are_expanded_into_pods(
    ops_url: str, tmp_path: Path
) -> None:
    template = {"spec": objects.pod("x")["spec"]}
    roles = (("head", 1), ("work", 2))
    tasks = [{"name": name, "replicas": each, "template": template} for name, each in roles]
    specs = {
        ("batch.volcano.sh/v1alpha1", "Job", "mpi"): {"minAvailable": 2, "tasks": tasks},
        ("apps/v1", "Deployment", "web"): {"replicas": 2, "template": template},
    }
    things = [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "namespace": "a"},
            "spec": spec,
        }
        for (version, kind, name), spec in specs.items()
    ]
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all(things))
    found = document(live(ops_url, "-f", str(file), "-o", "json"))

    sizes = {each["name"]: (each["members"], each["min_member"]) for each in found["gangs"]}
    assert sizes["mpi"] == (3, 2)
    assert "a/mpi" in found["asked"]
    assert len(found["asked"]) >= 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--without", "node/node-9"], "there is no node node-9; the nearest is node-"),
        (["--without", "queue/reserch"], "there is no queue reserch; the nearest is research"),
        (["--without", "gang/lab/trian"], "no gang lab/trian; the nearest is lab/train"),
        (["--without", "pod/lab/train-7"], "no pod lab/train-7; the nearest is lab/train-"),
        (["--without", "gang/train"], "is not a known form; write it like node/n7"),
        (["--without", ""], "is not a known form; write it like node/n7"),
        (["--with", "queue/nightli.weight=2"], "no queue nightli; the nearest is nightly"),
        (["--with", "queue/nightly.wait=2"], "a queue has no wait; the nearest is weight"),
        (["--with", "queue/nightly.weight"], "is not a known form; write it like queue/research"),
        (["--with", "node/node-3.unschedulable=true"], "the nearest is node-"),
        (["--with", "node/node-1.unschedulable=yes"], "'yes' is neither true nor false"),
        (["--with", "queue/nightly.weight=0"], "'0' is not a whole number of at least 1"),
        (["--with", "queue/nightly.weight=many"], "'many' is not a whole number of at least 1"),
        (["--with", "queue/nightly.capability.cpu=-1"], "'-1' is not an amount"),
        (["--with", "queue/nightly.guarantee.memory=lots"], "'lots' is not an amount"),
    ],
)
def test_an_unknown_object_is_one_line_with_the_nearest_name(
    arguments: list[str], said: str
) -> None:
    result = plan("-f", str(EXAMPLE), *arguments)

    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_changes_work_with_saved_files_too() -> None:
    found = document(plan("-f", str(EXAMPLE), "--with", "queue/research.weight=1", "-o", "json"))

    assert changes(found) == {
        "gang lab/train": ("admitted: Admitted", "waiting: BehindInOrder"),
        "gang ops/report": ("waiting: BehindInOrder", "admitted: Admitted"),
        "queue nightly": ("deserves 4 cpu, 8Gi memory", "deserves 8 cpu, 8Gi memory"),
        "queue research": ("deserves 12 cpu, 12Gi memory", "deserves 8 cpu, 12Gi memory"),
    }


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [
        ("capability.cpu=3", "lab/train", "waiting"),
        ("deserved.nvidia.com/gpu=1", "lab/train", "admitted"),
        ("priority=5", "lab/train", "admitted"),
        ("reclaimable=false", "lab/train", "admitted"),
        ("lend=true", "lab/train", "admitted"),
    ],
)
def test_every_field_of_a_queue_can_be_changed(field: str, key: str, value: str) -> None:
    found = document(plan("-f", str(EXAMPLE), "--with", f"queue/research.{field}", "-o", "json"))

    assert {f"{e['namespace']}/{e['name']}": e["verdict"] for e in found["gangs"]}[key] == value


def test_the_default_queue_and_a_cordoned_node_can_be_changed() -> None:
    arguments = ["--with", "queue/default.weight=7", "--with", "node/node-1.unschedulable=true"]
    found = document(plan("-f", str(EXAMPLE), *arguments, "-o", "json"))

    assert {each["name"]: each["weight"] for each in found["queues"]}["default"] == 7
    assert {*found["binds"].values()} == {"node-2"}


def test_an_extender_without_a_plan_is_reported(ops_url: str, history: GangHistory) -> None:
    history.note(replace(snapshot(nodes=node_table([])), queues={}), make_plan(snapshot()))

    result = live(ops_url)

    assert result.exit_code == 2
    assert "has not planned yet, or has no objects" in result.stderr


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"parallelism": -1, "template": {"spec": {}}}, "spec.parallelism: -1 is not a number"),
        ({"parallelism": 2}, "Job a/new has no template with a spec"),
        ({"parallelism": "x" * 500}, "is not a number of pods from 0 to"),
    ],
)
def test_an_invalid_job_is_one_line(
    ops_url: str, tmp_path: Path, spec: dict[str, Any], said: str
) -> None:
    file = tmp_path / "bad.json"
    about = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "new", "namespace": "a"}}
    file.write_text(json.dumps({**about, "spec": spec}))
    result = live(ops_url, "-f", str(file))

    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_job_that_exists_already_is_reported(
    ops_url: str, history: GangHistory, tmp_path: Path
) -> None:
    labels = {"batch.kubernetes.io/job-name": "new"}
    note(history, seen(gang("new", [pod("new-x7", on="n0", labels=labels)])))

    result = live(ops_url, "-f", job(tmp_path, 1))

    assert result.exit_code == 2
    assert "Job a/new exists already, with pod new-x7" in result.stderr
