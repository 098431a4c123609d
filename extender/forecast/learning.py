"""Listens to the mirror and notes how long gangs ran that ended well.

Ended well: every member there is has ended and none has failed. Whoever was made to leave, was
deleted while it ran, or failed says nothing about how long such gangs run. The times are those of
the kubelets, so a standby learns too, and whoever restarts learns from pods that are still there.
"""

from __future__ import annotations

from collections import Counter

from extender.cache.cluster import Cluster
from extender.forecast.experience import Experience
from extender.model.pod import Pod, PodUid, Status


def learn_from(cluster: Cluster) -> Experience:
    """Give what is learnt from *cluster* from now on."""
    experience = Experience()
    cluster.watch_pods(Learner(cluster, experience).seen)
    return experience


class Learner:
    """Called in the thread that follows the pods."""

    def __init__(self, cluster: Cluster, experience: Experience) -> None:
        self._cluster = cluster
        self._experience = experience

    def seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Hear how a pod is now; None when it is gone."""
        if pod is None or pod.status is not Status.SUCCEEDED:
            return
        key = self._cluster.gang_of(uid)
        if key is None or not self._cluster.is_over(key):
            return
        pods = self._cluster.pods_of(key)
        group = self._cluster.group(key)
        if any(each.status is Status.FAILED or not each.began for each in pods):
            return
        began = min(each.began for each in pods)
        seconds = max(each.ended for each in pods) - began
        if seconds > 0:
            started_in = Counter(each.started_in for each in pods if each.started_in)
            wanted = group.queue if group is not None else ""
            queue = max(sorted(started_in), key=started_in.__getitem__, default="")
            self._experience.note(
                key, queue or self._cluster.counted_in(key, pod.namespace, wanted), seconds
            )
