"""A snapshot that moves on: gangs end, others take their places, time passes.

Nothing that the original remembers is shared with what differs from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from extender.model.gang import Gang, GangKey, Phase
from extender.model.memo import Memo
from extender.model.node import Amounts
from extender.model.pod import OCCUPYING_SET, Pod, PodUid, Shape, Status
from extender.model.ports import Ports
from extender.model.snapshot import Snapshot


class MovingCluster:
    """The cluster as it will be; `snapshot` may be planned."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._first = snapshot
        table = snapshot.nodes
        self.gangs = dict(snapshot.gangs)
        self._used, self._releasing = table.used.copy(), table.releasing.copy()
        self._ports = dict(table.ports)
        self._rows: dict[Shape, Amounts] = {}

    def snapshot(self, now: float) -> Snapshot:
        """Give the cluster as it is now, at *now*."""
        # Whoever looks at the snapshot keeps it: later steps must not change it.
        table = replace(
            self._first.nodes,
            used=self._used.copy(),
            releasing=self._releasing.copy(),
            ports=dict(self._ports),
        )
        return replace(self._first, now=now, nodes=table, gangs=dict(self.gangs))

    def end(self, key: GangKey) -> Gang | None:
        """Let a gang be over, wholly."""
        gang = self.gangs.pop(key, None)
        for pod in gang.pods if gang is not None else ():
            self._vacate(pod)
        return gang

    def leave(self, key: GangKey, gone: Callable[[Pod], bool]) -> None:
        """Let pods be gone that were leaving; they do not come back."""
        self._change(key, lambda pod: None if gone(pod) else pod)

    def seat(self, key: GangKey, places: Mapping[PodUid, str], now: float) -> None:
        """Let members run on the nodes they were given."""

        def seated(pod: Pod) -> Pod:
            if pod.uid not in places:
                return pod
            return replace(pod, status=Status.RUNNING, node=places[pod.uid], began=now)

        self._change(key, seated)

    def send_back(self, key: GangKey, evicted: Iterable[PodUid]) -> None:
        """Let members leave their nodes and wait again, as their controllers would make them."""
        away = frozenset(evicted)

        def sent_back(pod: Pod) -> Pod:
            return replace(pod, status=Status.PENDING, node="") if pod.uid in away else pod

        self._change(key, sent_back)

    def enter(self, key: GangKey, phase: Phase) -> None:
        """Let a gang be in another phase."""
        gang = self.gangs[key]
        group = replace(gang.group, phase=phase)
        self.gangs[key] = replace(gang, group=group, memo=Memo())

    def _change(self, key: GangKey, to: Callable[[Pod], Pod | None]) -> None:
        gang, pods = self.gangs[key], list[Pod]()
        for pod in gang.pods:
            new = to(pod)
            if new is not pod:
                self._vacate(pod)
                if new is not None:
                    self._occupy(new)
            if new is not None:
                pods.append(new)
        if pods or gang.group.dialect:
            self.gangs[key] = replace(gang, pods=tuple(pods), memo=Memo())
        else:
            del self.gangs[key]

    def _occupy(self, pod: Pod) -> None:
        row = self._first.nodes.facts.index.get(pod.node)
        if row is not None and pod.status in OCCUPYING_SET:
            self._used[row] += self._row(pod.shape)
            if pod.shape.host_ports:
                taken = self._ports.get(pod.node, Ports())
                self._ports[pod.node] = taken.plus(pod.shape.host_ports)

    def _vacate(self, pod: Pod) -> None:
        row = self._first.nodes.facts.index.get(pod.node)
        if row is None or pod.status not in OCCUPYING_SET:
            return
        amounts = self._row(pod.shape)
        self._used[row] -= amounts
        if pod.status is Status.RELEASING:
            self._releasing[row] -= np.minimum(self._releasing[row], amounts)
        if pod.shape.host_ports and pod.node in self._ports:
            self._ports[pod.node] = self._ports[pod.node].minus(pod.shape.host_ports)

    def _row(self, shape: Shape) -> Amounts:
        row = self._rows.get(shape)
        if row is None:
            names = self._first.nodes.dimensions
            amounts = [shape.requests.amount(name) for name in names]
            row = self._rows[shape] = np.array(amounts, dtype=np.int64)
        return row
