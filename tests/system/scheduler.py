"""kube-scheduler, small but faithful: what an extender notices of it, and nothing else.

One pod at a time: in-tree fit on its own view (pods it saw bound, pods it assumed, pods nominated
by others), first on the nominated node alone, then on a sample of the feasible nodes with a
rotating start; then our filter. A pod that passed is assumed, and its bind call goes out beside
the loop, after PreBind. A refused pod is parked with a condition until something wakes it; a
failed bind is forgotten and comes back after a pause.

Left out: priorities, preemption, scheduling gates, scores (any passed node may be chosen).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.model.gang import Membership
from extender.model.node import Node
from extender.model.pod import FINISHED_SET, Pod, PodUid
from extender.model.resources import NOTHING, Resources
from extender.ports import BindOrder

from .api_server import ApiServer, News
from .virtual_time import VirtualTime

#: httpTimeout of the bind entry.
BIND_TIMEOUT_S = 45.0
LONGEST_BACKOFF_S = 10.0
#: Without any event a parked pod is tried again after this long.
FLUSH_S = 300.0


class Filtered(NamedTuple):
    """The extender's answer."""

    nodes: Sequence[str]
    refused: Mapping[str, str] = {}


class Extender(Protocol):
    """Whom kube-scheduler asks."""

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered: ...

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int: ...

    def hang_up(self, call: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Ways:
    """In what the versions and configurations of kube-scheduler differ."""

    #: How many feasible nodes are enough.
    sample: int = 100
    #: Queueing hints (1.33 and later): every event of an assigned pod, and a pod's own condition,
    #: wakes those an extender refused; those that no node had room for are woken only by room that
    #: becomes free, a nomination that is taken back among it. Without: by deletions, nodes, and
    #: changed metadata.
    hints: bool = True
    #: A refused pod loses its nomination.
    clears_nominations: bool = True


@dataclass(eq=False)
class Assumed:
    """A pod on its way to the node chosen for it."""

    node: str
    #: When PreBind is done.
    binds_at: float
    call: int | None = None
    called_at: float = 0.0
    answered: bool = False


class KubeScheduler:
    """Decides one pod at a time."""

    def __init__(
        self, time: VirtualTime, api: ApiServer, extender: Extender, ways: Ways | None = None
    ) -> None:
        self._time = time
        self._api = api
        self._extender = extender
        self.ways = ways or Ways()
        #: Volumes: pod name -> the only nodes they can be attached to.
        self.volumes: dict[str, frozenset[str]] = {}
        #: Seconds of PreBind by pod name.
        self.prebind_s: dict[str, float] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodUid, SeenPod] = {}
        self.assumed: dict[PodUid, Assumed] = {}
        self.active: list[PodUid] = []
        self.parked: dict[PodUid, float] = {}
        #: Those of them that no node had room for.
        self.roomless: set[PodUid] = set()
        self.backoff: dict[PodUid, float] = {}
        self._errors: dict[PodUid, int] = {}
        self._next_start = 0

    # ── what it hears ─────────────────────────────────────────────────────────────────────

    def hear(self, news: News) -> None:
        """Take in one line of its watch."""
        change: Change = news.change
        if isinstance(change, Delete):
            if change.kind is Kind.POD:
                self._pod_gone(PodUid(change.key))
            elif change.kind is Kind.NODE:
                self.nodes.pop(change.key, None)
        elif isinstance(change, Upsert) and isinstance(change.item, Node):
            self.nodes[change.item.name] = change.item
            self._wake_all()
        elif isinstance(change, Upsert) and isinstance(change.item, SeenPod):
            self._pod_changed(change.item, news.status_only)

    def _pod_gone(self, uid: PodUid) -> None:
        seen = self.pods.pop(uid, None)
        was_placed = uid in self.assumed or bool(seen and seen.pod.node)
        self._leave_queue(uid)
        # The cache is freed at once; the bind call stays open.
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
            elif self.ways.hints:
                self._wake_all(besides=self.roomless)
        elif known is None:
            self.active.append(uid)
        elif uid in self.parked and self._is_worth_a_look(uid, status_only):
            self._wake(uid)
        if known and known.pod.nominated not in ("", seen.pod.nominated) and self.ways.hints:
            self._wake_all()

    def _is_worth_a_look(self, uid: PodUid, status_only: bool) -> bool:
        return uid not in self.roomless if self.ways.hints else not status_only

    def _leave_queue(self, uid: PodUid) -> None:
        if uid in self.active:
            self.active.remove(uid)
        self.parked.pop(uid, None)
        self.roomless.discard(uid)
        self.backoff.pop(uid, None)
        self._errors.pop(uid, None)

    def _wake(self, uid: PodUid) -> None:
        del self.parked[uid]
        self.roomless.discard(uid)
        self.active.append(uid)

    def _wake_all(self, besides: Collection[PodUid] = ()) -> None:
        for uid in [each for each in self.parked if each not in besides]:
            self._wake(uid)

    # ── the serial loop ───────────────────────────────────────────────────────────────────

    def schedule(self, choice: int = 0) -> bool:
        """Look at the next pod; False when there is none."""
        if not self.active:
            return False
        uid = self.active.pop(0)
        seen = self.pods[uid]
        passed, words = self._find_nodes(seen)
        if passed:
            self._assume(seen.pod, sorted(passed, key=self._fullness)[choice % len(passed)])
        else:
            self._refuse(seen.pod, words)
        return True

    def _find_nodes(self, seen: SeenPod) -> tuple[Sequence[str], str]:
        pod, member = seen.pod, seen.membership
        if pod.nominated and self.takes(pod, pod.nominated):
            answer = self._extender.filter(pod, member, (pod.nominated,))
            if answer.nodes:
                return answer.nodes, ""
        offered = self._sample(pod)
        if not offered and pod.name in self.volumes:
            return (), self._words("node(s) had volume node affinity conflict")
        if not offered:
            self.roomless.add(pod.uid)
            return (), self._words("Insufficient cpu")
        answer = self._extender.filter(pod, member, offered)
        return answer.nodes, self._words(next(iter(answer.refused.values()), ""))

    def _words(self, why: str) -> str:
        return f"0/{len(self.nodes)} nodes are available: {why}"

    def _sample(self, pod: Pod) -> tuple[str, ...]:
        names = sorted(self.nodes)
        start = self._next_start % max(len(names), 1)
        found: list[str] = []
        looked = 0
        for name in names[start:] + names[:start]:
            if len(found) >= self.ways.sample:
                break
            looked += 1
            if self.takes(pod, name):
                found.append(name)
        self._next_start = start + looked
        return tuple(found)

    def takes(self, pod: Pod, name: str) -> bool:
        """Ask whether its own filters would have *pod* on a node."""
        node = self.nodes.get(name)
        if node is None or node.taints or node.unschedulable or not node.ready:
            return False
        if name not in self.volumes.get(pod.name, self.nodes):
            return False
        taken = sum((each.requests for each in self._there(name, pod.uid)), NOTHING)
        return (taken + pod.requests).fits_in(node.allocatable)

    def _there(self, name: str, besides: PodUid) -> Iterator[Pod]:
        """Give the pods that count on a node, those nominated to it included."""
        for uid, seen in self.pods.items():
            assumed = self.assumed.get(uid)
            place = seen.pod.node or (assumed.node if assumed else seen.pod.nominated)
            if uid != besides and place == name and seen.pod.status not in FINISHED_SET:
                yield seen.pod

    def _fullness(self, name: str) -> tuple[int, str]:
        free = self.nodes[name].allocatable - self._used(name)
        return -free.amount("cpu"), name

    def _used(self, name: str) -> Resources:
        return sum((each.requests for each in self._there(name, PodUid(""))), NOTHING)

    def _assume(self, pod: Pod, node: str) -> None:
        binds_at = self._time.monotonic() + self.prebind_s.get(pod.name, 0.0)
        self.assumed[pod.uid] = Assumed(node, binds_at)

    def _refuse(self, pod: Pod, words: str) -> None:
        self.parked[pod.uid] = self._time.monotonic()
        cleared = {"nominated": ""} if self.ways.clears_nominations else {}
        self._api.patch(pod.uid, refusal=words, **cleared)

    # ── the binding cycles ────────────────────────────────────────────────────────────────

    @property
    def ready_to_bind(self) -> list[PodUid]:
        """Name the pods whose PreBind is done."""
        now = self._time.monotonic()
        return [
            uid
            for uid, each in self.assumed.items()
            if each.call is None and not each.answered and each.binds_at <= now
        ]

    def send_bind(self, uid: PodUid) -> None:
        """Call our bind for a pod."""
        assumed, pod = self.assumed[uid], self.pods[uid].pod
        self.prebind_s.pop(pod.name, None)  # volumes are made once
        assumed.called_at = self._time.monotonic()
        assumed.call = -1  # answered perhaps before the call returns
        order = BindOrder(uid=uid, namespace=pod.namespace, name=pod.name, node=assumed.node)
        call = self._extender.bind(order, partial(self._answered, uid, assumed))
        if assumed.call == -1:
            assumed.call = call

    def _answered(self, uid: PodUid, assumed: Assumed, error: str) -> None:
        if self.assumed.get(uid) is not assumed:
            return  # given up meanwhile
        assumed.call, assumed.answered = None, True
        if error:
            self._fail(uid)
        elif uid not in self.pods or self.pods[uid].pod.node:
            del self.assumed[uid]  # its watch was quicker

    def _fail(self, uid: PodUid) -> None:
        del self.assumed[uid]
        seen = self.pods.get(uid)
        if seen is not None and not seen.pod.node:
            errors = self._errors[uid] = self._errors.get(uid, 0) + 1
            pause_s = min(2.0 ** (errors - 1), LONGEST_BACKOFF_S)
            self.backoff[uid] = self._time.monotonic() + pause_s
            self._api.patch(uid, refusal="", nominated="")
        self._wake_all()

    @property
    def calls(self) -> dict[PodUid, str]:
        """Give the bind calls that wait for an answer: uid -> node."""
        return {uid: each.node for uid, each in self.assumed.items() if each.call is not None}

    # ── time, and the end of it ───────────────────────────────────────────────────────────

    def tick(self) -> None:
        """Do what time brings: pauses end, calls take too long."""
        now = self._time.monotonic()
        for uid, until in list(self.backoff.items()):
            if until <= now:
                del self.backoff[uid]
                self.active.append(uid)
        for uid, since in list(self.parked.items()):
            if since + FLUSH_S <= now:
                self._wake(uid)
        for uid, each in list(self.assumed.items()):
            if each.call is not None and each.called_at + BIND_TIMEOUT_S <= now:
                self._fail(uid)
                self._extender.hang_up(each.call)

    def restart(self, turn: int = 0) -> None:
        """Die, and begin anew with what the API server has, in another order."""
        calls = [each.call for each in self.assumed.values() if each.call is not None]
        self.assumed.clear()
        self.active, self.parked, self.backoff, self._errors = [], {}, {}, {}
        self.roomless = set()
        for call in calls:
            self._extender.hang_up(call)
        self._api.to_scheduler.clear()
        self.nodes, self.pods = dict(self._api.nodes), dict(self._api.pods)
        waiting = [uid for uid, seen in self.pods.items() if not seen.pod.node]
        turn %= max(len(waiting), 1)
        self.active = waiting[turn:] + waiting[:turn]
