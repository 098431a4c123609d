"""Who wants to hear of a change, and what there is to tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid

log = logging.getLogger(__name__)

PodListener: TypeAlias = Callable[[PodUid, Pod | None], None]
GroupListener: TypeAlias = Callable[[GangKey, PodGroup | None], None]
NodeListener: TypeAlias = Callable[[str, Node | None], None]


@dataclass(slots=True)
class News:
    """What one change came to; None stands for gone."""

    pods: list[tuple[PodUid, Pod | None]] = field(default_factory=list)
    groups: list[tuple[GangKey, PodGroup | None]] = field(default_factory=list)
    nodes: list[tuple[str, Node | None]] = field(default_factory=list)
    #: There is something new to plan.
    changed: bool = False


class Listeners:
    """Called in the thread that brought the change, in the order in which they came."""

    def __init__(self) -> None:
        self.change: list[Callable[[], None]] = []
        self.pod: list[PodListener] = []
        self.group: list[GroupListener] = []
        self.node: list[NodeListener] = []

    def tell(self, news: News) -> None:
        """Pass *news* on; a listener that fails is logged and keeps nobody else waiting."""
        for uid, pod in news.pods:
            for on_pod in self.pod:
                _call(on_pod, uid, pod)
        for key, group in news.groups:
            for on_group in self.group:
                _call(on_group, key, group)
        for name, node in news.nodes:
            for on_node in self.node:
                _call(on_node, name, node)
        if news.changed:
            self.wake()

    def wake(self) -> None:
        """Say that there is something new to plan."""
        for listener in self.change:
            _call(listener)


def _call(listener: Callable[..., None], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        # The mirror must stay true whatever becomes of those who look at it.
        log.exception("a listener of the mirror failed")
