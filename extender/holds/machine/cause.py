"""Why a bind call ended: a word for metrics, a constant sentence for kube-scheduler's event.

kube-scheduler retries a pod at once when its refusal reads differently from the last one, so
the sentences carry no counters; its event recorder chokes on percent signs, so none of those.
"""

from __future__ import annotations

from enum import Enum

from extender.model.gang import GangKey


class Cause(Enum):
    """The closed list of what ends a bind call; the value is its sentence."""

    __hash__ = object.__hash__  # as with `Status`

    BOUND = "the pod is bound"
    BIND_FAILED = "the API server did not bind the pod"
    DEADLINE = "members did not assemble in time"
    TOO_LATE = "too little time is left to bind the whole gang"
    TOO_LARGE = "it is too large to be bound in time; raise the bind timeout"
    SIBLING_UNSCHEDULABLE = "a member that is needed fits no node"
    NOT_ENOUGH_MEMBERS = "too few members are left to reach minMember"
    INCOMPLETE = "the rest of the gang has not been created yet"
    UNVERIFIED = "its PodGroup could not be read from the API server in time"
    TAKEN_BACK = "it could not be completed and what had started was taken back"
    GROUP_GONE = "its PodGroup does not exist"
    GROUP_REPLACED = "its PodGroup was replaced by another of the same name"
    GROUP_MOVED = "its PodGroup was moved to another queue; it must pass filter there"
    GROUP_UNUSABLE = "its PodGroup cannot be used; see its events"
    NODE_LOST = "the chosen node is gone, not ready, cordoned or tainted"
    NODE_FULL = "the chosen node has no room for it any more"
    POD_GONE = "the pod is gone or being deleted"
    POD_GRANTED = "kube-scheduler may be evicting the pod for another one"
    GANG_GRANTED = "kube-scheduler may be evicting all of it for another pod"
    POD_CHANGED = "the pod was gated or moved to another gang while its bind waited"
    POD_ELSEWHERE = "the pod is already on another node"
    PEER_GONE = "the caller went away before the answer"
    SUPERSEDED = "a newer bind call for the same pod took its place"
    BACKING_OFF = "the gang did not assemble in time and is tried again later"
    NO_TICKET = "the gang holds no ticket for this pod; it must pass filter again"
    NEVER_PASSED = "the pod has not passed filter here; it must pass first"
    ROOM_PROMISED = "the room on the chosen node, or in the queue, is promised to others"
    TABLE_FULL = "too many binds are held already; raise max-holds"
    SHUT_DOWN = "the extender is shutting down"
    LEASE_LOST = "this extender is not the leader"

    @property
    def word(self) -> str:
        """Name it for metrics and stories."""
        return self.name.lower()

    def text(self, gang: GangKey | None = None) -> str:
        """Say it to a person, the same words every time for the same gang."""
        return f"gang {gang}: {self.value}" if gang else self.value


#: Causes after which the gang should not be tried again at once.
BACKS_OFF = frozenset(
    {
        Cause.DEADLINE,
        Cause.TOO_LATE,
        Cause.TOO_LARGE,
        Cause.SIBLING_UNSCHEDULABLE,
        Cause.NOT_ENOUGH_MEMBERS,
        Cause.UNVERIFIED,
        Cause.BIND_FAILED,
        Cause.TAKEN_BACK,
    }
)
