"""The closed list of reasons: one word, the same in answer, event, condition, metric and page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why a gang stands where it stands; the sentence is what kube-scheduler's event shows."""

    ADMITTED = "Admitted"
    RUNNING = "Running"
    NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
    NOT_ENOUGH_ROLES = "NotEnoughRoles"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    QUEUE_OVER_DESERVED = "QueueOverDeserved"
    QUEUE_AT_CAPABILITY = "QueueAtCapability"
    NOT_ENQUEUED = "NotEnqueued"
    BEHIND_IN_ORDER = "BehindInOrder"
    NOT_ENOUGH_ROOM = "NotEnoughRoom"
    EXCEEDS_CLUSTER = "ExceedsCluster"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    BACKING_OFF = "BackingOff"
    POD_GROUP_MISSING = "PodGroupMissing"
    GATED = "Gated"

    @property
    def sentence(self) -> str:
        """Say it to a person: constant, without counters and without a percent sign."""
        return f"{self.value}: {_SENTENCES[self]}"


_SENTENCES = {
    Reason.ADMITTED: "the gang may start",
    Reason.RUNNING: "the gang runs",
    Reason.NOT_ENOUGH_MEMBERS: "fewer pods of the gang exist than minMember",
    Reason.NOT_ENOUGH_ROLES: "fewer pods of a role exist than the gang needs of it",
    Reason.QUEUE_NOT_FOUND: "the queue of the gang does not exist",
    Reason.QUEUE_CLOSED: "the queue of the gang is not open",
    Reason.QUEUE_NOT_ALLOWED: "the namespace may not use the queue its gang names",
    Reason.QUEUE_OVER_DESERVED: "the queue uses what it deserves",
    Reason.QUEUE_AT_CAPABILITY: "the queue is at its capability",
    Reason.NOT_ENQUEUED: "the gang is not let into its queue yet",
    Reason.BEHIND_IN_ORDER: "gangs ahead of it need the room first",
    Reason.NOT_ENOUGH_ROOM: "the nodes have no room for the whole gang",
    Reason.EXCEEDS_CLUSTER: "the gang would not fit the cluster if it were empty",
    Reason.WAITING_FOR_VICTIMS: "room is being made for the gang",
    Reason.BACKING_OFF: "the gang did not assemble in time and is tried again later",
    Reason.POD_GROUP_MISSING: "the PodGroup named by the pod does not exist or cannot be used",
    Reason.GATED: "members of the gang have scheduling gates",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason with the sentence that names the thing and the mend."""

    reason: Reason
    message: str
