"""Queues: what they were promised and what they may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from extender.model.pod import NO_LABELS
from extender.model.resources import NOTHING, Resources

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"


class QueueState(Enum):
    """Only an open queue starts gangs."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A claim on the cluster; resources it does not name in *capability* are not limited."""

    name: str
    weight: int = 1
    capability: Resources = NOTHING
    guarantee: Resources = NOTHING
    deserved: Resources = NOTHING
    priority: int = 0
    reclaimable: bool = True
    parent: str = ""
    state: QueueState = QueueState.OPEN
    created: float = 0.0
    uid: str = ""
    #: `volcano.sh/hierarchy` and `-weights`, for hierarchical DRF.
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: Why it cannot be used (a sentence), empty when it can.
    problem: str = ""
