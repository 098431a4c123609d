"""What could help where room is missing: nodes that are shut, more of them, those who go first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.plan.census import Census
from extender.plan.decision import Why
from extender.plan.session import Session
from extender.plan.verdict.case import LAST, Case, Remedy, more_of, others_waiting, some
from extender.plan.verdict.changes import (
    with_all_nodes,
    with_less_used,
    with_open_nodes,
    with_room,
    without_pods,
)
from extender.plan.verdict.shortfall import amounts, shortfalls

#: More new nodes than this are not tried one by one.
_MOST_NODES = 2_000
#: Nor are more sizes of members looked at one by one.
_MOST_SHAPES = 10


def more_room(case: Case) -> Iterator[Remedy]:
    """Think of nodes that are shut, of more room for all members, of more on one node."""
    if len(case.wanted) > _MOST_SHAPES:
        yield from _room_for_all(case)
        return
    with closing(Session(Census(case.snapshot), case.policy)) as session:
        needs = shortfalls(session, case.plan, case.wanted)
        found = dict(zip(case.wanted, needs, strict=True))
        nodes = case.snapshot.nodes.nodes
        like = {
            shape: nodes[int(rows[0])]
            for shape in case.wanted
            if len(rows := session.places.usable_at_all(shape).nonzero()[0])
        }
        opened = any(session.places.count_if_opened(shape) for shape in case.wanted)
    if opened:
        yield Remedy(_opened_words(case.snapshot), with_open_nodes)
    short = {s: n - found[s].slots for s, n in case.wanted.items() if n > found[s].slots}
    enough_for_each = [{shape: 1} for shape in case.wanted] if len(case.wanted) > 1 else []
    for lacking in [short] if short else [*enough_for_each, dict(case.wanted)]:
        if sum(lacking.values()) <= _MOST_NODES:
            words = " and ".join(
                f"{more_of(count, 'member')} of {amounts(s.requests)} each"
                for s, count in lacking.items()
            )
            rest = [
                f"{found[s].empty_slots} of {case.wanted[s]}"
                for s in lacking
                if found[s].empty_slots < case.wanted[s]
            ]
            size = f": the cluster, empty, takes {', '.join(rest)}" if rest else ""
            roomier = partial(with_room, shapes=lacking, like=like)
            yield Remedy(f"room for {words}{size}", roomier)
            if short and (others := others_waiting(case)):
                words = f"room for {words}{size}, and no other gang waiting"
                yield Remedy(words, lambda s: roomier(without_pods(s, others)), LAST)  # noqa: B023
    if sum(short.values()) == 1:
        for near in next(iter(found[s] for s in short)).nearest[:1]:
            yield Remedy(
                f"{amounts(near.lacks)} more idle on node {near.node}",
                partial(with_less_used, name=near.node, amounts=near.lacks),
            )


def _room_for_all(case: Case) -> Iterator[Remedy]:
    """Think of nodes for all of a gang of which hardly two members are alike."""
    members = case.wanted.total()
    if members <= _MOST_NODES:
        words = f"room for {more_of(members, 'member')} of {len(case.wanted)} sizes"
        yield Remedy(words, partial(with_room, shapes=case.wanted, like={}))


def _opened_words(snapshot: Snapshot) -> str:
    shut = [node for node in snapshot.nodes.nodes if node.is_shut and node.ours]
    noun = "node" if len(shut) == 1 else "nodes"
    if all(node.ready for node in shut):
        state = "uncordoned"
    else:
        state = "ready and uncordoned" if any(n.unschedulable for n in shut) else "ready again"
    return f"{noun} {some([node.name for node in shut])} {state}"


def nobody_first(case: Case) -> Iterator[Remedy]:
    """Think of those who go first gone, and then of room."""
    first = [str(key) for key, ticket in case.plan.tickets.items() if ticket.placements]
    first += [kept.whom for kept in case.plan.kept if kept.why is Why.STARVING]
    first = [key for key in first if key != case.key and key in case.snapshot.gangs]
    if first:
        waiting = {pod.uid for key in first for pod in case.snapshot.gangs[GangKey(key)].waiting}
        yield Remedy(f"{some(first)} gone, which went first", partial(without_pods, gone=waiting))
    yield from more_room(case)


def our_nodes(case: Case) -> Iterator[Remedy]:
    """Think of the nodes that are not ours."""
    others = [node.name for node in case.snapshot.nodes.nodes if not node.ours]
    noun = "node" if len(others) == 1 else "nodes"
    yield Remedy(f"a label of --node-selector on {noun} {some(others)}", with_all_nodes)
    yield from more_room(case)
