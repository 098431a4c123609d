"""What queues may still promise: by the last plan, and by what was promised since its snapshot.

A namespace that has a share of its own in a queue is judged by that, and by the queue. What an
administrator wrote of it after the snapshot counts at once: between two plans a namespace could
start everything it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from cachetools import LRUCache

from extender.cache.cluster import Cluster
from extender.model.node import UNLIMITED, HostPorts
from extender.model.pod import Shape
from extender.model.queue import NamespaceShare, share_name
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources
from extender.planner.plan import NO_PLAN, DirectAdmission, Plan
from extender.planner.quota import TOP, QuotaNode, tree, upwards

_NOT_PLANNED = Problem(
    Reason.BEHIND_IN_ORDER, "what its namespace may have of the queue is not planned with yet"
)


class QueueAllowance:
    """Two limits: the ceilings and guarantees of all queues, which hold for everybody; and the
    due of each, which holds for what starts before the next plan."""

    def __init__(
        self,
        spent: Callable[[], Mapping[tuple[str, str], Resources]],
        total: Callable[[], Resources],
        share: Callable[[str, str], NamespaceShare | None],
    ) -> None:
        #: What was promised since the last snapshot, by queue and namespace.
        self._spent_since = spent
        #: What all ready nodes have now; fewer may be left than the plan saw.
        self._total = total
        #: What a namespace may have of a queue by now.
        self._share = share
        self._quotas: dict[str, QuotaNode] = {}
        #: Whether any namespace had a share of its own.
        self._has_shares = False
        self._open: Mapping[str, DirectAdmission] = {}
        #: Of the dues: what was started without a plan.
        self._spent: dict[str, Resources] = {}
        self.renew(NO_PLAN)

    def renew(self, plan: Plan) -> None:
        """Begin anew with what *plan* leaves, less what was promised since its snapshot."""
        self._open, self._quotas = plan.direct_admission, tree(plan.limits, plan.total)
        self._has_shares = any(stake.namespace for stake in plan.limits)
        self._spent = {}
        for (queue, namespace), amounts in self._spent_since().items():
            self.spend(queue, amounts)
            self.count(queue, namespace, amounts)

    def admits_gangs(self, queue: str) -> bool:
        """Return whether a gang may start in *queue* without waiting for a plan."""
        return queue in self._open and self._open[queue].is_quiet

    def _quota(self, queue: str, namespace: str) -> QuotaNode | None:
        """Return the place where what *namespace* has in *queue* counts."""
        own = self._quotas.get(share_name(queue, namespace)) if self._has_shares else None
        return own or self._quotas.get(queue)

    def objection(self, queue: str, namespace: str, amounts: Resources) -> Problem | None:
        """Return which ceiling or guarantee *amounts* more would break, None when none."""
        quota, top = self._quota(queue, namespace), self._quotas[TOP]
        share = self._share(queue, namespace)
        if share is not None and (quota is None or quota.name != share.name):
            return _NOT_PLANNED
        if quota is None:
            return None
        if share is not None:
            quota.ceiling = dict(share.limit)
        if top.ceiling:
            now = self._total()
            top.ceiling = {n: min(a, now.amount(n)) for n, a in top.ceiling.items()}
        return quota.how_many(amounts)[1] or quota.blocked_by_terminating(amounts, is_taken=False)

    def is_exceeded(self) -> bool:
        """Return whether some queue, or namespace in one, has more than its ceiling by now."""
        return any(
            quota.is_exceeded(quota.ceiling) for name, quota in self._quotas.items() if name != TOP
        )

    def exceeds(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Return whether a ceiling is exceeded by something of which *amounts* are a part."""
        quota = self._quota(queue, namespace)
        above = upwards(quota) if quota is not None else ()
        return any(each.is_exceeded(amounts.positive()) for each in above if each.name != TOP)

    def may_start(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Return whether *amounts* of *namespace* may start in *queue* before the next plan."""
        if queue not in self._open:
            return False
        left = self._open[queue].left
        if left is not None:
            spent = self._spent.get(queue, NOTHING)
            if any(a > left.amount(n) - spent.amount(n) for n, a in amounts.items() if a > 0):
                return False
        return self.objection(queue, namespace, amounts) is None

    def count(self, queue: str, namespace: str, amounts: Resources) -> None:
        """Count *amounts* against ceilings and guarantees."""
        quota = self._quota(queue, namespace)
        if quota is not None:
            quota.take(amounts)

    def spend(self, queue: str, amounts: Resources) -> None:
        """Take *amounts* from the due: they were promised without a plan."""
        self._spent[queue] = self._spent.get(queue, NOTHING) + amounts


#: Shapes whose counts are kept: a few thousand nodes each.
_SHAPES = 64
#: Nodes whose promised host ports are kept.
_NODES = 10_000
#: Nodes whose count for one shape is kept: more than there are, for many come and go.
_COUNTED = 20_000
#: By node, the version it was counted at and the count.
_Counts = dict[str, tuple[int, int]]


class NodeCapacity:
    """Room that is neither used nor promised; belongs to the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._promises = cluster.reservations
        self._versions = cluster.versions
        self._fences: Mapping[str, Resources] = {}
        self._owed: Mapping[str, Resources] = {}
        self._counts: LRUCache[Shape, _Counts] = LRUCache(_SHAPES)
        #: Host ports promised on a node, and at which version of it.
        self._promised_ports: LRUCache[str, tuple[int, HostPorts]] = LRUCache(_NODES)

    @property
    def backfill_reservations(self) -> Mapping[str, Resources]:
        """Return the room kept free for gangs that wait too long, by node."""
        return self._fences

    def reserve_for_backfill(
        self, fences: Mapping[str, Resources], owed: Mapping[str, Resources]
    ) -> None:
        """Keep *fences* free, and what is *owed* there as soon as somebody leaves it."""
        if fences != self._fences or owed != self._owed:
            self._fences, self._owed = fences, owed
            self._counts.clear()

    def slots(self, name: str, shape: Shape) -> int | None:
        """Count the pods of *shape* that a node takes; None for an unknown node."""
        counts = self._counts_of(shape)
        return self._slots(name, shape, counts)

    @property
    def is_untouched(self) -> bool:
        """Return whether kube-scheduler's own count is good for every node."""
        promises = self._promises
        return not (
            promises.reserved_nodes()
            or promises.committed_nodes()
            or self._fences
            or self._cluster.recently_shrunk()
        )

    def nodes_for(self, shape: Shape, names: Iterable[str], least: int = 1) -> list[str]:
        """Keep the nodes that take *least* pods of *shape*, or on which nothing is contested.

        Where nothing is promised kube-scheduler's own count is the better one; so it is for a
        node we have not heard of. Where only bindings are on their way it should know of them,
        but one that was just restarted does not; nor does it know at once of a node that shrank:
        the room for one pod must be there.
        """
        counts, versions = self._counts_of(shape), self._versions
        promised, fences = self._promises.reserved_nodes(), self._fences
        committed, shrunk = self._promises.committed_nodes(), self._cluster.recently_shrunk()
        kept = []
        for name in names:
            is_contested = name in promised or name in fences
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

    def first_for(self, shape: Shape, names: Iterable[str], barred: Collection[str]) -> str:
        """Return the first node that takes a pod of *shape* or is unknown to us; "" without any."""
        counts, versions = self._counts_of(shape), self._versions
        for name in names:
            known = counts.get(name)
            if known is not None and known[0] == versions.get(name):
                slots: int | None = known[1]
            else:
                slots = self._slots(name, shape, counts)
            if (slots is None or slots > 0) and name not in barred:
                return name
        return ""

    def fits_reservations(self, name: str, shape: Shape) -> bool:
        """Return whether a node has all that is promised there of what *shape* asks for."""
        promised, committed = self._promises.reserved_on(name), self._promises.committed_on(name)
        idle = self._cluster.unused(name)
        return idle is not None and all(
            idle.amount(each) >= promised.amount(each) + committed.amount(each)
            for each in shape.requests
        )

    def fits(self, name: str, amounts: Resources) -> bool:
        """Return whether *amounts* fit beside all promises; fences are for others to mind."""
        # What is promised is read before what is seen: a pod that is just being seen counts in
        # both for a moment, never in neither.
        promised, committed = self._promises.reserved_on(name), self._promises.committed_on(name)
        idle = self._cluster.unused(name)
        if idle is None:
            return False
        return all(
            amount <= idle.amount(each) - promised.amount(each) - committed.amount(each)
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
        promised, committed = self._promises.reserved_on(name), self._promises.committed_on(name)
        idle = self._cluster.unused(name)
        if idle is None or version is None:
            return None
        fence, owed = self._fences.get(name, NOTHING), self._owed.get(name, NOTHING)
        most = UNLIMITED
        for each, amount in shape.requests.items():
            if amount > 0:
                taken = committed.amount(each) + promised.amount(each) + fence.amount(each)
                free = idle.amount(each) - taken
                most = min(most, free // amount)
                if owed and most > 0:
                    # Debts turn away whoever comes; who has a place already is in nobody's way.
                    most = min(most, max(0, (free - owed.amount(each)) // amount))
        if shape.host_ports:
            most = min(most, 0 if self._clashes(name, shape, version) else 1)
        if len(counts) >= _COUNTED:
            counts.clear()
        counts[name] = (version, most)
        return most

    def _clashes(self, name: str, shape: Shape, version: int) -> bool:
        """Return whether a host port of *shape* is taken on a node, or promised to somebody."""
        if self._cluster.ports(name).conflicts(shape.host_ports):
            return True
        return self._promised_on(name, version).conflicts(shape.host_ports)

    def _promised_on(self, name: str, version: int) -> HostPorts:
        """Return the host ports promised on a node; looked through once for all shapes."""
        known = self._promised_ports.get(name)
        if known is not None and known[0] == version:
            return known[1]
        promised = HostPorts(
            port for each in self._promises.on_node(name) for port in each.shape.host_ports
        )
        if promised:
            self._promised_ports[name] = (version, promised)
        else:
            self._promised_ports.pop(name, None)
        return promised
