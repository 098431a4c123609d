"""Whom we have asked to leave and not seen leave yet: nobody counts on them any more.

Between the order to evict a gang and the moment in which our watch shows its last member leave lie
tenths of a second, or seconds with many of them. Whoever joined it meanwhile, because it runs,
would be left behind alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol, TypeAlias

from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, Pod, PodUid

#: Counts who of a gang, or of one role in it, may be leaving beside those, unseen.
Granted: TypeAlias = Callable[[GangKey, str | None, Set[PodUid]], int]


class Meanwhile(Protocol):
    """How things are in this moment, which a plan may not have seen."""

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        """Give the pods of a gang."""

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        """Name who of a gang is on a node, or on the way there."""


class Goodbyes:
    """Written by the one who evicts, read from any thread: it is replaced as a whole."""

    def __init__(self, meanwhile: Meanwhile) -> None:
        self.meanwhile = meanwhile
        #: Told by whoever lets kube-scheduler evict.
        self.granted: Granted = lambda gang, role, beside: 0
        self._asked: Mapping[GangKey, Set[PodUid]] = {}

    def are_said_to(self, pods: Mapping[PodUid, GangKey]) -> None:
        """Hear who has been asked and has not left, each with its gang; nobody else has."""
        asked: dict[GangKey, set[PodUid]] = {}
        for uid, gang in pods.items():
            asked.setdefault(gang, set()).add(uid)
        self._asked = asked

    def among(self, gang: GangKey, pods: Mapping[PodUid, Pod]) -> list[Pod]:
        """Give those of a gang who were asked and seem to stay; nearly always nobody."""
        asked = (pods.get(uid) for uid in self._asked.get(gang, ()))
        return [pod for pod in asked if pod is not None and pod.status in SEATED_SET]
