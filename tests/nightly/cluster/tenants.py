"""Tenants who write objects to make the extender slow, large or unjust, and a policy likewise.

What they write stays within what the API server takes. Their pods are for nodes of their own, so
that they wait for room without taking any from the gangs that arrive, but where that is the attack.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import yaml

from tests import objects
from tests.cluster.api import Api, ApiError, Object, resource_of
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.waiting import wait_for
from tests.nightly.attacks.machine import leave_the_cores_to_others

from .besiegers import Attack, Ground, Stage, Written
from .garrison import GOOD_POLICY

#: Does it once; told which time it is.
Step: TypeAlias = Callable[[Api, Ground, int], None]

URGENT = "siege-urgent"
_ESCAPES = "[/]\x1b[2J[link=http://evil.example]\u202e\x9b31m"


#: kube-scheduler does not try pods before their claim is there.
_NO_CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]


def write(stage: Stage, things: Iterable[Object], *, at_once: int = 8) -> None:
    """Create *things*, some at a time."""
    with ThreadPoolExecutor(at_once) as clerks:
        list(clerks.map(stage.api.create, things))


def again(api: Api, *things: Object) -> None:
    """Create these anew in place of those of the same names."""
    for thing in things:
        about = thing["metadata"]
        api.delete(resource_of(thing), about["name"], about["namespace"], grace_seconds=0)
    for thing in things:
        api.create(thing)


# host ports


def _with_ports(ground: Ground, number: int) -> Object:
    pod = objects.pod(f"ports-{number}", ground.namespace, node_selector=ground.tenants)
    first = 1000 + 100 * number
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port, "protocol": "TCP"}
        for port in range(first, first + 100)
    ]
    return pod


def _ports_first(stage: Stage) -> None:
    write(stage, (_with_ports(stage.ground, number) for number in range(52)))


def ports(api: Api, ground: Ground, turn: int) -> None:
    again(api, _with_ports(ground, turn % 52))


# budgets

_BUDGETS = 4000


def _budget(ground: Ground, number: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{number}", "namespace": ground.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"i": str(number)}}},
    }


def _budgets_first(stage: Stage) -> None:
    """Many small pods run on few nodes, each with a budget of its own."""
    stage.create(objects.priority_class(URGENT, 1000))
    nodes = [f"budgets-{index}" for index in range(10)]
    pool = {"gang-extender.test/siege": "budgets"}
    room = {"cpu": "8", "memory": "64Gi", "pods": 500}
    for name in nodes:
        stage.create(objects.node(name, labels=pool, **room))  # type: ignore[arg-type]
    stage.plane.wait_until_nodes_are_ready(nodes, 60)
    write(
        stage,
        (
            objects.pod(
                f"kept-{number}",
                stage.ground.namespace,
                cpu="10m",
                memory="1Mi",
                labels={"i": str(number)},
                nodeName=nodes[number % len(nodes)],
            )
            for number in range(_BUDGETS)
        ),
    )
    write(stage, (_budget(stage.ground, number) for number in range(_BUDGETS)))


def budgets(api: Api, ground: Ground, turn: int) -> None:
    """Somebody urgent wants all of their room.

    kube-scheduler itself compares each of those pods with each budget before it evicts anybody, for
    seconds, and meanwhile looks at nobody else. That is not what is measured here: a claim that
    does not exist keeps it from trying, and our own search for victims does not ask for it.
    """
    pool = {"gang-extender.test/siege": "budgets"}
    group = objects.pod_group("wants-all", ground.namespace, 10, priorityClassName=URGENT)
    pods = objects.pods(
        10,
        "wants-all",
        ground.namespace,
        gang="wants-all",
        cpu="8",
        priority=URGENT,
        node_selector=pool,
        volumes=_NO_CLAIM,
    )
    again(api, group, *pods)


# affinities


def _with_affinity(ground: Ground, number: int, terms: int) -> Object:
    wanted = [
        {"matchExpressions": [{"key": "k", "operator": "In", "values": [str(each)]}]}
        for each in range(terms)
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}
        }
    }
    memory = f"{64 + number}Mi"
    return objects.pod(f"picky-{number}", ground.namespace, memory=memory, affinity=affinity)


def affinities(api: Api, ground: Ground, turn: int) -> None:
    again(api, _with_affinity(ground, turn % 40, 5000 if turn % 4 == 0 else 330))


# labels


def labels(api: Api, ground: Ground, turn: int) -> None:
    name = f"labelled-{turn % 4}"
    labels = {f"{turn % 7}{number:x}": "" for number in range(60_000 if turn % 2 == 0 else 250)}
    pod = objects.pod(name, ground.namespace, labels=labels, node_selector=ground.tenants)
    again(api, pod)


# names of resources


def _with_names(ground: Ground, number: int, count: int = 60) -> Object:
    names = {f"r{number}.example/{each}": "1" for each in range(count)}
    return objects.pod(
        f"named-{number}", ground.namespace, resources=names, node_selector=ground.tenants
    )


def _names_first(stage: Stage) -> None:
    write(stage, (_with_names(stage.ground, number) for number in range(134)))


def names(api: Api, ground: Ground, turn: int) -> None:
    again(api, _with_names(ground, turn % 134, 2000 if turn % 4 == 0 else 60))


# gangs of one pod


def _one_pod(ground: Ground, number: int) -> tuple[Object, Object]:
    """A gang of one that waits, no two of a thousand alike.

    kube-scheduler tries all pods that it cannot place again whenever somebody ends, those whose
    claim is missing too: with ten thousand it does nothing else, with us and without. That is not
    what is measured here: pods that select a label which no node has are left alone by it.
    """
    name, cpu = f"one-{number}", f"{1000 + number % 1000}m"
    nowhere = {**ground.tenants, "gang-extender.test/nowhere": "true"}
    return (
        objects.pod_group(name, ground.namespace, 1),
        objects.pod(name, ground.namespace, gang=name, cpu=cpu, node_selector=nowhere),
    )


def _one_pods_first(stage: Stage, count: int = 10_000) -> None:
    write(stage, (thing for number in range(count) for thing in _one_pod(stage.ground, number)))


def one_pods(api: Api, ground: Ground, turn: int) -> None:
    again(api, *_one_pod(ground, turn % 100))


# depth


def deep(api: Api, ground: Ground, turn: int) -> None:
    """A PodGroup of thousands of levels; Python cannot write it, so it is written by hand."""
    name = f"deep-{turn}"
    levels = 4000
    nested = '{"a":' * levels + "1" + "}" * levels
    group = objects.pod_group(name, ground.namespace, 1)
    text = json.dumps(group).replace(
        '"minMember": 1', f'"minMember": 1, "networkTopology": {nested}'
    )
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ground.namespace}/podgroups"
    api.post(path, text)
    api.create(
        objects.pod(name, ground.namespace, gang=name, node_selector=ground.tenants, cpu="64")
    )


# queues

_NESTED = 800


def _nested(number: int, weight: int = 1) -> Object:
    parent = {"parent": f"nested-{number - 1}"} if number else {}
    return objects.queue(f"nested-{number}", weight, **parent)


def _nested_first(stage: Stage) -> None:
    for number in range(_NESTED):
        stage.create(_nested(number))
    last = f"nested-{_NESTED - 1}"
    group = objects.pod_group("below-all", stage.ground.namespace, 1, queue=last)
    about = {"gang": "below-all", "node_selector": stage.ground.tenants}
    stage.api.create(group, objects.pod("below-all", stage.ground.namespace, **about))


def nests(api: Api, ground: Ground, turn: int) -> None:
    change = {"spec": {"weight": 2 + turn % 5}}
    api.patch(objects.QUEUES, f"nested-{turn * 37 % _NESTED}", change)


# a class that the pods do not have


def lies(api: Api, ground: Ground, turn: int) -> None:
    """A gang that fits only if everybody else leaves says that it is critical."""
    _wants_all(api, ground, turn, priorityClassName="system-cluster-critical")


def waits(api: Api, ground: Ground, turn: int) -> None:
    """The same gang without the lie, which must be worth nothing."""
    _wants_all(api, ground, turn)


def _wants_all(api: Api, ground: Ground, turn: int, **spec: str) -> None:
    name = f"all-{turn % 2}"
    group = objects.pod_group(name, ground.namespace, 40, **spec)
    pods = objects.pods(40, name, ground.namespace, gang=name, cpu="16", node_selector=ground.gangs)
    again(api, group, *pods)


# names that are no names


def hostile_names(api: Api, ground: Ground, turn: int) -> None:
    name = f"text-{turn % 20}"
    group = objects.pod_group(name, ground.namespace, 1, queue=f"{_ESCAPES}{turn % 20}")
    pod = objects.pod(
        name,
        ground.namespace,
        gang=name,
        node_selector=ground.tenants,
        annotations={"volcano.sh/task-spec": _ESCAPES},
    )
    again(api, group, pod)
    if turn % 10 == 0:
        _look(ground, ("gangs", "queues", "doctor --offline")[turn // 10 % 3])


def _look(ground: Ground, words: str) -> None:
    """Look as people do, and see that nothing but text comes out."""
    command = ["nice", sys.executable, "-m", "extender", *words.split()]
    ran = subprocess.run(
        [*command, f"--ops-url={ground.ops_url}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    assert not {"\x1b", "\x9b", "\u202e"} & set(ran.stdout), f"{words} prints escapes"


# the policy

_POLICIES = (
    GOOD_POLICY.replace(
        "- name: drf", "- name: drf\n    arguments: {overcommit-factor: .inf, drf.weight: .nan}"
    ),
    f"{GOOD_POLICY}configurations:\n- name: allocate\n  arguments: {{a: .inf, b: -.inf}}\n",
    "a: " + "[" * 5000 + "]" * 5000 + "\n",
    "\n".join(" " * depth + "a:" for depth in range(600)) + "\n",
    "a: &a [x, x]\n"
    + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)
    ),
    "actions: .nan\ntiers: .inf\n",
    "\x00\x01 not yaml",
)


def policy(api: Api, ground: Ground, turn: int) -> None:
    kinds = (*_POLICIES, GOOD_POLICY)
    Path(ground.policy).write_text(kinds[turn % len(kinds)])


class Policy(Written):
    """The file that says who goes first, with numbers that are none and depths without end."""

    def told(self, stage: Stage) -> str:
        stage.garrison.policy.write_text(_POLICIES[-1])
        try:
            (said,) = wait_for(
                lambda: [f for f in stage.garrison.findings() if f["reason"] == "Refused"],
                30,
                "the policy is said to be refused",
            )
        finally:
            stage.garrison.policy.write_text(GOOD_POLICY)
        return f"finding Refused: {said['message'].partition(': ')[2]}"


def of_tenants() -> list[Attack]:
    """Every attack by what is written."""
    return [
        Written("tenant: host ports", "ports", every_s=0.2, prepare=_ports_first),
        Written("tenant: large affinities", "affinities", every_s=0.3),
        Written("tenant: 60,000 labels", "labels", every_s=2.0),
        Written("tenant: 8,000 resource names", "names", every_s=0.3, prepare=_names_first),
        Written("tenant: deep groups", "deep", every_s=0.5),
        Written("tenant: a class its pods lack", "lies", every_s=5.0),
        Written("tenant: the same gang, honest", "waits", every_s=5.0),
        Written("tenant: hostile names", "hostile_names", every_s=0.3),
        Written("queues: 800 below each other", "nests", every_s=0.5, prepare=_nested_first),
        Policy("policy: no numbers, no end", "policy", every_s=0.2),
        Written("tenant: 4,000 budgets", "budgets", every_s=1.0, prepare=_budgets_first),
        Written("tenant: 10,000 gangs of one", "one_pods", every_s=0.3, prepare=_one_pods_first),
    ]


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        ports,
        budgets,
        affinities,
        labels,
        names,
        deep,
        lies,
        waits,
        hostile_names,
        nests,
        policy,
        one_pods,
    )
}


def main(step: str, every_s: str, told: str, steps: Mapping[str, Step] = STEPS) -> None:
    """Do it again and again until the input ends; then say what the API server refused."""
    leave_the_cores_to_others()
    ground = Ground(**json.loads(told))
    api = _api(ground)
    refusals: Counter[int] = Counter()
    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
    turn = 0
    while not ends.is_set():
        try:
            steps[step](api, ground, turn)
        except ApiError as refusal:
            refusals[refusal.status] += 1
        turn += 1
        ends.wait(float(every_s))
    print(json.dumps(refusals))


def _api(ground: Ground) -> Api:
    config = yaml.safe_load(Path(ground.kubeconfig).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return Api(cluster["server"], user["token"], Path(cluster["certificate-authority"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
