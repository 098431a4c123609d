"""What the barrier needs to know of the cluster; reads take no lock and no time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid


class Facts(Protocol):
    """The mirror of the cluster, as far as holds are concerned."""

    def pod(self, uid: PodUid) -> Pod | None:
        """Give the pod as last seen, None when it does not exist."""

    def arriving(self, uid: PodUid) -> Pod | None:
        """Give the pod as last seen, or as kube-scheduler showed it to filter a moment ago."""

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Name the gang of a pod; None for a pod that is bound without one."""

    def group(self, key: GangKey) -> PodGroup | None:
        """Give the PodGroup as last seen."""

    def pods_of(self, key: GangKey) -> Iterable[Pod]:
        """Give the members of a gang that exist."""

    def seated(self, key: GangKey) -> int:
        """Count the members on a node, those bound by us and not yet seen included."""

    def seated_in_role(self, key: GangKey, role: str) -> int:
        """Count the members of one role that `seated` counts."""

    def reserved_node(self, uid: PodUid) -> str | None:
        """Give the node on which room is kept for this pod, None without any."""

    def node(self, name: str) -> Node | None:
        """Give a node as last seen."""

    def fits(self, node: str, pods: Iterable[Pod]) -> bool:
        """Ask whether a node has room for *pods* beside all that is there or on its way there."""
