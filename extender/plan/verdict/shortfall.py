"""Which nodes would take a gang's members now, and what each of the others lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from extender.model.node import Amounts, NodeTable
from extender.model.pod import Pod, Shape
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.room.slots import clash
from extender.plan.session import Session

_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Near:
    """A node that may be used but is too full, and what it lacks."""

    node: str
    lacks: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The members of one shape against all nodes."""

    #: Members that need a node, and what each of them asks for.
    members: int
    each: Resources
    #: How many such members the idle room takes now, and how many an empty cluster would.
    slots: int
    empty_slots: int
    #: Nodes that take at least one of them.
    takers: int
    #: What keeps the other nodes out -> how many nodes it keeps out.
    obstacles: Mapping[str, int] = field(default_factory=dict)
    #: The usable nodes that lack least.
    nearest: tuple[Near, ...] = ()


def shortfalls(session: Session, plan: Plan, pods: tuple[Pod, ...]) -> tuple[Shortfall, ...]:
    """Compare *pods*, shape by shape, with the room that *plan* leaves."""
    room = _room_left(session, plan)
    members: dict[Shape, int] = Counter(pod.shape for pod in pods)
    return tuple(_shortfall(session, room, shape, count) for shape, count in members.items())


def _room_left(session: Session, plan: Plan) -> Amounts:
    """Give the idle room after what this plan has handed out."""
    table = session.snapshot.nodes
    room: Amounts = table.allocatable - table.used
    for key, ticket in plan.tickets.items():
        shapes = {pod.uid: pod.shape for pod in session.snapshot.gangs[key].pods}
        for uid, node in ticket.placements.items():
            need = session.room.need(shapes[uid])
            if need is not None and node in table.facts.index:
                room[table.facts.index[node]] -= need
    return room


def _shortfall(session: Session, room: Amounts, shape: Shape, members: int) -> Shortfall:
    need = session.room.need(shape)
    table = session.snapshot.nodes
    if need is None:
        names = [name for name in shape.requests if name not in table.dimensions]
        obstacles = {f"without any {', '.join(names)}": len(table.nodes)}
        return Shortfall(
            members=members, each=shape.requests, slots=0, empty_slots=0, takers=0,
            obstacles=obstacles,
        )  # fmt: skip
    barred = _barred(session, shape)
    usable = barred == ""
    counts = np.where(usable, _slots(room, need), 0)
    ports = _port_clashes(session.snapshot, shape)
    counts = np.where(ports, 0, np.minimum(counts, 1) if shape.host_ports else counts)
    return Shortfall(
        members=members,
        each=shape.requests,
        slots=int(counts.sum()),
        empty_slots=int(np.where(usable, _slots(table.allocatable, need), 0).sum()),
        takers=int((counts > 0).sum()),
        obstacles=_obstacles(table, room, need, barred, counts, ports),
        nearest=_nearest(table, room, need, usable & (counts == 0) & ~ports),
    )


def _barred(session: Session, shape: Shape) -> npt.NDArray[np.str_]:
    """Name for each node the first thing about itself that keeps *shape* away; empty if none."""
    barred = np.full(len(session.snapshot.nodes.nodes), "", dtype="<U32")
    for word, mask in session.places.obstacles(shape).items():
        barred = np.where((barred == "") & mask, word, barred)
    return barred


def _slots(room: Amounts, need: Amounts) -> Amounts:
    asked = np.flatnonzero(need)
    counts: Amounts = (room[:, asked] // need[asked]).min(axis=1)
    return np.maximum(counts, 0)


def _port_clashes(snapshot: Snapshot, shape: Shape) -> npt.NDArray[np.bool_]:
    taken = snapshot.nodes.ports
    if not shape.host_ports:
        return np.zeros(len(snapshot.nodes.nodes), dtype=bool)
    return np.array(
        [
            any(clash(ours, other) for ours in shape.host_ports for other in taken.get(name, ()))
            for name in (node.name for node in snapshot.nodes.nodes)
        ],
        dtype=bool,
    )


def _obstacles(
    table: NodeTable,
    room: Amounts,
    need: Amounts,
    barred: npt.NDArray[np.str_],
    counts: Amounts,
    ports: npt.NDArray[np.bool_],
) -> dict[str, int]:
    found: Counter[str] = Counter(word for word in barred.tolist() if word)
    for row in np.flatnonzero((barred == "") & (counts == 0)):
        missing = (room[row] < need).tolist()
        short = [name for name, lacks in zip(table.dimensions, missing, strict=True) if lacks]
        found["short of " + " and ".join(short) if short else "with a host port taken"] += 1
    return dict(found.most_common())


def _nearest(
    table: NodeTable, room: Amounts, need: Amounts, full: npt.NDArray[np.bool_]
) -> tuple[Near, ...]:
    rows = np.flatnonzero(full)
    if not len(rows):
        return ()
    lacks = np.maximum(need - room[rows], 0)
    ranks = (lacks / np.maximum(need, 1)).sum(axis=1)
    nearest = rows[np.argsort(ranks, kind="stable")[:_NEAREST]]
    return tuple(
        Near(
            table.nodes[row].name,
            Resources(
                zip(table.dimensions, np.maximum(need - room[row], 0).tolist(), strict=True)
            ).positive(),
        )
        for row in nearest
    )
