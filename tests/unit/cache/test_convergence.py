"""In whatever order the events of a history arrive, the cache ends as after a fresh list.

Histories are long, because the faults of a cache are in its state. So they are made
from a seed instead of being drawn step by step. A failing seed and its shortest length are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st

from extender.cache.changes import Delete, Item, Kind, SeenPod, Upsert, key_of, kind_of
from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.model.gang import VOLCANO, GangKey, Membership, PodGroup
from extender.model.pod import HostPort, PodUid, Requirement, Shape, Status
from extender.model.queue import Namespace, PriorityClass, Queue
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota, Snapshot
from extender.sim.clock import VirtualClock
from tests.builders import NOW, ONE_CPU, amounts, node, pod, pod_group, shape
from tests.strategies import examples

SHAPES = (
    ONE_CPU,
    Shape(amounts(cpu=2, gpu=1)),
    shape(cpu=1, host_ports=(HostPort(80),)),
)
NODES = ("n1", "n2", "n3")
QUEUES = ("", "default", "gold", "silver")
PODS = tuple("tuvwxyz")


def any_pod(chance: Random) -> SeenPod:
    name = chance.choice(PODS)
    status = chance.choice([Status.PENDING, Status.PENDING, Status.RUNNING, *Status])
    seen = pod(
        name,
        on="" if status is Status.PENDING else chance.choice(NODES),
        status=status,
        shape=chance.choice(SHAPES),
        ours=chance.random() < 0.8,
        priority=chance.randrange(3),
        labels={"app": chance.choice("xy")},
    )
    return SeenPod(
        seen,
        Membership(
            key=GangKey(f"a/{chance.choice(['g', 'g', 'h', 'native:i', 'pod:' + name])}"),
            named=chance.random() < 0.5,
            min_member=chance.choice([None, 2]),
            native=chance.random() < 0.1,
            queue=chance.choice(QUEUES),
            problem=chance.choice(["", "", "", "odd"]),
        ),
    )


def any_group(chance: Random) -> Item:
    return pod_group(
        chance.choice("gh"),
        chance.randrange(4),
        queue=chance.choice(QUEUES),
        priority_class=chance.choice(PODS),
        dialect=chance.choice([VOLCANO, "scheduling.x-k8s.io"]),
    )


def any_namespace(chance: Random) -> Item:
    allowed = chance.choice([None, frozenset[str](), frozenset({"gold"})])
    return Namespace(name="a", queue=chance.choice(QUEUES), allowed=allowed)


def any_queue(chance: Random) -> Item:
    odd = chance.choice(["", "", "its weight is 0"])
    return Queue(name=chance.choice(["gold", "silver"]), weight=chance.randrange(1, 3), problem=odd)


def any_class(chance: Random) -> Item:
    value, is_default = chance.randrange(4), chance.random() < 0.3
    return PriorityClass(name=chance.choice(PODS), value=value, is_default=is_default)


def any_budget(chance: Random) -> Item:
    return DisruptionBudget(
        namespace="a",
        name=chance.choice(PODS),
        allowed=chance.randrange(3),
        least=chance.choice([None, 1, 2]),
        part=chance.choice(["", "50%"]),
        selector=chance.choice([(), (Requirement("app", "In", ("x",)),)]),
    )


def any_quota(chance: Random) -> Item:
    name, weight = chance.choice(PODS), chance.randrange(1, 3)
    return ResourceQuota(namespace=chance.choice("ab"), name=name, weight=weight)


def any_node(chance: Random) -> Item:
    ready, ours = chance.random() < 0.5, chance.random() < 0.7
    capacity = amounts(cpu=chance.randrange(1, 4), memory=16)
    # Some nodes have what some pods request, and pods may be seen before their nodes.
    offers = Resources({**capacity, "pods": 110, "gpu": chance.randrange(3)})
    return node(chance.choice(NODES), allocatable=offers, ready=ready, managed=ours)


KINDS: list[Callable[[Random], Item]] = [
    *[any_pod] * 6,
    *[any_group] * 2,
    any_node,
    any_namespace,
    any_queue,
    any_class,
    any_budget,
    any_quota,
]


def dialect_of(item: Item) -> str:
    return item.dialect if isinstance(item, PodGroup) else ""


@dataclass
class History:
    """What really happened, and how much of it each watch has delivered."""

    events: dict[Kind, list[Upsert | Delete]] = field(
        default_factory=lambda: {kind: [] for kind in Kind}
    )
    told: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))

    def happen(self, item: Item, is_gone: bool) -> None:
        kind = kind_of(item)
        change = Delete(kind, key_of(item), dialect_of(item)) if is_gone else Upsert(item)
        self.events[kind].append(change)

    def world(self, kind: Kind, moment: int) -> list[Item]:
        """Everything of one kind that existed after so many events."""
        there: dict[tuple[str, str | None], Item] = {}
        for change in self.events[kind][:moment]:
            if isinstance(change, Upsert):
                there[key_of(change.item), dialect_of(change.item)] = change.item
            else:
                there.pop((change.key, change.dialect), None)
        return list(there.values())


class Broken(Exception):
    pass


def tell_some(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """The watch goes on."""
    begin = history.told[kind]
    for change in history.events[kind][begin : begin + number]:
        cluster.apply(change)
        history.told[kind] += 1


def reconnect(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """The watch broke and is resumed from an earlier moment: some events are repeated, in order."""
    begin = max(0, history.told[kind] - number)
    for change in history.events[kind][begin : history.told[kind]]:
        cluster.apply(change)


def relist(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """The resourceVersion expired: a list of now, and a watch from there."""
    moment = len(history.events[kind])
    cluster.replace(kind, history.world(kind, moment))
    history.told[kind] = moment


def relist_with_changes(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """A streamed list: what happens meanwhile comes before the bookmark that ends it."""
    moment = len(history.events[kind])
    begin = max(0, moment - number)
    late = history.events[kind][begin:]
    stream = [each.item if isinstance(each, Upsert) else each for each in late]
    cluster.replace(kind, [*history.world(kind, begin), *stream])
    history.told[kind] = moment


def relist_in_vain(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """A list that breaks off. Only another list can follow."""

    def pages() -> Any:
        yield from history.world(kind, len(history.events[kind]))[:number]
        raise Broken

    try:
        cluster.replace(kind, pages())
    except Broken:
        relist(history, cluster, kind, number)


def look(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """The planner takes a snapshot."""
    cluster.snapshot(NOW)


def promise(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    """A reservation is made meanwhile."""
    name = PODS[number % len(PODS)]
    stage = list(Stage)[number % 5]
    uid = PodUid(f"a-{name}")
    if not cluster.reservations.advance(uid, stage):
        cluster.reservations.reserve(pod(name), GangKey("a/g"), "n1", 0.0, stage=stage)


def withdraw(history: History, cluster: Cluster, kind: Kind, number: int) -> None:
    cluster.reservations.release(PodUid(f"a-{PODS[number % len(PODS)]}"))


Act = Callable[[History, Cluster, Kind, int], None]
ACTS: list[Act] = [
    *[tell_some] * 6,
    *[look] * 4,
    *[promise] * 2,
    reconnect,
    relist,
    relist_with_changes,
    relist_in_vain,
    withdraw,
]


def as_figures(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as plain values that can be compared."""
    table = snapshot.nodes
    return {
        "nodes": table.nodes,
        "dimensions": table.dimensions,
        "allocatable": table.allocatable.tolist(),
        "used": table.used.tolist(),
        "releasing": table.releasing.tolist(),
        "ports": {name: sorted(map(repr, ports)) for name, ports in table.ports.items()},
        "gangs": [
            (key, gang.group, gang.pods, gang.queue, gang.priority, gang.problem, gang.remark)
            for key, gang in snapshot.gangs.items()
        ],
        "queues": list(snapshot.queues.items()),
        "budgets": snapshot.budgets,
        "quotas": snapshot.quotas,
    }


def as_known(cluster: Cluster) -> dict[str, Any]:
    """What hooks read from the cache without a snapshot."""
    limited = [name for name in "ab" if cluster.has_quotas(name)]
    return {"total": cluster.total.positive(), "foreign": cluster.foreign, "limited": limited}


def fresh(history: History, like: Cluster, **rest: Any) -> Cluster:
    """A cache that has received one list of each kind only, with the same reservations."""
    made = Cluster(VirtualClock(), **rest)
    for kind in Kind:
        made.replace(kind, history.world(kind, len(history.events[kind])))
    for name in PODS:
        known = like.reservations.of(PodUid(f"a-{name}"))
        if known is not None:
            made.reservations.reserve(known.pod, known.gang, known.node, 0.0, stage=known.stage)
    return made


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), length=st.integers(1, 400), budgets_are_gangs=st.booleans())
def test_every_order_of_watch_events_and_lists_ends_in_the_same_snapshot(
    seed: int, length: int, budgets_are_gangs: bool
) -> None:
    chance = Random(seed)
    made = {"budgets_are_gangs": budgets_are_gangs}
    history, cluster = History(), Cluster(VirtualClock(), **made)
    for _ in range(length):
        if chance.random() < 0.5:
            history.happen(chance.choice(KINDS)(chance), is_gone=chance.random() < 0.25)
        else:
            act, kind = chance.choice(ACTS), chance.choice([Kind.POD, *Kind])
            act(history, cluster, kind, chance.randrange(8))
    for kind in Kind:
        tell_some(history, cluster, kind, len(history.events[kind]))

    anew = fresh(history, cluster, **made)

    assert as_figures(cluster.snapshot(NOW)) == as_figures(anew.snapshot(NOW))
    assert as_known(cluster) == as_known(anew)


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), number=st.integers(0, 40), budgets_are_gangs=st.booleans())
def test_the_order_of_unrelated_objects_does_not_matter(
    seed: int, number: int, budgets_are_gangs: bool
) -> None:
    chance = Random(seed)
    heard = [chance.choice(KINDS)(chance) for _ in range(number)]
    by_key = {(kind_of(item), key_of(item), dialect_of(item)): item for item in heard}
    unrelated = list(by_key.values())
    one, other = (Cluster(VirtualClock(), budgets_are_gangs=budgets_are_gangs) for _ in range(2))
    for item in unrelated:
        one.apply(Upsert(item))
    chance.shuffle(unrelated)
    for item in unrelated:
        other.apply(Upsert(item))

    assert as_figures(one.snapshot(NOW)) == as_figures(other.snapshot(NOW))
