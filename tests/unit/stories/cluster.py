"""What a story needs from a cluster, real or embedded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Object: TypeAlias = dict[str, Any]

#: The scheduler of all pods of stories.
SCHEDULER = "story-scheduler"


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of a namespace."""

    #: Pod -> its node, empty while it has none.
    pods: Mapping[str, str]
    #: Gang -> the reason of its verdict.
    reasons: Mapping[str, str]
    #: Gangs for which capacity is reserved because they have waited long.
    kept: frozenset[str] = field(default_factory=frozenset)


class StoryCluster(Protocol):
    """A cluster that runs only kube-scheduler and the extender."""

    #: The namespace of all pods and PodGroups of the story.
    namespace: str
    #: Suffix of the names of cluster-scoped objects.
    mark: str

    def create(self, *things: Object) -> None:
        """Create objects one after the other."""

    def change(self, kind: str, name: str, change: Object) -> None:
        """Merge *change* into an object."""

    def remove(self, kind: str, name: str) -> None:
        """Delete an object at once; it may be gone already."""

    def wait_until_known(self) -> None:
        """Wait until the extender knows all nodes and queues as they are."""

    def observe(self) -> Observation:
        """Return the present state."""

    def settle(self, is_expected: Callable[[Observation], bool]) -> Observation:
        """Wait until the cluster has settled, and return its state.

        A real cluster counts as settled when *is_expected* is true, or after a long timeout.
        """
