"""What the picture shows: nodes with who is on them, queues against their dues, gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from extender.embedded.running import Embedded
from extender.model.resources import NOTHING, Resources
from extender.sim import objects
from extender.sim.cluster import Object

_CPU, _MEMORY = "cpu", "memory"


class Brick(NamedTuple):
    """A pod on a node, or on its way there."""

    gang: str
    cpu: float
    memory: float
    is_held: bool


class SeenNode(NamedTuple):
    """A node; *cpu* and *memory* are what it has, a seat's are in the same units."""

    name: str
    cpu: float
    memory: float
    seats: tuple[Brick, ...]


class SeenQueue(NamedTuple):
    """A queue, as parts of the cluster: of the resource of which it has, is due or wants most."""

    name: str
    used: float
    due: float
    wanted: float


@dataclass(frozen=True, slots=True)
class SeenGang:
    """A gang: how many of its pods run, are held, and wait; and why."""

    name: str
    queue: str
    least: int
    runs: int
    held: int
    waits: int
    why: str

    @property
    def stands(self) -> str:
        """Say in a word how it is."""
        if self.runs >= self.least:
            return "runs"
        return "held" if self.held else "waits"


@dataclass(frozen=True, slots=True)
class Sight:
    """One look."""

    nodes: tuple[SeenNode, ...] = ()
    queues: tuple[SeenQueue, ...] = ()
    gangs: tuple[SeenGang, ...] = ()


def look(embedded: Embedded) -> Sight:
    """Look at the cluster itself for what is, and at the plan for why."""
    plan, assumed = embedded.plan(), embedded.assumed
    nodes, pods = embedded.cluster.all("Node"), embedded.cluster.all("Pod")
    whole = sum((_has(each) for each in nodes), NOTHING)
    placed: dict[str, list[tuple[Object, bool]]] = {}
    for pod in pods:
        on, held_for = pod["spec"].get("nodeName"), assumed.get(pod["metadata"]["uid"])
        if on or held_for:
            placed.setdefault(on or held_for or "", []).append((pod, not on))
    return Sight(
        tuple(_node(each, placed.get(each["metadata"]["name"], ())) for each in nodes),
        tuple(_queue(each, whole) for each in plan["queues"] if _is_shown(each)),
        tuple(_gangs(embedded.cluster.all("PodGroup"), pods, assumed, plan)),
    )


def _node(node: Object, placed: Iterable[tuple[Object, bool]]) -> SeenNode:
    seats = []
    for pod, is_held in placed:
        asks = Resources.parse(pod["spec"]["containers"][0]["resources"]["requests"])
        gang = objects.gang_of(pod) or pod["metadata"]["name"]
        seats.append(Brick(gang, asks.amount(_CPU), asks.amount(_MEMORY), is_held))
    has = _has(node)
    return SeenNode(
        node["metadata"]["name"],
        has.amount(_CPU),
        has.amount(_MEMORY),
        tuple(sorted(seats)),
    )


def _has(node: Object) -> Resources:
    return Resources.parse(node["status"]["allocatable"])


def _is_shown(queue: Mapping[str, Any]) -> bool:
    """Leave out what has nothing and wants nothing and nobody made."""
    return bool(queue["name"] not in ("default", "root") or queue["requested"])


def _queue(queue: Mapping[str, Any], whole: Resources) -> SeenQueue:
    def part(word: str) -> float:
        amounts = Resources.parse(queue[word])
        return max(amounts.amount(each) / max(1, whole.amount(each)) for each in (_CPU, _MEMORY))

    return SeenQueue(queue["name"], part("allocated"), part("deserved"), part("requested"))


def _gangs(
    groups: Iterable[Object],
    pods: Iterable[Object],
    assumed: Mapping[str, str],
    plan: Mapping[str, Any],
) -> Iterable[SeenGang]:
    told = {each["name"]: each for each in plan["gangs"]}
    members: dict[str, list[Object]] = {}
    for pod in pods:
        members.setdefault(objects.gang_of(pod), []).append(pod)
    for group in groups:
        name = group["metadata"]["name"]
        ours = members.get(name, [])
        runs = sum(bool(pod["spec"].get("nodeName")) for pod in ours)
        on_the_way = sum(pod["metadata"]["uid"] in assumed for pod in ours) - runs
        held = max(0, on_the_way)
        verdict = told.get(name)
        why = f"{verdict['reason']}: {verdict['message']}" if verdict else "just created"
        spec = group["spec"]
        yield SeenGang(
            *(name, spec.get("queue", ""), spec["minMember"], runs, held),
            len(ours) - runs - held,
            why,
        )
