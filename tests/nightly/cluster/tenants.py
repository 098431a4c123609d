"""Attacks by objects of tenants, and by the policy file.

The API server accepts the objects. The pods select nodes of their own, so that they do not use the
capacity of the arriving gangs, except where that is the attack.
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
from tests.nightly.attacks.machine import lower_priority

from .installed_pair import GOOD_POLICY
from .siege_attacks import Attack, AttackedCluster, WriterContext, WrittenObjects

#: Writes the objects once; gets the number of the turn.
Step: TypeAlias = Callable[[Api, WriterContext, int], None]

URGENT = "siege-urgent"
_ESCAPES = "[/]\x1b[2J[link=http://evil.example]\u202e\x9b31m"


#: kube-scheduler does not try pods before their claim exists.
_NO_CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]


def write(stage: AttackedCluster, things: Iterable[Object], *, at_once: int = 8) -> None:
    """Create *things* in parallel."""
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(stage.api.create, things))


def again(api: Api, *things: Object) -> None:
    """Delete and create these objects."""
    for thing in things:
        about = thing["metadata"]
        api.delete(resource_of(thing), about["name"], about["namespace"], grace_seconds=0)
    for thing in things:
        api.create(thing)


# host ports


def _with_ports(context: WriterContext, number: int) -> Object:
    pod = objects.pod(f"ports-{number}", context.namespace, node_selector=context.tenants)
    first = 1000 + 100 * number
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port, "protocol": "TCP"}
        for port in range(first, first + 100)
    ]
    return pod


def _ports_first(stage: AttackedCluster) -> None:
    write(stage, (_with_ports(stage.context, number) for number in range(52)))


def ports(api: Api, context: WriterContext, turn: int) -> None:
    again(api, _with_ports(context, turn % 52))


# budgets

_BUDGETS = 4000


def _budget(context: WriterContext, number: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{number}", "namespace": context.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"i": str(number)}}},
    }


def _budgets_first(stage: AttackedCluster) -> None:
    """Create many small pods on few nodes, each with its own budget."""
    stage.create(objects.priority_class(URGENT, 1000))
    nodes = [f"budgets-{index}" for index in range(10)]
    pool = {"gang-extender.test/siege": "budgets"}
    capacity = {"cpu": "8", "memory": "64Gi", "pods": 500}
    for name in nodes:
        stage.create(objects.node(name, labels=pool, **capacity))  # type: ignore[arg-type]
    stage.plane.wait_until_nodes_are_ready(nodes, 60)
    write(
        stage,
        (
            objects.pod(
                f"kept-{number}",
                stage.context.namespace,
                cpu="10m",
                memory="1Mi",
                labels={"i": str(number)},
                nodeName=nodes[number % len(nodes)],
            )
            for number in range(_BUDGETS)
        ),
    )
    write(stage, (_budget(stage.context, number) for number in range(_BUDGETS)))


def budgets(api: Api, context: WriterContext, turn: int) -> None:
    """Create an urgent gang that needs all their capacity.

    kube-scheduler compares each of those pods with each budget before it preempts, for seconds, and
    schedules nothing meanwhile. That is not measured here: a missing claim keeps it from trying,
    while the extender's search for victims ignores claims.
    """
    pool = {"gang-extender.test/siege": "budgets"}
    group = objects.pod_group("wants-all", context.namespace, 10, priorityClassName=URGENT)
    pods = objects.pods(
        10,
        "wants-all",
        context.namespace,
        gang="wants-all",
        cpu="8",
        priority=URGENT,
        node_selector=pool,
        volumes=_NO_CLAIM,
    )
    again(api, group, *pods)


# affinities


def _with_affinity(context: WriterContext, number: int, terms: int) -> Object:
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
    return objects.pod(f"picky-{number}", context.namespace, memory=memory, affinity=affinity)


def affinities(api: Api, context: WriterContext, turn: int) -> None:
    again(api, _with_affinity(context, turn % 40, 5000 if turn % 4 == 0 else 330))


# labels


def labels(api: Api, context: WriterContext, turn: int) -> None:
    name = f"labelled-{turn % 4}"
    labels = {f"{turn % 7}{number:x}": "" for number in range(60_000 if turn % 2 == 0 else 250)}
    pod = objects.pod(name, context.namespace, labels=labels, node_selector=context.tenants)
    again(api, pod)


# names of resources


def _with_names(context: WriterContext, number: int, count: int = 60) -> Object:
    names = {f"r{number}.example/{each}": "1" for each in range(count)}
    return objects.pod(
        f"named-{number}", context.namespace, resources=names, node_selector=context.tenants
    )


def _names_first(stage: AttackedCluster) -> None:
    write(stage, (_with_names(stage.context, number) for number in range(134)))


def names(api: Api, context: WriterContext, turn: int) -> None:
    again(api, _with_names(context, turn % 134, 2000 if turn % 4 == 0 else 60))


# gangs of one pod


def _one_pod(context: WriterContext, number: int) -> tuple[Object, Object]:
    """Return a waiting gang of one; no two of a thousand are equal.

    kube-scheduler retries all unschedulable pods whenever a pod ends, also those without their
    claim: with ten thousand it does nothing else. That is not measured here: it does not retry
    pods that select a label that no node has.
    """
    name, cpu = f"one-{number}", f"{1000 + number % 1000}m"
    nowhere = {**context.tenants, "gang-extender.test/nowhere": "true"}
    return (
        objects.pod_group(name, context.namespace, 1),
        objects.pod(name, context.namespace, gang=name, cpu=cpu, node_selector=nowhere),
    )


def _one_pods_first(stage: AttackedCluster, count: int = 10_000) -> None:
    write(stage, (thing for number in range(count) for thing in _one_pod(stage.context, number)))


def one_pods(api: Api, context: WriterContext, turn: int) -> None:
    again(api, *_one_pod(context, turn % 100))


# depth


def deep(api: Api, context: WriterContext, turn: int) -> None:
    """Create a PodGroup of thousands of levels, which Python's JSON encoder cannot write."""
    name = f"deep-{turn}"
    levels = 4000
    nested = '{"a":' * levels + "1" + "}" * levels
    group = objects.pod_group(name, context.namespace, 1)
    text = json.dumps(group).replace(
        '"minMember": 1', f'"minMember": 1, "networkTopology": {nested}'
    )
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{context.namespace}/podgroups"
    api.post(path, text)
    api.create(
        objects.pod(name, context.namespace, gang=name, node_selector=context.tenants, cpu="64")
    )


# queues

_NESTED = 800


def _nested(number: int, weight: int = 1) -> Object:
    parent = {"parent": f"nested-{number - 1}"} if number else {}
    return objects.queue(f"nested-{number}", weight, **parent)


def _nested_first(stage: AttackedCluster) -> None:
    for number in range(_NESTED):
        stage.create(_nested(number))
    last = f"nested-{_NESTED - 1}"
    group = objects.pod_group("below-all", stage.context.namespace, 1, queue=last)
    about = {"gang": "below-all", "node_selector": stage.context.tenants}
    stage.api.create(group, objects.pod("below-all", stage.context.namespace, **about))


def nests(api: Api, context: WriterContext, turn: int) -> None:
    change = {"spec": {"weight": 2 + turn % 5}}
    api.patch(objects.QUEUES, f"nested-{turn * 37 % _NESTED}", change)


# a priority class that the pods do not have


def lies(api: Api, context: WriterContext, turn: int) -> None:
    """Create a gang that fits only with all other pods evicted, and claims to be critical."""
    _wants_all(api, context, turn, priorityClassName="system-cluster-critical")


def waits(api: Api, context: WriterContext, turn: int) -> None:
    """Create the same gang without the claim, which must not matter."""
    _wants_all(api, context, turn)


def _wants_all(api: Api, context: WriterContext, turn: int, **spec: str) -> None:
    name = f"all-{turn % 2}"
    group = objects.pod_group(name, context.namespace, 40, **spec)
    pods = objects.pods(
        40, name, context.namespace, gang=name, cpu="16", node_selector=context.gangs
    )
    again(api, group, *pods)


# hostile names


def hostile_names(api: Api, context: WriterContext, turn: int) -> None:
    name = f"text-{turn % 20}"
    group = objects.pod_group(name, context.namespace, 1, queue=f"{_ESCAPES}{turn % 20}")
    pod = objects.pod(
        name,
        context.namespace,
        gang=name,
        node_selector=context.tenants,
        annotations={"volcano.sh/task-spec": _ESCAPES},
    )
    again(api, group, pod)
    if turn % 10 == 0:
        _run_command(context, ("gangs", "queues", "doctor --offline")[turn // 10 % 3])


def _run_command(context: WriterContext, words: str) -> None:
    """Run a command, and check that it prints only text."""
    command = ["nice", sys.executable, "-m", "extender", *words.split()]
    ran = subprocess.run(
        [*command, f"--ops-url={context.ops_url}"],
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


def policy(api: Api, context: WriterContext, turn: int) -> None:
    kinds = (*_POLICIES, GOOD_POLICY)
    Path(context.policy).write_text(kinds[turn % len(kinds)])


class Policy(WrittenObjects):
    """Writes policy files with invalid numbers and deep nesting."""

    def observed(self, stage: AttackedCluster) -> str:
        stage.pair.policy.write_text(_POLICIES[-1])
        try:
            (finding,) = wait_for(
                lambda: [f for f in stage.pair.findings() if f["reason"] == "Refused"],
                30,
                "there is a finding about the policy",
            )
        finally:
            stage.pair.policy.write_text(GOOD_POLICY)
        return f"finding Refused: {finding['message'].partition(': ')[2]}"


def of_tenants() -> list[Attack]:
    """Return every attack by objects of tenants."""
    return [
        WrittenObjects("tenant: host ports", "ports", every_s=0.2, prepare=_ports_first),
        WrittenObjects("tenant: large affinities", "affinities", every_s=0.3),
        WrittenObjects("tenant: 60,000 labels", "labels", every_s=2.0),
        WrittenObjects(
            "tenant: 8,000 resource names",
            "names",
            every_s=0.3,
            prepare=_names_first,
            slows_scheduler=True,
        ),
        WrittenObjects("tenant: deep groups", "deep", every_s=0.5),
        WrittenObjects("tenant: a class its pods lack", "lies", every_s=5.0),
        WrittenObjects("tenant: the same gang, honest", "waits", every_s=5.0),
        WrittenObjects("tenant: hostile names", "hostile_names", every_s=0.3),
        WrittenObjects("queues: 800 below each other", "nests", every_s=0.5, prepare=_nested_first),
        Policy("policy: no numbers, no end", "policy", every_s=0.2),
        WrittenObjects("tenant: 4,000 budgets", "budgets", every_s=1.0, prepare=_budgets_first),
        WrittenObjects(
            "tenant: 10,000 gangs of one",
            "one_pods",
            every_s=0.3,
            prepare=_one_pods_first,
            slows_scheduler=True,
        ),
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


def main(step: str, every_s: str, text: str, steps: Mapping[str, Step] = STEPS) -> None:
    """Repeat *step* until standard input ends; then print the refusals of the API server."""
    lower_priority()
    context = WriterContext(**json.loads(text))
    api = _api(context)
    refusals: Counter[int] = Counter()
    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
    turn = 0
    while not ends.is_set():
        try:
            steps[step](api, context, turn)
        except ApiError as refusal:
            refusals[refusal.status] += 1
        turn += 1
        ends.wait(float(every_s))
    print(json.dumps(refusals))


def _api(context: WriterContext) -> Api:
    config = yaml.safe_load(Path(context.kubeconfig).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return Api(cluster["server"], user["token"], Path(cluster["certificate-authority"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
