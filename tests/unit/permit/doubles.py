"""Stand-ins for what the barrier talks to: time that a test turns, an API server it speaks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from extender.holds.barrier import Barrier
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome, BindResult, EvictOrder, Settle


class SpokenBinder:
    """Takes orders; a test says what becomes of them."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        #: By when the outcomes of each batch are wanted.
        self.untils: list[float] = []
        self.at_once: BindOutcome | None = None
        self._sent: dict[str, tuple[BindOrder, Settle]] = {}

    def bind(self, orders: Sequence[BindOrder], settle: Settle, until: float) -> None:
        self.untils.append(until)
        self.batches.append([order.uid for order in orders])
        for order in orders:
            self._sent[order.uid] = order, settle
            if self.at_once is not None:
                settle(order, self.at_once)

    def say(self, uid: str, outcome: BindOutcome | None = None) -> None:
        order, settle = self._sent[uid]
        settle(order, outcome or BindOutcome(BindResult.BOUND))


class Call(Future[str]):
    """One bind call as its caller sees it: the answer, and a way to hang up."""

    def __init__(self, barrier: Barrier, uid: str, node: str = "n-1") -> None:
        super().__init__()
        self._barrier = barrier
        order = BindOrder(uid=PodUid(uid), namespace="team", name=uid, node=node)
        self._id = barrier.bind(order, self.set_result)

    def hang_up(self) -> None:
        self._barrier.peer_gone(self._id)


class SpokenReader:
    """Reads PodGroups; a test says what the API server shows."""

    def __init__(self) -> None:
        self.reads: list[tuple[PodGroup, Future[PodGroup | None]]] = []
        self.at_once = False

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        future = Future[PodGroup | None]()
        self.reads.append((group, future))
        if self.at_once:
            future.set_result(group)
        return future

    def confirm(self) -> None:
        group, future = self.reads[-1]
        future.set_result(group)


class SpokenUndo:
    """Notes what is to be taken back."""

    def __init__(self) -> None:
        self.taken: list[tuple[GangKey, list[str]]] = []
        #: Nobody would make its pods anew.
        self.refuses = False

    def take_back(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        self.taken.append((gang, [order.uid for order in orders]))
        (stays if self.refuses else leaves)(gang)


class Notebook:
    """Writes down what the barrier reports."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float]] = []
        self.partial: list[GangKey] = []
        self.closed: list[float] = []
        self.learnt: float | None = None

    def released(self, cause: str, waited_s: float) -> None:
        self.ended.append((cause, waited_s))

    def partial_commit(self, gang: GangKey) -> None:
        self.partial.append(gang)

    def peer_closed(self, age_s: float) -> None:
        self.closed.append(age_s)

    def learnt_timeout(self, seconds: float | None) -> None:
        self.learnt = seconds
