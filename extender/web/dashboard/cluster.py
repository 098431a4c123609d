"""The nodes as a map: what of each is used, promised, kept or free, by resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from prometheus_client import Histogram

from extender.model.node import Node
from extender.model.pod import Status
from extender.planner.policy import OURS, VOLCANO, PluginOption, Policy, Rules
from extender.policy_file import PolicyFile
from extender.status.history import CycleResult, main_resources
from extender.web.dashboard.charts import Part, stack
from extender.web.dashboard.context import AppContext
from extender.web.dashboard.format import QueryFields, paged

NODES_FIELDS = ("find", "resource", "sort")
#: Nodes on a page.
NODES_SIZE = 180
ORDERS = ("name", "free", "used", "promised")
_PROMISED = (Status.ALLOCATED, Status.BINDING)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One resource of one node."""

    node: Node
    total: int
    used: int
    reserved: int
    #: Kept free for a gang that has waited long.
    held: int
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
    return "" if node.managed else "not ours"


def nodes_page(last: CycleResult, asked: QueryFields) -> dict[str, Any]:
    """Give the part of the map that was asked for."""
    resources = main_resources(last.plan.total)
    resource = asked["resource"] if asked["resource"] in resources else "".join(resources[:1])
    rooms = _rooms(last, resource)
    if find := asked["find"].lower():
        rooms = [each for each in rooms if find in each.node.name.lower()]
    order = asked["sort"] if asked["sort"] in ORDERS else ORDERS[0]
    if order != "name":
        rooms.sort(key=lambda each: -getattr(each, order))
    sums = [sum(getattr(each, name) for each in rooms) for name in ("used", "reserved", "held")]
    total = sum(each.total for each in rooms)
    return {
        "resource": resource,
        "resources": resources,
        "shown": paged(rooms, asked.page, NODES_SIZE),
        "orders": ORDERS,
        "order": order,
        "all_nodes": len(last.snapshot.nodes.nodes),
        "total": total,
        "sums": sums,
        "free": sum(max(0, each.free) for each in rooms),
        "shut": sum(1 for each in rooms if each.trouble),
        "parts": stack(total, ("used", sums[0]), ("held", sums[1]), ("promised", sums[2])),
    }


def _rooms(last: CycleResult, resource: str) -> list[NodeRow]:
    table = last.snapshot.nodes
    if resource not in table.dimensions:
        return [NodeRow(node, 0, 0, 0, 0, 0, ()) for node in table.nodes]
    column = table.dimensions.index(resource)
    totals = table.allocatable[:, column].tolist()
    taken = table.used[:, column].tolist()
    seen, new = _promised(last, resource)
    rooms = []
    for node, total, used in zip(table.nodes, totals, taken, strict=True):
        own, fresh = seen.get(node.name, 0), new.get(node.name, 0)
        fence = last.plan.reservations.get(node.name)
        free = max(0, total - used - fresh)
        kept = min(free, fence.amount(resource)) if fence is not None else 0
        here, promised = max(0, used - own), own + fresh
        parts = stack(total, ("used", here), ("held", promised), ("promised", kept))
        open_to_all = 0 if _trouble(node) else free - kept
        rooms.append(NodeRow(node, total, here, promised, kept, open_to_all, parts))
    return rooms


def _promised(last: CycleResult, resource: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Add up by node what the snapshot counts already, and what this plan promised besides."""
    seen: dict[str, int] = {}
    new: dict[str, int] = {}
    for gang in last.snapshot.gangs.values():
        for status in _PROMISED:
            for pod in gang.by_status.get(status, ()):
                seen[pod.node] = seen.get(pod.node, 0) + pod.requests.amount(resource)
    for key, ticket in last.plan.placements.items():
        known = last.snapshot.gangs.get(key)
        asks = {pod.uid: pod.requests for pod in known.pods} if known is not None else {}
        for uid, node in ticket.placements.items():
            if uid in asks:
                new[node] = new.get(node, 0) + asks[uid].amount(resource)
    return seen, new


_MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Latency:
    """How long one thing took since we began: half of the times, and nearly all."""

    name: str
    count: int
    mean_s: float
    #: Not more than this; None when it was longer than anybody measures.
    half_s: float | None
    nearly_all_s: float | None


def health_page(sights: AppContext) -> dict[str, Any]:
    """Give all that speaks of ourselves; it is there before any plan, too."""
    last, leader = sights.last, sights.standby()
    # What a standby has found it found when it led.
    found = None if leader else sights.findings()
    return {
        "missing": sights.readiness(),
        "notes": sights.notes(),
        "leader": leader,
        "silence": sorted(sights.silence().items()),
        "hooks": latencies(sights.metrics.hook_seconds, "verb"),
        "cycles": latencies(sights.metrics.cycle_seconds),
        "schedulers": _schedulers(last),
        "findings": found[:_MOST_FINDINGS] if found else [],
        "finding_count": len(found) if found else 0,
        "age_s": sights.age_s() if last is not None else None,
    }


def latencies(histogram: Histogram, label: str = "") -> list[Latency]:
    """Read a histogram as a table has it."""
    buckets: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sums: dict[str, float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            name = sample.labels.get(label) or next(
                (value for key, value in sample.labels.items() if key != "le"), ""
            )
            if sample.name.endswith("_bucket"):
                buckets[name].append((float(sample.labels["le"]), sample.value))
            elif sample.name.endswith("_sum"):
                sums[name] = sample.value
    return [
        Latency(
            name,
            int(steps[-1][1]),
            sums.get(name, 0.0) / steps[-1][1],
            _below(steps, 0.5),
            _below(steps, 0.99),
        )
        for name, steps in sorted(buckets.items())
        if steps and steps[-1][1]
    ]


def _below(steps: list[tuple[float, float]], part: float) -> float | None:
    """Give the smallest bound that so large a part of all stays within."""
    wanted = part * steps[-1][1]
    bound = next((bound for bound, count in steps if count >= wanted), float("inf"))
    return bound if bound != float("inf") else None


def _schedulers(last: CycleResult | None) -> list[dict[str, str]]:
    if last is None:
        return []
    now = last.snapshot.now
    return [
        {"name": each.name, "words": each.words(now), "complaint": each.complaint(now)}
        for each in last.snapshot.schedulers.values()
    ]


def policy_page(policies: PolicyFile) -> dict[str, Any]:
    """Give what the policy file says, and what of it is not in force."""
    policy = policies.current()
    return {
        "policy": policy,
        "problem": policies.problem,
        "tiers": [[_plugin(option) for option in tier] for tier in policy.tiers],
        "rules": _rules(policy),
        "manner": _manner(policy),
    }


def _plugin(option: PluginOption) -> dict[str, Any]:
    notes = [f"silent about {each}" for each in sorted(option.silenced)]
    if option.hierarchy:
        notes.append("over the tree of queues")
    if option.orders_namespaces:
        notes.append("namespaces before queues")
    notes += [f"{name} = {value}" for name, value in sorted(option.arguments.items())]
    return {"name": option.name, "notes": notes}


def _manner(policy: Policy) -> str:
    if policy.rules == OURS:
        return "our own"
    return "Volcano's" if policy.rules == VOLCANO else "mixed"


def _rules(policy: Policy) -> list[tuple[str, bool]]:
    return [
        (each.name.replace("_", " "), bool(getattr(policy.rules, each.name)))
        for each in fields(Rules)
        if isinstance(getattr(policy.rules, each.name), bool)
    ]
