"""The closed list of reasons: one word, the same in answer, event, condition, metric and page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why a gang stands where it stands; the sentence is what kube-scheduler's event shows."""

    # Equality and `Reason("Admitted")` go by the word alone.
    _value_: str
    #: For a person: constant, without counters and without a percent sign.
    sentence: str

    def __new__(cls, word: str, meaning: str) -> Reason:
        """Join the word with what it means."""
        reason = object.__new__(cls)
        reason._value_ = word
        reason.sentence = f"{word}: {meaning}"
        return reason

    ADMITTED = ("Admitted", "the gang may start")
    RUNNING = ("Running", "the gang runs")
    NOT_ENOUGH_MEMBERS = ("NotEnoughMembers", "fewer pods of the gang exist than minMember")
    NOT_ENOUGH_ROLES = ("NotEnoughRoles", "fewer pods of a role exist than the gang needs of it")
    QUEUE_NOT_FOUND = ("QueueNotFound", "the queue of the gang does not exist")
    QUEUE_CLOSED = ("QueueClosed", "the queue of the gang is not open")
    QUEUE_NOT_ALLOWED = ("QueueNotAllowed", "the namespace may not use the queue its gang names")
    QUEUE_OVER_DESERVED = (
        "QueueOverDeserved",
        "the queue uses what it deserves, and no room is left to lend it",
    )
    QUEUE_AT_CAPABILITY = ("QueueAtCapability", "the queue is at its capability")
    NAMESPACE_AT_MOST = (
        "NamespaceAtMost",
        "the namespace has what it may have at most of the queue",
    )
    NOT_ENQUEUED = ("NotEnqueued", "the gang is not let into its queue yet")
    BEHIND_IN_ORDER = ("BehindInOrder", "gangs ahead of it need the room first")
    NOT_ENOUGH_ROOM = ("NotEnoughRoom", "the nodes have no room for the whole gang")
    EXCEEDS_CLUSTER = ("ExceedsCluster", "the gang would not fit the cluster if it were empty")
    WAITING_FOR_VICTIMS = ("WaitingForVictims", "room is being made for the gang")
    BACKING_OFF = ("BackingOff", "the gang did not assemble in time and is tried again later")
    POD_GROUP_MISSING = (
        "PodGroupMissing",
        "the PodGroup named by the pod does not exist or cannot be used",
    )
    NODE_NOT_OURS = ("NodeNotOurs", "nodes without a label of --node-selector are not ours")
    EXEMPT = ("Exempt", "exempt pods wait for nobody; kube-scheduler alone places them")
    GATED = ("Gated", "members of the gang have scheduling gates")


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason with the sentence that names the thing and the mend."""

    reason: Reason
    message: str
