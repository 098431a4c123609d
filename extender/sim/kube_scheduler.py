"""The simulated kube-scheduler, reduced to the behaviour that an extender can observe.

A scheduling cycle takes one pod. It runs the in-tree fit on its own view (bound, assumed and
nominated pods), first on the nominated node alone, then on a sample of the feasible nodes with a
rotating start. Then it calls our filter. An admitted pod is assumed, and its bind call is sent in
parallel, after PreBind. A refused pod gets a condition and is unschedulable until an event wakes
it. After a failed bind the pod is no longer assumed and retries after a backoff.

Pods of a higher priority go first and may preempt where the extender agrees (`Preemption`). Pods
with scheduling gates are skipped. Scores are left out: any admitted node may be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.errors import ExtenderError
from extender.hooks.gate import Filtered
from extender.model.gang import Membership
from extender.model.node import Node
from extender.model.pod import FINISHED_SET, Pod, PodUid, Shape
from extender.ports import BindOrder
from extender.sim.api_server import ApiServer, WatchEvent
from extender.sim.clock import VirtualClock
from extender.sim.node_table import NodeTable, Preemption

#: httpTimeout of the bind entry.
BIND_TIMEOUT_S = 45.0
LONGEST_BACKOFF_S = 10.0
#: Up to this many nodes are all checked; of more nodes a percentage that shrinks.
_FEW_NODES = 100
_LEAST_PERCENT = 5
#: Without any event an unschedulable pod is retried after this time.
FLUSH_S = 300.0


class HookError(ExtenderError):
    """The answer of a hook is an error: kube-scheduler retries the pod after its backoff."""


class Extender(Protocol):
    """The hooks that kube-scheduler calls; filter and preempt may raise `HookError`."""

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Return which of the *offered* nodes *pod* may use now."""

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the nodes whose victims may be evicted."""

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        """Bind a pod; call *answer* with an error, or with "", at once or much later."""

    def hang_up(self, call: int) -> None:
        """Handle that kube-scheduler closed the connection of a bind call."""


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """Options in which versions and configurations of kube-scheduler differ."""

    #: How many feasible nodes are enough; None: by the number of nodes, as by default
    #: (percentageOfNodesToScore is 0).
    sample: int | None = 100
    #: Queueing hints (1.33 and later): each event of an assigned pod, and a pod's own condition,
    #: wakes the pods that an extender refused. Pods that fit no node are woken only by freed
    #: capacity, which includes a removed nomination. Without hints, deletions, nodes and changed
    #: metadata wake pods.
    hints: bool = True
    #: A refused pod loses its nomination.
    clears_nominations: bool = True
    #: A refused pod that is woken first waits for its backoff, which grows to ten seconds.
    backs_off: bool = False
    #: Each event that may help wakes pods that the extender refused, mostly to be refused again.
    #: Without, they stay unschedulable until the extender wakes them, or for five minutes.
    retries_refused: bool = True


@dataclass(eq=False)
class Assumed:
    """An assumed pod, on the node chosen for it."""

    node: str
    #: When PreBind is done.
    binds_at: float
    call: int | None = None
    called_at: float = 0.0
    answered: bool = False


class KubeScheduler:
    """Schedule one pod at a time."""

    def __init__(
        self,
        time: VirtualClock,
        api: ApiServer,
        extender: Extender,
        options: SchedulerOptions | None = None,
        evict: Callable[[Pod], None] | None = None,
    ) -> None:
        self._time = time
        self._api = api
        self._extender = extender
        self.options = options or SchedulerOptions()
        self._table = NodeTable()
        #: Evicts pods for those of a higher priority; None when preemption is off.
        self._preemption = (
            Preemption(self._table, extender.preempt, evict, self._is_placed) if evict else None
        )
        #: Volumes: pod name -> the only nodes they can be attached to.
        self.volumes: dict[str, frozenset[str]] = {}
        #: Seconds of PreBind by pod name.
        self.prebind_s: dict[str, float] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodUid, SeenPod] = {}
        self.assumed: dict[PodUid, Assumed] = {}
        self.active: list[PodUid] = []
        self.unschedulable: dict[PodUid, float] = {}
        #: Unschedulable pods that fit no node.
        self.no_capacity: set[PodUid] = set()
        self.backoff: dict[PodUid, float] = {}
        #: Capacity was freed since the last check of `no_capacity`.
        self.has_freed_capacity = False
        self._errors: dict[PodUid, int] = {}
        #: Consecutive refusals of each pod.
        self._refusals: dict[PodUid, int] = {}
        self._next_start = 0
        #: Called with the error of each answer to a bind, empty for success.
        self.on_bind_result: Callable[[str], object] = lambda error: None

    # ── watch ─────────────────────────────────────────────────────────────────────────────

    def handle(self, event: WatchEvent) -> None:
        """Handle one event of its watch."""
        change: Change = event.change
        if isinstance(change, Delete):
            if change.kind is Kind.POD:
                self._pod_deleted(PodUid(change.key))
            elif change.kind is Kind.NODE:
                self.nodes.pop(change.key, None)
                self._table.drop(change.key)
        elif isinstance(change, Upsert) and isinstance(change.item, Node):
            self.nodes[change.item.name] = change.item
            self._table.put(change.item)
            self._wake_all()
        elif isinstance(change, Upsert) and isinstance(change.item, SeenPod):
            self._pod_changed(change.item, event.status_only)

    def _pod_deleted(self, uid: PodUid) -> None:
        seen = self.pods.pop(uid, None)
        self._table.remove(uid)
        was_placed = uid in self.assumed or bool(seen and seen.pod.node)
        self._leave_queue(uid)
        # The cache forgets the pod at once; the bind call stays open.
        if uid in self.assumed and self.assumed[uid].call is None:
            del self.assumed[uid]
        if was_placed:
            self._wake_all()

    def _pod_changed(self, seen: SeenPod, status_only: bool) -> None:
        uid, known = seen.pod.uid, self.pods.get(seen.pod.uid)
        self.pods[uid] = seen
        if seen.pod.node:
            self._leave_queue(uid)
            if uid in self.assumed and self.assumed[uid].answered:
                del self.assumed[uid]
            if seen.pod.status in FINISHED_SET:
                self._wake_all()
            elif self.options.hints and self.options.retries_refused:
                self._wake_all(except_for=self.no_capacity)
        elif known is None or known.pod.gated:
            if not seen.pod.gated:
                self.active.append(uid)
        elif uid in self.unschedulable and self._may_help(uid, status_only):
            self._wake(uid)
        self._count(uid)
        if known and known.pod.nominated not in ("", seen.pod.nominated) and self.options.hints:
            self._wake_all()

    def _may_help(self, uid: PodUid, status_only: bool) -> bool:
        return uid not in self.no_capacity if self.options.hints else not status_only

    def _leave_queue(self, uid: PodUid) -> None:
        if uid in self.active:
            self.active.remove(uid)
        self.unschedulable.pop(uid, None)
        self.no_capacity.discard(uid)
        self.backoff.pop(uid, None)
        self._errors.pop(uid, None)
        self._refusals.pop(uid, None)

    def _count(self, uid: PodUid) -> None:
        """Count a pod on the node where it is bound, assumed or nominated."""
        seen, assumed = self.pods.get(uid), self.assumed.get(uid)
        if seen is None or seen.pod.status in FINISHED_SET:
            self._table.remove(uid)
        else:
            node = seen.pod.node or (assumed.node if assumed else seen.pod.nominated)
            self._table.add(seen.pod, node)

    def _wake(self, uid: PodUid) -> None:
        since = self.unschedulable.pop(uid)
        self.no_capacity.discard(uid)
        retry_at = (
            since + _backoff_s(self._refusals.get(uid, 0)) if self.options.backs_off else since
        )
        if retry_at > self._time.monotonic():
            self.backoff[uid] = retry_at
        else:
            self.active.append(uid)

    def _wake_all(self, except_for: Collection[PodUid] = ()) -> None:
        if not self.options.retries_refused:
            self.has_freed_capacity = True
            return
        for uid in [each for each in self.unschedulable if each not in except_for]:
            self._wake(uid)

    def wake_fitting(self) -> None:
        """Wake pods of `no_capacity` that fit a node now."""
        self.has_freed_capacity = False
        if not self.no_capacity:
            return
        fits: dict[Shape, bool] = {}
        for uid in [each for each in self.unschedulable if each in self.no_capacity]:
            pod, shape = self.pods[uid].pod, self.pods[uid].pod.shape
            if shape not in fits:
                fits[shape] = self._table.fits_somewhere(shape)
            # A nominated pod uses capacity of its node itself, which `fits` does not count.
            if fits[shape] or (pod.nominated and self._table.fits(pod, pod.nominated)):
                self._wake(uid)

    # ── the serial loop ───────────────────────────────────────────────────────────────────

    def schedule(self, choice: int = 0) -> bool:
        """Schedule the next pod; return False when there is none."""
        if not self.active:
            return False
        uid = self.active.pop(self._highest_priority())
        seen = self.pods[uid]
        try:
            nodes, message = self._find_nodes(seen)
            if nodes:
                self._assume(seen.pod, self._choose(nodes, choice))
            else:
                self._refuse(seen.pod, message, self._preempt(seen))
        except HookError:
            self._back_off(uid)
        return True

    def _is_placed(self, pod: Pod) -> bool:
        return bool(pod.node) or pod.uid in self.assumed

    def _highest_priority(self) -> int:
        if self._preemption is None:
            return 0
        priorities = [self.pods[uid].pod.priority for uid in self.active]
        return priorities.index(max(priorities))

    def _choose(self, nodes: Sequence[str], choice: int) -> str:
        if len(nodes) == 1:
            return nodes[0]
        return sorted(nodes, key=self._fullness)[choice % len(nodes)]

    def _preempt(self, seen: SeenPod) -> str:
        """Evict pods for one without a node; return the node that it is nominated to."""
        if self._preemption is None:
            return ""
        return self._preemption.preempt(seen.pod, seen.membership)

    def _find_nodes(self, seen: SeenPod) -> tuple[Sequence[str], str]:
        pod, member = seen.pod, seen.membership
        if pod.nominated and self.fits(pod, pod.nominated):
            answer = self._extender.filter(pod, member, (pod.nominated,))
            if answer.nodes:
                return answer.nodes, ""
        offered = self._sample(pod)
        if not offered and pod.name in self.volumes:
            return (), self._message("node(s) had volume node affinity conflict")
        if not offered:
            self.no_capacity.add(pod.uid)
            return (), self._message("Insufficient cpu")
        answer = self._extender.filter(pod, member, offered)
        return answer.nodes, self._message(next(iter(answer.refused.values()), ""))

    def _message(self, why: str) -> str:
        return f"0/{len(self.nodes)} nodes are available: {why}"

    def _sample(self, pod: Pod) -> list[str]:
        only = self.volumes.get(pod.name)
        self._table.remove(pod.uid)  # its own requests do not count
        found, self._next_start = self._table.sample(
            pod.shape, self._next_start, self._sample_size(), only
        )
        self._count(pod.uid)
        return found

    def _sample_size(self) -> int:
        """Return how many feasible nodes are enough."""
        if self.options.sample is not None:
            return self.options.sample
        total = len(self.nodes)
        percent = max(_LEAST_PERCENT, 50 - total // 125)
        return max(_FEW_NODES, total * percent // 100)

    def fits(self, pod: Pod, name: str) -> bool:
        """Return whether the in-tree filters admit *pod* to a node."""
        return name in self.volumes.get(pod.name, self.nodes) and self._table.fits(pod, name)

    def _fullness(self, name: str) -> tuple[int, str]:
        return -self._table.free_cpu(name), name

    def _assume(self, pod: Pod, node: str) -> None:
        binds_at = self._time.monotonic() + self.prebind_s.get(pod.name, 0.0)
        self.assumed[pod.uid] = Assumed(node, binds_at)
        self._count(pod.uid)

    def _refuse(self, pod: Pod, message: str, nominated: str = "") -> None:
        self.unschedulable[pod.uid] = self._time.monotonic()
        self._refusals[pod.uid] = self._refusals.get(pod.uid, 0) + 1
        if nominated or self.options.clears_nominations:
            self._api.patch(pod.uid, refusal=message, nominated=nominated)
        else:
            self._api.patch(pod.uid, refusal=message)

    # ── the binding cycles ────────────────────────────────────────────────────────────────

    @property
    def ready_to_bind(self) -> list[PodUid]:
        """Return the pods whose PreBind is done."""
        now = self._time.monotonic()
        return [
            uid
            for uid, each in self.assumed.items()
            if each.call is None and not each.answered and each.binds_at <= now
        ]

    def send_bind(self, uid: PodUid) -> None:
        """Call the bind hook for a pod."""
        assumed, pod = self.assumed[uid], self.pods[uid].pod
        self.prebind_s.pop(pod.name, None)  # volumes are provisioned once
        assumed.called_at = self._time.monotonic()
        assumed.call = -1  # the answer may come before the call returns
        order = BindOrder(uid=uid, namespace=pod.namespace, name=pod.name, node=assumed.node)
        call = self._extender.bind(order, partial(self._bind_answered, uid, assumed))
        if assumed.call == -1:
            assumed.call = call

    def _bind_answered(self, uid: PodUid, assumed: Assumed, error: str) -> None:
        if self.assumed.get(uid) is not assumed:
            return  # no longer assumed
        self.on_bind_result(error)
        assumed.call, assumed.answered = None, True
        if error:
            self._fail(uid)
        elif uid not in self.pods or self.pods[uid].pod.node:
            del self.assumed[uid]  # the watch event came first
            self._count(uid)

    def _fail(self, uid: PodUid) -> None:
        del self.assumed[uid]
        self._count(uid)
        seen = self.pods.get(uid)
        if seen is not None and not seen.pod.node:
            self._back_off(uid)
            self._api.patch(uid, refusal="", nominated="")
        self._wake_all()

    def _back_off(self, uid: PodUid) -> None:
        errors = self._errors[uid] = self._errors.get(uid, 0) + 1
        self.backoff[uid] = self._time.monotonic() + _backoff_s(errors)

    @property
    def calls(self) -> dict[PodUid, str]:
        """Return the bind calls that wait for an answer: uid -> node."""
        return {uid: each.node for uid, each in self.assumed.items() if each.call is not None}

    # ── time, and a restart ───────────────────────────────────────────────────────────────

    def tick(self) -> None:
        """End backoffs, flush unschedulable pods and time out bind calls."""
        self.end_backoffs()
        now = self._time.monotonic()
        for uid, since in list(self.unschedulable.items()):
            if since + FLUSH_S <= now:
                self._wake(uid)
        for uid, each in list(self.assumed.items()):
            if each.call is not None and each.called_at + BIND_TIMEOUT_S <= now:
                self._fail(uid)
                self._extender.hang_up(each.call)

    def end_backoffs(self) -> None:
        """Requeue pods whose backoff is over."""
        now = self._time.monotonic()
        for uid, until in list(self.backoff.items()):
            if until <= now:
                del self.backoff[uid]
                self.active.append(uid)

    def restart(self, turn: int = 0) -> None:
        """Restart with the objects of the API server, in another order."""
        calls = [each.call for each in self.assumed.values() if each.call is not None]
        self.assumed.clear()
        self.active, self.unschedulable, self.backoff, self._errors = [], {}, {}, {}
        self._refusals = {}
        self.no_capacity = set()
        for call in calls:
            self._extender.hang_up(call)
        self._api.to_scheduler.clear()
        self.nodes, self.pods = dict(self._api.nodes), dict(self._api.pods)
        self._table.clear()
        for node in self.nodes.values():
            self._table.put(node)
        for uid in self.pods:
            self._count(uid)
        waiting = [
            uid for uid, seen in self.pods.items() if not seen.pod.node and not seen.pod.gated
        ]
        turn %= max(len(waiting), 1)
        self.active = waiting[turn:] + waiting[:turn]


def _backoff_s(times: int) -> float:
    """Return the backoff of a pod after so many failures: 1, 2, 4, 8, 10 seconds."""
    return min(2.0 ** (times - 1), LONGEST_BACKOFF_S) if times else 0.0
