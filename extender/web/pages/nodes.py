"""The nodes as a map: what of each is used, promised, kept or free, by resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extender.model.node import Node
from extender.model.pod import Status
from extender.reporting.history import main_resources
from extender.reporting.journal import Pass
from extender.web.pages.asked import Asked, paged
from extender.web.pages.bars import Part, stack

FIELDS = ("find", "resource", "sort")
#: Nodes on a page.
SIZE = 180
ORDERS = ("name", "free", "used", "promised")
_PROMISED = (Status.ALLOCATED, Status.BINDING)


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """One resource of one node."""

    node: Node
    total: int
    used: int
    promised: int
    #: Kept free for a gang that has waited long.
    kept: int
    #: What somebody new may have.
    free: int
    parts: tuple[Part, ...]

    @property
    def trouble(self) -> str:
        """Say in a word or two why nobody new goes there, if so."""
        return _trouble(self.node)


def _trouble(node: Node) -> str:
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    return "" if node.ours else "not ours"


def page(last: Pass, asked: Asked) -> dict[str, Any]:
    """Give the part of the map that was asked for."""
    resources = main_resources(last.plan.total)
    resource = asked["resource"] if asked["resource"] in resources else "".join(resources[:1])
    rooms = _rooms(last, resource)
    if find := asked["find"].lower():
        rooms = [each for each in rooms if find in each.node.name.lower()]
    order = asked["sort"] if asked["sort"] in ORDERS else ORDERS[0]
    if order != "name":
        rooms.sort(key=lambda each: -getattr(each, order))
    sums = [sum(getattr(each, name) for each in rooms) for name in ("used", "promised", "kept")]
    total = sum(each.total for each in rooms)
    return {
        "resource": resource,
        "resources": resources,
        "shown": paged(rooms, asked.page, SIZE),
        "orders": ORDERS,
        "order": order,
        "all_nodes": len(last.snapshot.nodes.nodes),
        "total": total,
        "sums": sums,
        "free": sum(max(0, each.free) for each in rooms),
        "shut": sum(1 for each in rooms if each.trouble),
        "parts": stack(total, ("used", sums[0]), ("held", sums[1]), ("promised", sums[2])),
    }


def _rooms(last: Pass, resource: str) -> list[NodeRoom]:
    table = last.snapshot.nodes
    if resource not in table.dimensions:
        return [NodeRoom(node, 0, 0, 0, 0, 0, ()) for node in table.nodes]
    column = table.dimensions.index(resource)
    totals = table.allocatable[:, column].tolist()
    taken = table.used[:, column].tolist()
    seen, new = _promised(last, resource)
    rooms = []
    for node, total, used in zip(table.nodes, totals, taken, strict=True):
        own, fresh = seen.get(node.name, 0), new.get(node.name, 0)
        fence = last.plan.fences.get(node.name)
        free = max(0, total - used - fresh)
        kept = min(free, fence.amount(resource)) if fence is not None else 0
        here, promised = max(0, used - own), own + fresh
        parts = stack(total, ("used", here), ("held", promised), ("promised", kept))
        open_to_all = 0 if _trouble(node) else free - kept
        rooms.append(NodeRoom(node, total, here, promised, kept, open_to_all, parts))
    return rooms


def _promised(last: Pass, resource: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Add up by node what the snapshot counts already, and what this plan promised besides."""
    seen: dict[str, int] = {}
    new: dict[str, int] = {}
    for gang in last.snapshot.gangs.values():
        for status in _PROMISED:
            for pod in gang.by_status.get(status, ()):
                seen[pod.node] = seen.get(pod.node, 0) + pod.requests.amount(resource)
    for key, ticket in last.plan.tickets.items():
        known = last.snapshot.gangs.get(key)
        asks = {pod.uid: pod.requests for pod in known.pods} if known is not None else {}
        for uid, node in ticket.placements.items():
            if uid in asks:
                new[node] = new.get(node, 0) + asks[uid].amount(resource)
    return seen, new
