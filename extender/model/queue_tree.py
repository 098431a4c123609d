"""The tree of queues, made from parents that users write freely.

A cycle is cut at one place: the last queue in it, in the order of the input, gets no parent. No
queue is deeper than `MAX_DEPTH`: a deeper one becomes a sibling of the last queue that is not. The
limits above that queue apply to it, and it starts no gang. This bounds every walk up or down the
tree, and nothing here is recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from extender.model.queue import ROOT_QUEUE, Queue

#: Levels of queues, the top one included. No organization is so deep.
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class QueueTree:
    """The parents and levels of some queues, by name."""

    #: The direct parent, cycles cut; queues at the top are absent.
    parents: dict[str, str] = field(default_factory=dict)
    #: The same, with no queue deeper than `MAX_DEPTH`.
    effective_parents: dict[str, str] = field(default_factory=dict)
    #: The level by *parents*, 1 at the top; parents come before their children.
    level: dict[str, int] = field(default_factory=dict)
    #: For each queue in a cycle the whole cycle, each queue before its parent; one tuple for all.
    cycles: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def _add(self, name: str, parent: str | None) -> None:
        if parent is None:
            self.level[name] = 1
            return
        self.parents[name] = parent
        self.level[name] = self.level[parent] + 1
        if self.level[parent] < MAX_DEPTH:
            self.effective_parents[name] = parent
        elif parent in self.effective_parents:
            self.effective_parents[name] = self.effective_parents[parent]

    def add_all(self, path: Iterable[str], written: Mapping[str, str], top: str | None) -> None:
        """Add the queues of *path*, each after its parent; *top* has none."""
        for name in path:
            self._add(name, None if name == top else written.get(name))


def queue_tree(queues: Mapping[str, Queue]) -> QueueTree:
    """Build the tree; a queue without a parent is below the root queue, if there is one."""
    written = {
        name: parent
        for name, queue in queues.items()
        if (parent := queue.parent or ROOT_QUEUE) in queues and (queue.parent or name != parent)
    }
    order = {name: number for number, name in enumerate(queues)}
    tree = QueueTree()
    for name in queues:
        path: dict[str, int] = {}
        here: str | None = name
        while here is not None and here not in tree.level and here not in path:
            path[here] = len(path)
            here = written.get(here)
        climbed = [*path]
        if here is None or here not in path:
            tree.add_all(reversed(climbed), written, None)
            continue
        cycle = tuple(climbed[path[here] :])
        tree.cycles.update(dict.fromkeys(cycle, cycle))
        top = max(cycle, key=order.__getitem__)
        after = cycle.index(top) + 1
        opened = (*climbed[: path[here]], *cycle[after:], *cycle[:after])
        tree.add_all(reversed(opened), written, top)
    return tree


def is_too_deep(queue: Queue, find: Callable[[str], Queue | None]) -> bool:
    """Return whether *queue* is deeper than `MAX_DEPTH`; only its ancestors are read."""
    path, parent = {queue.name}, find(queue.parent or ROOT_QUEUE)
    while parent is not None and parent.name not in path:
        path.add(parent.name)
        if len(path) > MAX_DEPTH:
            return True
        parent = find(parent.parent or ROOT_QUEUE)
    return False
