"""The pages about nodes, health and policy."""

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
ORDERS = ("name", "free", "used", "reserved")
_RESERVED = (Status.ALLOCATED, Status.BINDING)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One resource of one node."""

    node: Node
    total: int
    used: int
    reserved: int
    #: Held for a gang that has waited long.
    held: int
    #: Available to any pod.
    free: int
    parts: tuple[Part, ...]

    @property
    def trouble(self) -> str:
        """Return in a word or two why new pods cannot use the node; empty if they can."""
        return _trouble(self.node)


def _trouble(node: Node) -> str:
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    return "" if node.managed else "not ours"


def nodes_page(last: CycleResult, fields: QueryFields) -> dict[str, Any]:
    """Return the variables of the page of nodes."""
    resources = main_resources(last.plan.total)
    resource = fields["resource"] if fields["resource"] in resources else "".join(resources[:1])
    rows = _node_rows(last, resource)
    if find := fields["find"].lower():
        rows = [each for each in rows if find in each.node.name.lower()]
    order = fields["sort"] if fields["sort"] in ORDERS else ORDERS[0]
    if order != "name":
        rows.sort(key=lambda each: -getattr(each, order))
    sums = [sum(getattr(each, name) for each in rows) for name in ("used", "reserved", "held")]
    total = sum(each.total for each in rows)
    return {
        "resource": resource,
        "resources": resources,
        "shown": paged(rows, fields.page, NODES_SIZE),
        "orders": ORDERS,
        "order": order,
        "all_nodes": len(last.snapshot.nodes.nodes),
        "total": total,
        "sums": sums,
        "free": sum(max(0, each.free) for each in rows),
        "unavailable": sum(1 for each in rows if each.trouble),
        "parts": stack(total, ("used", sums[0]), ("held", sums[1]), ("promised", sums[2])),
    }


def _node_rows(last: CycleResult, resource: str) -> list[NodeRow]:
    table = last.snapshot.nodes
    if resource not in table.dimensions:
        return [NodeRow(node, 0, 0, 0, 0, 0, ()) for node in table.nodes]
    column = table.dimensions.index(resource)
    totals = table.allocatable[:, column].tolist()
    used_amounts = table.used[:, column].tolist()
    counted, planned = _reserved(last, resource)
    rows = []
    for node, total, used in zip(table.nodes, totals, used_amounts, strict=True):
        counted_here, planned_here = counted.get(node.name, 0), planned.get(node.name, 0)
        reservation = last.plan.held_on_nodes.get(node.name)
        free = max(0, total - used - planned_here)
        held = min(free, reservation.amount(resource)) if reservation is not None else 0
        used_here, reserved = max(0, used - counted_here), counted_here + planned_here
        parts = stack(total, ("used", used_here), ("held", reserved), ("promised", held))
        available = 0 if _trouble(node) else free - held
        rows.append(NodeRow(node, total, used_here, reserved, held, available, parts))
    return rows


def _reserved(last: CycleResult, resource: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the reserved amounts by node: those counted in the snapshot, and new in the plan."""
    counted: dict[str, int] = {}
    planned: dict[str, int] = {}
    for gang in last.snapshot.gangs.values():
        for status in _RESERVED:
            for pod in gang.by_status.get(status, ()):
                counted[pod.node] = counted.get(pod.node, 0) + pod.requests.amount(resource)
    for key, placement in last.plan.placements.items():
        known = last.snapshot.gangs.get(key)
        requests = {pod.uid: pod.requests for pod in known.pods} if known is not None else {}
        for uid, node in placement.placements.items():
            if uid in requests:
                planned[node] = planned.get(node, 0) + requests[uid].amount(resource)
    return counted, planned


_MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Latency:
    """How long one operation took since the process started: the median and the 99 % quantile."""

    name: str
    count: int
    mean_s: float
    #: Upper bounds; None if longer than all buckets.
    half_s: float | None
    nearly_all_s: float | None


def health_page(context: AppContext) -> dict[str, Any]:
    """Return the variables of the health page; it works before the first plan, too."""
    last, leader = context.last, context.standby()
    # The findings of a standby date from the time when it led.
    findings = None if leader else context.findings()
    return {
        "missing": context.why_not_ready(),
        "notes": context.notes(),
        "leader": leader,
        "silence": sorted(context.silence().items()),
        "hooks": latencies(context.metrics.hook_seconds, "verb"),
        "cycles": latencies(context.metrics.cycle_seconds),
        "schedulers": _schedulers(last),
        "findings": findings[:_MAX_FINDINGS] if findings else [],
        "finding_count": len(findings) if findings else 0,
        "age_s": context.age_s() if last is not None else None,
    }


def latencies(histogram: Histogram, label: str = "") -> list[Latency]:
    """Return the series of a histogram as rows of a table."""
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
    """Return the smallest bucket bound that covers *part* of all samples."""
    needed = part * steps[-1][1]
    bound = next((bound for bound, count in steps if count >= needed), float("inf"))
    return bound if bound != float("inf") else None


def _schedulers(last: CycleResult | None) -> list[dict[str, str]]:
    if last is None:
        return []
    now = last.snapshot.now
    return [
        {"name": each.name, "message": each.message(now), "problem": each.problem(now)}
        for each in last.snapshot.schedulers.values()
    ]


def policy_page(policies: PolicyFile) -> dict[str, Any]:
    """Return the variables of the policy page."""
    policy = policies.current()
    return {
        "policy": policy,
        "problem": policies.problem,
        "tiers": [[_plugin(option) for option in tier] for tier in policy.tiers],
        "rules": _rules(policy),
        "manner": _manner(policy),
    }


def _plugin(option: PluginOption) -> dict[str, Any]:
    notes = [f"disabled for {each}" for each in sorted(option.silenced)]
    if option.hierarchy:
        notes.append("over the queue hierarchy")
    if option.orders_namespaces:
        notes.append("namespaces before queues")
    notes += [f"{name} = {value}" for name, value in sorted(option.arguments.items())]
    return {"name": option.name, "notes": notes}


def _manner(policy: Policy) -> str:
    if policy.rules == OURS:
        return "gang-extender"
    return "Volcano's" if policy.rules == VOLCANO else "mixed"


def _rules(policy: Policy) -> list[tuple[str, bool]]:
    return [
        (each.name.replace("_", " "), bool(getattr(policy.rules, each.name)))
        for each in fields(Rules)
        if isinstance(getattr(policy.rules, each.name), bool)
    ]
