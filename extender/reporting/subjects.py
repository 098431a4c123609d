"""What we speak about when we speak about a gang: its PodGroup, or a pod where there is none."""

from __future__ import annotations

from extender.model.gang import Gang
from extender.model.pod import Pod
from extender.model.queue import Queue
from extender.ports import Subject


def of_gang(gang: Gang) -> Subject | None:
    """Name the object people look at; None for a gang without PodGroup and pods."""
    group = gang.group
    if group.dialect and group.uid:
        return Subject(
            kind="PodGroup",
            dialect=group.dialect,
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
        )
    return of_pod(gang.pods[0]) if gang.pods else None


def of_pod(pod: Pod) -> Subject:
    """Name a pod."""
    return Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)


def of_queue(queue: Queue, dialect: str) -> Subject:
    """Name a queue; those that only we imagine have no uid."""
    return Subject(kind="Queue", dialect=dialect, name=queue.name, uid=queue.uid)
