"""Test doubles for ports: they record calls, or answer when a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.permit.runner import PermitRunner
from extender.ports import (
    BindOrder,
    BindOutcome,
    BindResult,
    EventRecord,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    ObjectReference,
    OnOutcome,
)


class ManualBinder:
    """Takes bind orders; a test decides their outcome."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        #: The deadline of each batch.
        self.untils: list[float] = []
        self.at_once: BindOutcome | None = None
        #: Reports an outcome for any order.
        self.settle: OnOutcome
        self._sent: dict[str, tuple[BindOrder, OnOutcome]] = {}

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        self.settle = settle
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
    """One bind call as its client sees it: the answer, and a way to disconnect."""

    def __init__(self, barrier: PermitRunner, uid: str, node: str = "n-1") -> None:
        super().__init__()
        self._barrier = barrier
        order = BindOrder(uid=PodUid(uid), namespace="team", name=uid, node=node)
        self._id = barrier.bind(order, self.set_result)

    def hang_up(self) -> None:
        self._barrier.peer_gone(self._id)


class ManualReader:
    """Reads PodGroups; a test decides the answer of the API server."""

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


class RecordingUndo:
    """Records the evictions of partial gangs."""

    def __init__(self) -> None:
        self.taken: list[tuple[GangKey, list[str]]] = []
        #: Whether it refuses, as for pods without a controller that would recreate them.
        self.refuses = False

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        self.taken.append((gang, [order.uid for order in orders]))
        (stays if self.refuses else leaves)(gang)


class RecordingObserver:
    """Records what the permit runner reports."""

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


@dataclass
class RecordingAnnouncer:
    notices: list[EventRecord] = field(default_factory=list)

    def write(self, notice: EventRecord) -> None:
        self.notices.append(notice)

    def said(self) -> list[tuple[str, str]]:
        return [(notice.subject.name, notice.reason) for notice in self.notices]


class RecordingEvictor:
    """Answers at once, with the entry of the pod in *outcomes*."""

    def __init__(self) -> None:
        self.orders: list[EvictOrder] = []
        self.outcomes: dict[str, EvictOutcome] = {}

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        self.orders += orders
        leaving = EvictOutcome(EvictResult.LEAVING)
        return [settled(self.outcomes.get(order.name, leaving)) for order in orders]

    def names(self) -> list[str]:
        return [order.name for order in self.orders]


class SlowEvictor(RecordingEvictor):
    """Answers when a test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: dict[str, Future[EvictOutcome]] = {}

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        self.orders += orders
        made: list[Future[EvictOutcome]] = [Future() for _ in orders]
        self.futures |= {order.name: future for order, future in zip(orders, made, strict=True)}
        return made

    def answer(self, *names: str, result: EvictResult = EvictResult.LEAVING) -> None:
        """Answer for these pods, or for all."""
        for name in names or tuple(self.unanswered()):
            self.futures[name].set_result(EvictOutcome(result, "the API server says so"))

    def unanswered(self) -> list[str]:
        return [name for name, future in self.futures.items() if not future.done()]


class RecordingWriter:
    """Keeps statuses, and merges patches like the API server."""

    def __init__(self) -> None:
        self.statuses: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[ObjectReference, Mapping[str, Any]]] = []
        self.reads: list[ObjectReference] = []
        self.failures: list[Exception] = []
        #: A status that another client writes just before us, once; our write then conflicts.
        self.overtaken: dict[str, dict[str, Any]] = {}

    def read(self, subject: ObjectReference) -> Future[Mapping[str, Any] | None]:
        self.reads.append(subject)
        return settled(self.statuses.get(subject.uid, {}))

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        if self.failures:
            failed: Future[Mapping[str, Any] | None] = Future()
            failed.set_exception(self.failures.pop())
            return failed
        if subject.uid in self.overtaken:
            self.statuses[subject.uid] = self.overtaken.pop(subject.uid)
            return settled(None)
        self.writes.append((subject, status))
        merged = merge_patched(self.statuses.get(subject.uid), status)
        self.statuses[subject.uid] = merged
        return settled(merged)

    def of(self, name: str) -> list[Mapping[str, Any]]:
        """Return every status written to an object, in order."""
        return [status for subject, status in self.writes if subject.name == name]


def merge_patched(there: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return *there* with a JSON merge patch applied: objects are merged, null deletes a key."""
    merged = {**there} if isinstance(there, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            is_object = isinstance(value, Mapping)
            merged[key] = merge_patched(merged.get(key), value) if is_object else value
    return merged


def settled(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
