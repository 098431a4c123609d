"""What happened, moment by moment, as somebody outside saw it: kept plain, saved, judged later.

Moments of objects carry the version that the API server gave to the change. Versions count over all
kinds together, so whoever sorts by them knows what came first, however late a watch told of it;
`at` is when it was seen, in seconds of one clock that never steps.

| who notes it | moments |
|---|---|
| `observer.py`, with its own watches | pods, PodGroups, nodes, queues, the API server's absence |
| a proxy before the extender's hooks | `Asked`, and `Answered` or `CutOff` under the same number |
| a proxy before the API server | `BindingAnswered` |
| whoever plays the story | `Killed`, `Ready`, `Promised`, `Line` |
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
#: The way from the extender that leads to the API server.
LEADERS_CABLE = "the leader's link"
#: A line that says: all has come to rest, so whoever waits now waits for ever, and what is missing
#: has leaked, whatever becomes of it later.
RESTED = "all has come to rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something was seen at a time."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Moment):
    """Something changed in the API server; *version* says what came first."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreated(Change):
    """A pod is there. *gang* is namespace and name of its PodGroup, empty when it has none."""

    uid: str
    namespace: str
    name: str
    gang: str = ""
    #: Where the pod itself names one.
    queue: str = ""
    request: Amounts = field(default_factory=dict)
    #: Whether it is for the scheduler under test.
    ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBound(Change):
    """A pod has a node."""

    uid: str
    node: str
    #: The queue that its binding says will pay for it.
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaving(Change):
    """A pod was asked to go, by the scheduler (preempted) or by others."""

    uid: str
    by_scheduler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnded(Change):
    """A pod gave its room back: Succeeded or Failed, and later gone."""

    uid: str
    how: str = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet(Change):
    """A PodGroup is written; *gang* as pods name it."""

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
    """A node is there with so much room; *closed* when it takes nobody new."""

    name: str
    room: Amounts
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone(Change):
    """A node is deleted."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSet(Change):
    """A queue is written; a resource that *ceiling* does not name is not limited."""

    name: str
    ceiling: Amounts = field(default_factory=dict)
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGone(Change):
    """A queue is deleted."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Moment):
    """kube-scheduler asked a hook (filter, preempt, bind) of the extender *to*."""

    call: int
    hook: str
    to: str = ""
    uid: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Moment):
    """The extender answered it; *error* is what the body says, empty for yes."""

    call: int
    status: int = 200
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff(Moment):
    """A call ended without an answer: the caller hung up, or (not *by_caller*) the extender did."""

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
    """A program answers nobody from now on."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Back(Moment):
    """It answers again."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Moment):
    """A program was ended with SIGKILL."""

    who: str
    #: Whether this is the kill that was noted last, still at work: who dies may take a while.
    still: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Moment):
    """A program that was killed and started serves again."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised(Moment):
    """What the extender believes to be taken on each node, once all is quiet."""

    who: str
    taken: Mapping[str, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Moment):
    """Words for whoever reads the story."""

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
    """Moments as they were noted; any thread may note."""

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
        """Note words, now."""
        self.note(Line(at=self.now(), text=text))

    def next_call(self) -> int:
        """Give a number that no other call has."""
        with self._lock:
            self._calls += 1
            return self._calls

    def __iter__(self) -> Iterator[Moment]:
        with self._lock:
            return iter(tuple(self._moments))

    def __len__(self) -> int:
        return len(self._moments)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Give the moments of one kind, as they were noted."""
        return [moment for moment in self if isinstance(moment, kind)]

    def changes(self) -> list[Change]:
        """Give the changes in the order in which they happened."""
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
