"""Follows everything the plan depends on, one thread per resource."""

from __future__ import annotations

from extender.cache.cluster import Cluster
from extender.kube.api.client import Access
from extender.kube.decode.watched import resources
from extender.kube.watch.follow import ABSENT_S, SILENCE_S, Follower
from extender.ports import Clock


class Watches:
    """Keeps *cluster* equal to what the API server shows; pods of *schedulers* are ours."""

    def __init__(
        self,
        access: Access,
        cluster: Cluster,
        clock: Clock,
        schedulers: frozenset[str],
        *,
        streaming: bool = True,
        absent_s: float = ABSENT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._cluster = cluster
        self._followers = [
            Follower(
                resource,
                access,
                cluster,
                clock,
                streaming=streaming,
                absent_s=absent_s,
                silence_s=silence_s,
            )
            for resource in resources(schedulers)
        ]

    def start(self) -> None:
        """Begin; `cluster.readiness()` tells when everything has been listed."""
        self._cluster.require_namespaces()
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        """Hang up and wait for all threads to end."""
        for follower in self._followers:
            follower.stop()
        for follower in self._followers:
            follower.join(timeout_s=5)
