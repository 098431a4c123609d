"""What a story needs of a cluster, be it real or embedded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Object: TypeAlias = dict[str, Any]

#: The scheduler of all pods of stories.
SCHEDULER = "story-scheduler"


@dataclass(frozen=True, slots=True)
class Look:
    """What can be seen of a namespace."""

    #: Pod -> its node, empty while it has none.
    pods: Mapping[str, str]
    #: Gang -> the reason of its verdict.
    reasons: Mapping[str, str]
    #: Gangs for which room is kept, because they have waited long.
    kept: frozenset[str] = field(default_factory=frozenset)


class Stage(Protocol):
    """A cluster without anything but kube-scheduler and the extender."""

    #: Where all pods and PodGroups of the story live.
    namespace: str
    #: Ends the names of whatever lives in no namespace.
    mark: str

    def create(self, *things: Object) -> None:
        """Create objects one after the other."""

    def change(self, kind: str, name: str, change: Object) -> None:
        """Merge *change* into an object."""

    def remove(self, kind: str, name: str) -> None:
        """Delete an object at once; it may be gone already."""

    def hear(self) -> None:
        """Wait until the extender knows all nodes and queues as they are."""

    def look(self) -> Look:
        """See how things stand now."""

    def settle(self, is_as_told: Callable[[Look], bool]) -> Look:
        """Let everything happen that is going to, and look.

        Where nobody can know when that is, the end is when *is_as_told*, or much later.
        """
