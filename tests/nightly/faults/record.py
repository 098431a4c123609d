"""The record of a run, as an independent observer saw it: a list of moments, checked later.

Changes of objects have the resourceVersion of the API server, which orders changes of all kinds,
however late a watch delivers them; `at` is when a moment was observed, by a monotonic clock.

| source | moments |
|---|---|
| `observer.py`, with its own watches | pods, PodGroups, nodes, queues, the API server's absence |
| a proxy before the extender's hooks | `Asked`, and `Answered` or `CutOff` under the same number |
| a proxy before the API server | `BindingAnswered` |
| the runner of the test | `Killed`, `Ready`, `Promised`, `Line` |
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

#: Amounts in thousandths, by name of the resource.
Amounts = Mapping[str, int]

API_SERVER = "kube-apiserver"
#: The connection from the leader to the API server.
LEADERS_LINK = "the leader's link"
#: A line for a pause without changes: a gang that waits now waits for ever, and missing capacity
#: has leaked, whatever happens later.
RESTED = "no more changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that was observed."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Moment):
    """A change of an object; *version* orders changes."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreated(Change):
    """A pod exists. *gang* is namespace/name of its PodGroup, or empty."""

    uid: str
    namespace: str
    name: str
    gang: str = ""
    #: The queue that the pod itself names.
    queue: str = ""
    request: Amounts = field(default_factory=dict)
    #: Whether it is for the scheduler under test.
    ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBound(Change):
    """A pod is bound."""

    uid: str
    node: str
    #: The queue in the annotation of its binding.
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaving(Change):
    """A pod is terminating, by the scheduler (preempted) or by others."""

    uid: str
    by_scheduler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnded(Change):
    """A pod has ended: Succeeded or Failed, and later gone."""

    uid: str
    how: str = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet(Change):
    """A PodGroup was written; *gang* as in pods."""

    gang: str
    uid: str
    minimum: int
    queue: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGone(Change):
    """A PodGroup is deleted."""

    gang: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSet(Change):
    """A node was written; *closed* if it accepts no new pods."""

    name: str
    room: Amounts
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone(Change):
    """A node is deleted."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSet(Change):
    """A queue was written; a resource that is missing in *ceiling* is not limited."""

    name: str
    ceiling: Amounts = field(default_factory=dict)
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGone(Change):
    """A queue is deleted."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Moment):
    """kube-scheduler called a hook (filter, preempt, bind) of the extender *to*."""

    call: int
    hook: str
    to: str = ""
    uid: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Moment):
    """The extender answered the call; *error* is empty for success."""

    call: int
    status: int = 200
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff(Moment):
    """A call ended without a response: the caller (*by_caller*) or the extender disconnected."""

    call: int
    by_caller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingAnswered(Moment):
    """The API server answered a Binding; *delivered* if the extender got the response."""

    uid: str
    node: str
    status: int
    delivered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Away(Moment):
    """A program does not answer from now on."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Back(Moment):
    """It answers again."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Moment):
    """A program was killed."""

    who: str
    #: Whether this repeats the last recorded kill, of which the process has now ended.
    still: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Moment):
    """A killed program serves again."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised(Moment):
    """The usage of each node as the extender reports it, while nothing changes."""

    who: str
    taken: Mapping[str, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Moment):
    """A comment for readers of the record."""

    text: str


KINDS: dict[str, type[Moment]] = {
    kind.__name__: kind
    for kind in (
        PodCreated, PodBound, PodLeaving, PodEnded, GroupSet, GroupGone, NodeSet, NodeGone,
        QueueSet, QueueGone, Asked, Answered, CutOff, BindingAnswered, Away, Back, Killed, Ready,
        Promised, Line,
    )
}  # fmt: skip

Kind = TypeVar("Kind", bound=Moment)


class Record:
    """A list of moments; any thread may add to it."""

    def __init__(
        self, moments: Iterable[Moment] = (), now: Callable[[], float] = time.monotonic
    ) -> None:
        self._moments = list(moments)
        self._lock = threading.Lock()
        self._calls = 0
        self.now = now

    def note(self, *moments: Moment) -> None:
        with self._lock:
            self._moments.extend(moments)

    def line(self, text: str) -> None:
        """Add a comment, now."""
        self.note(Line(at=self.now(), text=text))

    def next_call(self) -> int:
        """Return a new number for a call."""
        with self._lock:
            self._calls += 1
            return self._calls

    def __iter__(self) -> Iterator[Moment]:
        with self._lock:
            return iter(tuple(self._moments))

    def __len__(self) -> int:
        return len(self._moments)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the moments of one kind, in the order of the record."""
        return [moment for moment in self if isinstance(moment, kind)]

    def changes(self) -> list[Change]:
        """Return the changes in the order of their versions."""
        return sorted(self.of(Change), key=lambda change: change.version)

    @property
    def began_at(self) -> float:
        return min((moment.at for moment in self), default=0.0)

    @property
    def ended_at(self) -> float:
        return max((moment.at for moment in self), default=0.0)

    def save(self, path: Path) -> None:
        with path.open("w") as file:
            for moment in self:
                facts = {"what": type(moment).__name__, **asdict(moment)}
                file.write(json.dumps(facts, separators=(",", ":")) + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        with path.open() as file:
            return cls([_moment(json.loads(line)) for line in file])


def _moment(facts: dict[str, Any]) -> Moment:
    return KINDS[facts.pop("what")](**facts)
