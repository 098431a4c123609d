"""Why a bind call ended: a word for metrics, a constant sentence for kube-scheduler's event.

kube-scheduler retries a pod at once when its refusal reads differently from the last one, so
the sentences carry no counters; its event recorder chokes on percent signs, so none of those.
"""

from __future__ import annotations

from enum import Enum

from extender.model.gang import GangKey


class Cause(Enum):
    """The closed list of what ends a bind call."""

    __hash__ = object.__hash__  # as with `Status`

    BOUND = "bound"
    BIND_FAILED = "bind_failed"
    DEADLINE = "deadline"
    TOO_LATE = "too_late"
    TOO_LARGE = "too_large"
    SIBLING_UNSCHEDULABLE = "sibling_unschedulable"
    NOT_ENOUGH_MEMBERS = "not_enough_members"
    INCOMPLETE = "incomplete"
    UNVERIFIED = "unverified"
    TAKEN_BACK = "taken_back"
    GROUP_GONE = "group_gone"
    GROUP_REPLACED = "group_replaced"
    GROUP_UNUSABLE = "group_unusable"
    NODE_LOST = "node_lost"
    NODE_FULL = "node_full"
    POD_GONE = "pod_gone"
    POD_CHANGED = "pod_changed"
    POD_ELSEWHERE = "pod_elsewhere"
    PEER_GONE = "peer_gone"
    SUPERSEDED = "superseded"
    BACKING_OFF = "backing_off"
    NO_TICKET = "no_ticket"
    ROOM_PROMISED = "room_promised"
    TABLE_FULL = "table_full"
    SHUT_DOWN = "shut_down"
    LEASE_LOST = "lease_lost"

    def text(self, gang: GangKey | None = None) -> str:
        """Say it to a person, the same words every time for the same gang."""
        sentence = _SENTENCES[self]
        return f"gang {gang}: {sentence}" if gang else sentence


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

_SENTENCES = {
    Cause.BOUND: "the pod is bound",
    Cause.BIND_FAILED: "the API server did not bind the pod",
    Cause.DEADLINE: "members did not assemble in time",
    Cause.TOO_LATE: "too little time is left to bind the whole gang",
    Cause.TOO_LARGE: "it is too large to be bound in time; raise the bind timeout",
    Cause.SIBLING_UNSCHEDULABLE: "a member that is needed fits no node",
    Cause.NOT_ENOUGH_MEMBERS: "too few members are left to reach minMember",
    Cause.INCOMPLETE: "the rest of the gang has not been created yet",
    Cause.UNVERIFIED: "its PodGroup could not be read from the API server in time",
    Cause.TAKEN_BACK: "it could not be completed and what had started was taken back",
    Cause.GROUP_GONE: "its PodGroup does not exist",
    Cause.GROUP_REPLACED: "its PodGroup was replaced by another of the same name",
    Cause.GROUP_UNUSABLE: "its PodGroup cannot be used; see its events",
    Cause.NODE_LOST: "the chosen node is gone, not ready, cordoned or tainted",
    Cause.NODE_FULL: "the chosen node has no room for it any more",
    Cause.POD_GONE: "the pod is gone or being deleted",
    Cause.POD_CHANGED: "the pod was gated or moved to another gang while its bind waited",
    Cause.ROOM_PROMISED: "the room on the chosen node, or in the queue, is promised to others",
    Cause.POD_ELSEWHERE: "the pod is already on another node",
    Cause.PEER_GONE: "the caller went away before the answer",
    Cause.SUPERSEDED: "a newer bind call for the same pod took its place",
    Cause.BACKING_OFF: "the gang did not assemble in time and is tried again later",
    Cause.NO_TICKET: "the gang holds no ticket for this pod; it must pass filter again",
    Cause.TABLE_FULL: "too many binds are held already; raise max-holds",
    Cause.SHUT_DOWN: "the extender is shutting down",
    Cause.LEASE_LOST: "this extender is not the leader",
}
