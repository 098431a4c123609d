"""Who is below whom, among queues in which anybody may be written as anybody's parent.

A circle is opened at one place: of the queues in it the last one, in the order in which they come,
has nobody above. And nobody is further down than `DEEPEST`: who is written there hangs beside the
last who may be, under all the ceilings above that one, and starts nothing. Everything that climbs a
line or descends a tree is bounded by that, and nothing here calls itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from extender.model.queue import ROOT_QUEUE, Queue

#: Levels of queues, the one at the top included. Companies are not so deep.
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class QueueTree:
    """The lines of some queues, by name."""

    #: Who is directly above, circles opened; who is at the top is not in it.
    parents: dict[str, str] = field(default_factory=dict)
    #: The same, with nobody further down than `DEEPEST`.
    effective_parents: dict[str, str] = field(default_factory=dict)
    #: The level on which it is written, 1 at the top; parents come before their children.
    level: dict[str, int] = field(default_factory=dict)
    #: For each in a circle all of it, everybody before who is above; one for all in it.
    cycles: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def _settle(self, name: str, above: str | None) -> None:
        if above is None:
            self.level[name] = 1
            return
        self.parents[name] = above
        self.level[name] = self.level[above] + 1
        if self.level[above] < MAX_DEPTH:
            self.effective_parents[name] = above
        elif above in self.effective_parents:
            self.effective_parents[name] = self.effective_parents[above]

    def _settle_all(self, line: Iterable[str], written: Mapping[str, str], top: str | None) -> None:
        for name in line:
            self._settle(name, None if name == top else written.get(name))


def queue_tree(queues: Mapping[str, Queue]) -> QueueTree:
    """Find out who is below whom; who names no parent is below the root, if there is one."""
    written = {
        name: parent
        for name, queue in queues.items()
        if (parent := queue.parent or ROOT_QUEUE) in queues and (queue.parent or name != parent)
    }
    order = {name: place for place, name in enumerate(queues)}
    kin = QueueTree()
    for name in queues:
        line: dict[str, int] = {}
        here: str | None = name
        while here is not None and here not in kin.level and here not in line:
            line[here] = len(line)
            here = written.get(here)
        climbed = [*line]
        if here is None or here not in line:
            kin._settle_all(reversed(climbed), written, None)
            continue
        circle = tuple(climbed[line[here] :])
        kin.cycles.update(dict.fromkeys(circle, circle))
        top = max(circle, key=order.__getitem__)
        after = circle.index(top) + 1
        opened = (*climbed[: line[here]], *circle[after:], *circle[:after])
        kin._settle_all(reversed(opened), written, top)
    return kin


def is_too_deep(queue: Queue, find: Callable[[str], Queue | None]) -> bool:
    """Ask whether *queue* is written too far down; only those above it are looked at."""
    line, above = {queue.name}, find(queue.parent or ROOT_QUEUE)
    while above is not None and above.name not in line:
        line.add(above.name)
        if len(line) > MAX_DEPTH:
            return True
        above = find(above.parent or ROOT_QUEUE)
    return False
