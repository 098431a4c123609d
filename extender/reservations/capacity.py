"""Capacity that queues and nodes have left: by the last plan, less what was reserved since.

A namespace with a share of its own in a queue is checked against its share and the queue. A share
that an administrator wrote after the snapshot counts at once: otherwise the namespace could start
all its pods between two plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cachetools import LRUCache

from extender.cache.cluster import Cluster
from extender.model.node import UNLIMITED, HostPorts
from extender.model.pod import Shape
from extender.model.queue import share_name
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources
from extender.planner.plan import NO_PLAN, DirectAdmission, Plan
from extender.planner.quota import TOP, QuotaNode, tree, upwards

_NOT_PLANNED = Problem(
    Reason.BEHIND_IN_ORDER, "what its namespace may have of the queue is not planned with yet"
)


class QueueAllowance:
    """Two bounds: the limits and guarantees of all queues, which hold for every pod; and the
    deserved amount of each queue, which holds for what starts before the next plan."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._quotas: dict[str, QuotaNode] = {}
        #: Whether any namespace had a share of its own in the plan.
        self._has_shares = False
        self._direct_admission: Mapping[str, DirectAdmission] = {}
        #: What was started without a plan, by queue.
        self._spent: dict[str, Resources] = {}
        self.renew(NO_PLAN)

    def renew(self, plan: Plan) -> None:
        """Begin anew with what *plan* leaves, less what was reserved since its snapshot."""
        self._direct_admission, self._quotas = plan.direct_admission, tree(plan.limits, plan.total)
        self._has_shares = any(limit.namespace for limit in plan.limits)
        self._spent = {}
        for (queue, namespace), amounts in self._cluster.reservations.spent().items():
            self.spend(queue, amounts)
            self.count(queue, namespace, amounts)

    def admits_gangs(self, queue: str) -> bool:
        """Return whether a gang may start in *queue* without waiting for a plan."""
        return queue in self._direct_admission and self._direct_admission[queue].is_quiet

    def _quota(self, queue: str, namespace: str) -> QuotaNode | None:
        """Return the quota in which *namespace* counts in *queue*."""
        own = self._quotas.get(share_name(queue, namespace)) if self._has_shares else None
        return own or self._quotas.get(queue)

    def check(self, queue: str, namespace: str, amounts: Resources) -> Problem | None:
        """Bring the limits up to date; return which of them *amounts* more would break."""
        quota, top = self._quota(queue, namespace), self._quotas[TOP]
        share = self._cluster.share(queue, namespace)
        if share is not None and (quota is None or quota.name != share.name):
            return _NOT_PLANNED
        if quota is None:
            return None
        if share is not None:
            quota.ceiling = dict(share.limit)
        if top.ceiling:
            # Nodes may be gone since the plan.
            total = self._cluster.total
            top.ceiling = {n: min(a, total.amount(n)) for n, a in top.ceiling.items()}
        return quota.how_many(amounts)[1] or quota.blocked_by_terminating(amounts, is_taken=False)

    def is_exceeded(self) -> bool:
        """Return whether a queue, or a namespace in one, exceeds its limit now."""
        return any(
            quota.is_exceeded(quota.ceiling) for name, quota in self._quotas.items() if name != TOP
        )

    def exceeds(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Return whether a limit is exceeded to which *amounts* contribute."""
        quota = self._quota(queue, namespace)
        above = upwards(quota) if quota is not None else ()
        return any(each.is_exceeded(amounts.positive()) for each in above if each.name != TOP)

    def may_start(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Return whether *amounts* of *namespace* may start in *queue* before the next plan."""
        if queue not in self._direct_admission:
            return False
        left = self._direct_admission[queue].left
        if left is not None:
            spent = self._spent.get(queue, NOTHING)
            if any(a > left.amount(n) - spent.amount(n) for n, a in amounts.items() if a > 0):
                return False
        return self.check(queue, namespace, amounts) is None

    def count(self, queue: str, namespace: str, amounts: Resources) -> None:
        """Count *amounts* against limits and guarantees."""
        quota = self._quota(queue, namespace)
        if quota is not None:
            quota.take(amounts)

    def spend(self, queue: str, amounts: Resources) -> None:
        """Subtract *amounts* that were reserved without a plan from what may start."""
        self._spent[queue] = self._spent.get(queue, NOTHING) + amounts


#: Shapes whose counts are cached: a few thousand nodes each.
_SHAPES = 64
#: Nodes whose reserved host ports are cached.
_NODES = 10_000
#: Nodes whose count is cached for one shape: more than exist, because many come and go.
_COUNTED = 20_000
#: By node, the version it was counted at and the count.
_Counts = dict[str, tuple[int, int]]


class NodeCapacity:
    """Free capacity of nodes, neither used nor reserved; belongs to the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = cluster.reservations
        self._versions = cluster.versions
        self._starving: Mapping[str, Resources] = {}
        self._missing: Mapping[str, Resources] = {}
        self._counts: LRUCache[Shape, _Counts] = LRUCache(_SHAPES)
        #: Host ports reserved on a node, and the version of the node.
        self._reserved_ports: LRUCache[str, tuple[int, HostPorts]] = LRUCache(_NODES)

    def keep_free(
        self, starving: Mapping[str, Resources], missing: Mapping[str, Resources]
    ) -> None:
        """Reserve *starving*, and what is *missing* there as soon as it becomes free."""
        if starving != self._starving or missing != self._missing:
            self._starving, self._missing = starving, missing
            self._counts.clear()

    def slots(self, name: str, shape: Shape) -> int | None:
        """Return how many pods of *shape* fit on a node; None for an unknown node."""
        return self._slots(name, shape, self._counts_of(shape))

    @property
    def is_untouched(self) -> bool:
        """Return whether the count of kube-scheduler is right for every node."""
        return not (
            self._table.reserved_nodes()
            or self._table.assumed_nodes()
            or self._starving
            or self._cluster.recently_shrunk()
        )

    def nodes_for(self, shape: Shape, names: Iterable[str], least: int = 1) -> list[str]:
        """Return the nodes that fit *least* pods of *shape*, or on which nothing is contested.

        Where nothing is reserved, and for an unknown node, the count of kube-scheduler is better.
        Where only bindings are on their way, kube-scheduler should know of them. But one that just
        restarted does not, and of a node that shrank it does not know at once. So there one pod
        must fit.
        """
        counts, versions = self._counts_of(shape), self._versions
        reserved, starving = self._table.reserved_nodes(), self._starving
        committed, shrunk = self._table.assumed_nodes(), self._cluster.recently_shrunk()
        kept = []
        for name in names:
            is_contested = name in reserved or name in starving
            if is_contested or name in committed or name in shrunk:
                known = counts.get(name)
                if known is not None and known[0] == versions.get(name):
                    slots: int | None = known[1]
                else:
                    slots = self._slots(name, shape, counts)
                if slots is not None and slots < (least if is_contested else 1):
                    continue
            kept.append(name)
        return kept

    def first_for(self, shape: Shape, names: Iterable[str], rejected: Collection[str]) -> str:
        """Return the first node that fits a pod of *shape* or is unknown; empty without any."""
        counts, versions = self._counts_of(shape), self._versions
        for name in names:
            known = counts.get(name)
            if known is not None and known[0] == versions.get(name):
                slots: int | None = known[1]
            else:
                slots = self._slots(name, shape, counts)
            if (slots is None or slots > 0) and name not in rejected:
                return name
        return ""

    def fits_reservations(self, name: str, shape: Shape) -> bool:
        """Return whether all reservations of the resources of *shape* fit on a node."""
        reserved, committed = self._table.reserved_on(name), self._table.assumed_on(name)
        unused = self._cluster.unused(name)
        return unused is not None and all(
            unused.amount(each) >= reserved.amount(each) + committed.amount(each)
            for each in shape.requests
        )

    def fits(self, name: str, amounts: Resources) -> bool:
        """Return whether *amounts* fit besides all reservations but those for starving gangs."""
        # Reservations are read before usage: a pod that is just being seen counts in both for a
        # moment, never in neither.
        reserved, committed = self._table.reserved_on(name), self._table.assumed_on(name)
        unused = self._cluster.unused(name)
        if unused is None:
            return False
        return all(
            amount <= unused.amount(each) - reserved.amount(each) - committed.amount(each)
            for each, amount in amounts.items()
            if amount > 0
        )

    def _counts_of(self, shape: Shape) -> _Counts:
        counts = self._counts.get(shape)
        if counts is None:
            counts = self._counts[shape] = {}
        return counts

    def _slots(self, name: str, shape: Shape, counts: _Counts) -> int | None:
        version = self._versions.get(name)
        known = counts.get(name)
        if known is not None and known[0] == version:
            return known[1]
        reserved, committed = self._table.reserved_on(name), self._table.assumed_on(name)
        unused = self._cluster.unused(name)
        if unused is None or version is None:
            return None
        starving, missing = self._starving.get(name, NOTHING), self._missing.get(name, NOTHING)
        most = UNLIMITED
        for each, amount in shape.requests.items():
            if amount > 0:
                taken = committed.amount(each) + reserved.amount(each) + starving.amount(each)
                free = unused.amount(each) - taken
                most = min(most, free // amount)
                if missing and most > 0:
                    # Capacity that a starving gang still misses keeps new pods out, and does not
                    # affect reserved pods.
                    most = min(most, max(0, (free - missing.amount(each)) // amount))
        if shape.host_ports:
            most = min(most, 0 if self._conflicts(name, shape, version) else 1)
        if len(counts) >= _COUNTED:
            counts.clear()
        counts[name] = (version, most)
        return most

    def _conflicts(self, name: str, shape: Shape, version: int) -> bool:
        """Return whether a host port of *shape* is used or reserved on a node."""
        if self._cluster.ports(name).conflicts(shape.host_ports):
            return True
        return self._ports_reserved_on(name, version).conflicts(shape.host_ports)

    def _ports_reserved_on(self, name: str, version: int) -> HostPorts:
        """Return the host ports reserved on a node; computed once for all shapes."""
        known = self._reserved_ports.get(name)
        if known is not None and known[0] == version:
            return known[1]
        reserved = HostPorts(
            port for each in self._table.on_node(name) for port in each.shape.host_ports
        )
        if reserved:
            self._reserved_ports[name] = (version, reserved)
        else:
            self._reserved_ports.pop(name, None)
        return reserved
