"""Pods, nodes and groups in a few words, and a clock that stands still."""

from __future__ import annotations

from typing import Any

from extender.cache.assignment import QueuePolicy
from extender.cache.changes import SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.model.gang import GangKey, Membership, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.resources import Resources
from extender.sim.world.virtual_time import VirtualTime

VOLCANO = "scheduling.volcano.sh"
COSCHEDULING = "scheduling.x-k8s.io"
NOW = 1_000_000.0
GANG = GangKey("a/train")


def amounts(cpu: int = 1, memory: int = 1, **rest: int) -> Resources:
    """Whole cpus and GiB, one pod."""
    return Resources({"cpu": cpu * 1000, "memory": memory << 30, "pods": 1, **rest})


SMALL = Shape(requests=amounts())


def node(name: str, *, cpu: int = 4, memory: int = 16, pods: int = 110, **rest: Any) -> Node:
    room = Resources({"cpu": cpu * 1000, "memory": memory << 30, "pods": pods})
    return Node(name=name, **({"allocatable": room} | rest))


def bare_pod(name: str, *, on: str = "", shape: Shape = SMALL, **rest: Any) -> Pod:
    """A pod of namespace `a`; running if it is on a node."""
    status = rest.pop("status", Status.RUNNING if on else Status.PENDING)
    return Pod(
        **(
            {
                "uid": PodUid(f"uid-{name}"),
                "namespace": "a",
                "name": name,
                "shape": shape,
                "status": status,
                "node": on,
            }
            | rest
        )
    )


def member_of(gang: str = "train", **rest: Any) -> Membership:
    return Membership(key=GangKey(f"a/{gang}"), **({"named": True} | rest))


def pod(name: str, gang: str = "train", **rest: Any) -> SeenPod:
    """A pod that names the PodGroup *gang*."""
    return SeenPod(bare_pod(name, **rest), member_of(gang))


def lone(name: str, queue: str = "", **rest: Any) -> SeenPod:
    """A pod that names no gang."""
    membership = Membership(key=GangKey(f"a/pod:{name}"), queue=queue)
    return SeenPod(bare_pod(name, **rest), membership)


def group(name: str = "train", min_member: int = 2, **rest: Any) -> PodGroup:
    return PodGroup(
        **({"namespace": "a", "name": name, "min_member": min_member, "dialect": VOLCANO} | rest)
    )


def cluster(
    *items: Any, clock: VirtualTime | None = None, policy: QueuePolicy | None = None
) -> Cluster:
    """A cluster that has heard of *items*."""
    made = Cluster(clock or VirtualTime(), policy)
    for item in items:
        made.apply(Upsert(item))
    return made


def uid(name: str) -> PodUid:
    return PodUid(f"uid-{name}")
