"""Builds records by hand, to test each rule."""

from __future__ import annotations

from tests.nightly.faults import record as seen

from .breaches import Bounds
from .record import Record
from .verdict import judge

CPU = 1000
#: Most records do not test waiting.
LONG_WAITS = Bounds(patience_s=1e6)


class Story:
    """Builds the record of a cluster with two nodes of four cores and the queue `default`."""

    def __init__(self) -> None:
        self.record = Record(now=lambda: self.at)
        self.at = 0.0
        self._version = 0
        for name in ("n1", "n2"):
            self.node(name)
        self.queue("default")

    def after(self, seconds: float) -> Story:
        self.at += seconds
        return self

    def node(self, name: str, cpu: int = 4, *, closed: bool = False) -> Story:
        room = {"cpu": cpu * CPU, "pods": 110 * 1000}
        return self._note(seen.NodeSet, name=name, room=room, closed=closed)

    def lose_node(self, name: str) -> Story:
        return self._note(seen.NodeGone, name=name)

    def queue(self, name: str, cpu: int | None = None, *, is_open: bool = True) -> Story:
        ceiling = {} if cpu is None else {"cpu": cpu * CPU}
        return self._note(seen.QueueSet, name=name, ceiling=ceiling, open=is_open)

    def group(self, name: str, minimum: int, queue: str = "default") -> Story:
        return self._note(seen.GroupSet, gang=f"a/{name}", uid=name, minimum=minimum, queue=queue)

    def lose_group(self, name: str) -> Story:
        return self._note(seen.GroupGone, gang=f"a/{name}", uid=name)

    def pods(self, *names: str, gang: str = "", cpu: int = 1, queue: str = "") -> Story:
        """Create pods; the uid is the name."""
        for name in names:
            self._note(
                seen.PodCreated,
                uid=name,
                namespace="a",
                name=name,
                gang=f"a/{gang}" if gang else "",
                queue=queue,
                request={"cpu": cpu * CPU, "pods": 1000},
            )
        return self

    def gang(self, name: str, count: int, minimum: int, queue: str = "default") -> Story:
        """Create a gang with pods `name-0`, `name-1`, …"""
        self.group(name, minimum, queue)
        return self.pods(*(f"{name}-{index}" for index in range(count)), gang=name)

    def bind(self, *names: str, to: str = "n1", queue: str = "") -> Story:
        for name in names:
            self._note(seen.PodBound, uid=name, node=to, queue=queue)
        return self

    def leave(self, *names: str, by_scheduler: bool = False) -> Story:
        for name in names:
            self._note(seen.PodLeaving, uid=name, by_scheduler=by_scheduler)
        return self

    def end(self, *names: str, how: str = "gone") -> Story:
        for name in names:
            self._note(seen.PodEnded, uid=name, how=how)
        return self

    def away(self, seconds: float, who: str = seen.API_SERVER) -> Story:
        """Let the API server, or *who*, not answer for so long."""
        self.record.note(seen.Away(at=self.at, who=who))
        self.after(seconds)
        self.record.note(seen.Back(at=self.at, who=who))
        return self

    def ask(self, pod: str, node: str = "n1", hook: str = "bind") -> int:
        call = self.record.next_call()
        self.record.note(
            seen.Asked(at=self.at, call=call, hook=hook, to="extender", uid=pod, node=node)
        )
        return call

    def answer(self, call: int, error: str = "") -> Story:
        self.record.note(seen.Answered(at=self.at, call=call, error=error))
        return self

    def note(self, *moments: seen.Moment) -> Story:
        self.record.note(*moments)
        return self

    def broken(self, bounds: Bounds | None = None) -> list[str]:
        """Let a second pass, and return the broken rules, each once."""
        self.after(1)
        self.record.line("over")
        return sorted({breach.rule for breach in judge(self.record, bounds or LONG_WAITS).breaches})

    def _note(self, kind: type[seen.Change], **facts: object) -> Story:
        self._version += 1
        self.record.note(kind(at=self.at, version=self._version, **facts))
        return self
