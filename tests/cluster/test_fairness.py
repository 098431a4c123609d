"""Fair shares on the real control plane: DRF among queues, and a tree of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import objects

from . import reported
from .api import Api, Object
from .control_plane import ControlPlane
from .train_gang import Create, GangScheduler, Nodes, gang, running_pair
from .waiting import wait_for

SCHEDULER = "fair-scheduler"
GPU = "example.com/gpu"
#: Timeout for starts after the last change.
SOON_S = 10

#: drf orders queues only as a tree; a queue without a parent is below the root.
BY_DOMINANT_SHARE = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: drf
    enableHierarchy: true
  - name: predicates
"""

#: A queue may reclaim for its parent, one level up.
TREE = """
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: gang
  - name: capacity
    enableHierarchy: true
    arguments: {ancestorReclaimLevel: 1}
  - name: predicates
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy file of the pair, which it reads before each plan."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(BY_DOMINANT_SHARE)
    return file


@pytest.fixture(scope="module")
def pair(plane: ControlPlane, policy: Path) -> Iterator[GangScheduler]:
    with running_pair(plane, f"--config={policy}", scheduler_name=SCHEDULER) as made:
        yield made


def test_freed_capacity_goes_to_the_queue_with_the_smallest_dominant_share(
    plane: ControlPlane,
    api: Api,
    policy: Path,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    """The cluster has 100 of each resource; a gang requests 8 cpus, 10 Gi or 6 gpus.

    Another order would give another result: the gangs of `cpu` are first by age, name and
    priority, and `memory` uses the least cpu.
    """
    policy.write_text(BY_DOMINANT_SHARE)
    pods: dict[str, dict[str, Any]] = {
        "cpu": {"cpu": "4", "memory": "1Gi", "priority": f"urgent-{namespace}"},
        "memory": {"cpu": "1", "memory": "5Gi"},
        "gpu": {"cpu": "2", "memory": "1Gi", "resources": {GPU: "3"}},
    }
    # kube-scheduler must not evict pods by itself.
    urgent = objects.priority_class(f"urgent-{namespace}", 1000)
    create({**urgent, "preemptionPolicy": "Never"})
    add_queues(create, pair, *(objects.queue(f"{name}-{namespace}") for name in pods))
    # Any two pods fill a node.
    pool = nodes(10, cpu="10", memory="10Gi", pods=2, resources={GPU: "10"})
    about = {"scheduler": SCHEDULER, "node_selector": pool.selector}

    def add(name: str, *numbers: int) -> list[str]:
        gangs = [f"{name}{number}" for number in numbers]
        for each in gangs:
            queue = f"{name}-{namespace}"
            gang(api, each, namespace, 2, pool, queue=queue, scheduler=SCHEDULER, **pods[name])
        return gangs

    with plane.binds(namespace) as binds:
        add("cpu", 0, 1)
        add("memory", 0)
        add("gpu", 0)
        api.create(*objects.pods(12, "before", namespace, **about))
        binds.wait_for(20, 20)
        waiting = [each for name in pods for each in add(name, 2, 3, 4, 5)]
        wait_until_all_wait(pair, namespace, *waiting)

        for number in range(0, 12, 2):
            api.delete("pods", f"before-{number}", namespace, grace_seconds=0)
            api.delete("pods", f"before-{number + 1}", namespace, grace_seconds=0)
            binds.wait_for(20 + number + 2, SOON_S)

    started = [gang_of(bind.pod) for bind in binds.binds[20:]]
    assert started[::2] == started[1::2]  # whole gangs, one after the other
    assert [each.rstrip("2345") for each in started[::2]] == [
        "gpu",  # 6 %; memory 10 %, cpu 16 %
        "memory",  # 10 %; gpu 12 %, cpu 16 %
        "gpu",  # 12 %; cpu 16 %, memory 20 %
        "cpu",  # 16 %; gpu 18 %, memory 20 %
        "gpu",  # 18 %; memory 20 %, cpu 24 %
        "memory",  # 20 %; gpu 24 %, cpu 24 %
    ]


def test_children_reclaim_the_deserved_share_of_their_parent_from_the_child_of_another(
    plane: ControlPlane,
    api: Api,
    policy: Path,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    """Of 12 cpus `sci` deserves 4, `eng` 8; `bio` is below `sci`, `dev` and `prod` below `eng`."""
    policy.write_text(TREE)
    sci, bio, eng, dev, prod = (f"{n}-{namespace}" for n in ("sci", "bio", "eng", "dev", "prod"))
    add_queues(
        create,
        pair,
        objects.queue(sci, deserved={"cpu": "4"}),
        objects.queue(bio, parent=sci),
        objects.queue(eng, deserved={"cpu": "8"}),
        objects.queue(dev, parent=eng),
        objects.queue(prod, parent=eng),
    )
    pool = nodes(3, cpu="4")

    def add(name: str, count: int, queue: str) -> None:
        gang(api, name, namespace, count, pool, queue=queue, scheduler=SCHEDULER)

    with plane.binds(namespace) as binds:
        for number in range(4):
            add(f"bio{number}", 3, bio)
        binds.wait_for(12, 20, prefix="bio")
        add("more", 4, bio)
        wait_until_all_wait(pair, namespace, "more")

        # Reclaim needs four pods of `bio`, but evicts whole gangs.
        add("dev0", 4, dev)
        binds.wait_for(4, SOON_S, prefix="dev0")
        assert list(staying(api, namespace, "bio").values()) == [3, 3]
        add("prod0", 4, prod)
        binds.wait_for(4, SOON_S, prefix="prod0")
        assert list(staying(api, namespace, "bio").values()) == [3]

        # No pod is evicted for either of them now; `more` is older than `dev1`.
        add("dev1", 4, dev)
        wait_until_all_wait(pair, namespace, "more", "dev1")
        for index in range(4):
            api.delete("pods", f"prod0-{index}", namespace, grace_seconds=0)
        binds.wait_for(4, SOON_S, prefix="dev1")

    assert binds.of("more") == []
    assert staying(api, namespace, "dev") == {"dev0": 4, "dev1": 4}
    assert list(staying(api, namespace, "bio").values()) == [3]


def add_queues(create: Create, pair: GangScheduler, *queues: Object) -> None:
    """Create queues and wait for a plan with them, which has also read the policy file."""
    create(*queues)
    for queue in queues:
        reported.wait_until_queue_is_known(pair.extender, queue["metadata"]["name"])


def staying(api: Api, namespace: str, prefix: str) -> Counter[str]:
    """Count the bound pods of each gang, without terminating ones."""
    return Counter(
        gang_of(pod["metadata"]["name"])
        for pod in api.list("pods", namespace)
        if objects.node_of(pod)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"].startswith(prefix)
    )


def gang_of(pod: str) -> str:
    return pod.rpartition("-")[0]


def wait_until_all_wait(pair: GangScheduler, namespace: str, *gangs: str) -> None:
    """Wait until a plan has the verdict waiting for each of *gangs*."""

    def verdicts() -> list[str]:
        answers = [reported.explanation(pair.extender, namespace, name) for name in gangs]
        return [str(each.get("verdict")) for each in answers]

    wait_for(
        lambda: set(verdicts()) == {"waiting"}, 20, f"{', '.join(gangs)} wait", seeing=verdicts
    )
