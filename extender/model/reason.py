"""The closed list of reasons: one word, the same in answer, event, condition, metric and page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Reason(Enum):
    """Why a gang stands where it stands; the sentence is what kube-scheduler's event shows."""

    # Equality and `Reason("Admitted")` go by the word alone.
    _value_: str
    #: What it says of a gang, in a few words.
    meaning: str
    #: For a person: constant, without counters and without a percent sign.
    sentence: str
    #: What somebody can do about it; the manual prints it.
    mend: str

    def __new__(cls, word: str, meaning: str, mend: str) -> Reason:
        """Join the word with what it means and what helps."""
        reason = object.__new__(cls)
        reason._value_ = word
        reason.meaning = meaning
        reason.sentence = f"{word}: {meaning}"
        reason.mend = mend
        return reason

    ADMITTED = ("Admitted", "the gang may start", "nothing to do: its members are being bound")
    RUNNING = ("Running", "the gang runs", "nothing to do")
    COMPLETED = (
        "Completed",
        "all members have ended",
        "nothing to do: it uses no room, and a PodGroup may be deleted when nobody needs it",
    )
    NOT_ENOUGH_MEMBERS = (
        "NotEnoughMembers",
        "fewer pods of the gang exist than minMember",
        "create the rest or lower `minMember`; see whether their controller is stuck",
    )
    NOT_ENOUGH_ROLES = (
        "NotEnoughRoles",
        "fewer pods of a role exist than the gang needs of it",
        "create the pods of that role, or lower its `minTaskMember`",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "the queue of the gang does not exist",
        "create the queue or mend it, or name another in the PodGroup",
    )
    QUEUE_CLOSED = (
        "QueueClosed",
        "the queue of the gang is not open",
        "open the queue, or the one above it that the sentence names",
    )
    QUEUE_NOT_ALLOWED = (
        "QueueNotAllowed",
        "the namespace may not use the queue its gang names",
        "name a queue that the namespace may use, or have the annotation `gang-extender.io/queues`"
        " of the Namespace list this one",
    )
    QUEUE_OVER_DESERVED = (
        "QueueOverDeserved",
        "the queue uses what it deserves, and no room is left to lend it",
        "wait for gangs of the queue to end, raise its weight, or add nodes: what is idle is lent",
    )
    QUEUE_AT_CAPABILITY = (
        "QueueAtCapability",
        "the queue is at its capability",
        "wait, raise the `capability` that the sentence names, or let those lend to whom the rest"
        " is guaranteed (`guarantee.lend`)",
    )
    NAMESPACE_OVER_LIMIT = (
        "NamespaceOverLimit",
        "the namespace has what it may have at most of the queue",
        "wait, or raise the annotation `gang-extender.io/at-most` of the Namespace",
    )
    NOT_ENQUEUED = (
        "NotEnqueued",
        "the gang is not let into its queue yet",
        "wait, ask for less in `minResources`, or raise the ResourceQuota, if the sentence names"
        " one",
    )
    BEHIND_IN_ORDER = (
        "BehindInOrder",
        "gangs ahead of it need the room first",
        "wait; `explain` says who is ahead and by what rule",
    )
    INSUFFICIENT_CAPACITY = (
        "InsufficientCapacity",
        "the nodes have no room for the whole gang",
        "wait, or mend what keeps nodes out: `explain` counts them by that and names the nearest",
    )
    EXCEEDS_CLUSTER = (
        "ExceedsCluster",
        "the gang would not fit the cluster if it were empty",
        "add nodes or larger ones, or make the gang smaller: waiting does not help",
    )
    WAITING_FOR_VICTIMS = (
        "WaitingForVictims",
        "room is being made for the gang",
        "wait a moment; `explain` lists who was asked to leave",
    )
    SCHEDULER_SILENT = (
        "SchedulerSilent",
        "no kube-scheduler asks for pods of its scheduler name",
        "see whether that kube-scheduler runs, reaches us, and has a profile of the name that the"
        " sentence says; or name another `schedulerName` in the pods",
    )
    BACKING_OFF = (
        "BackingOff",
        "the gang did not assemble in time and is tried again later",
        "wait a moment; if it comes again, look at the events of its pods",
    )
    POD_GROUP_MISSING = (
        "PodGroupMissing",
        "the PodGroup named by the pod does not exist or cannot be used",
        "create it or mend it, or say the size on the pods (`gang-extender.io/min-member`)",
    )
    NODE_NOT_MANAGED = (
        "NodeNotManaged",
        "nodes without a label of --node-selector are not ours",
        "label the nodes, if they should be ours",
    )
    EXEMPT = (
        "Exempt",
        "exempt pods wait for nobody; kube-scheduler alone places them",
        "nothing of ours keeps it: its pods' own events say what kube-scheduler misses",
    )
    GATED = (
        "Gated",
        "members of the gang have scheduling gates",
        "whoever set the gates takes them away",
    )


class Happening(StrEnum):
    """What befalls a gang, and is told as an event, in its story, or both."""

    meaning: str
    mend: str

    def __new__(cls, word: str, meaning: str, mend: str) -> Happening:
        """Join the word with what it means and what helps."""
        happening = str.__new__(cls, word)
        happening._value_ = word
        happening.meaning = meaning
        happening.mend = mend
        return happening

    HELD = (
        "Held",
        "members of it have come, and their binds wait for the rest of the gang; only in its story",
        "nothing: they start together. If it stays so, see who is missing on the page of holds",
    )
    EVICT = (
        "Evict",
        "members of it were asked to leave: how many, for whom and by what right; in the story of"
        " the gang that gets the room, whom it gets it from",
        "nothing; its controller makes them anew. `--min-run-s` protects gangs for a while",
    )
    WOULD_EVICT = (
        "WouldEvict",
        "the same in a dry run: nobody was asked",
        "serve without `--dry-run`, when you like what you read",
    )
    VICTIM_NOT_EVICTED = (
        "VictimNotEvicted",
        "somebody who should have left for it stays, and why",
        "nothing: other victims are chosen; where a PodDisruptionBudget forbids it, raise that",
    )
    PARTIALLY_BOUND = (
        "PartiallyBound",
        "fewer than `minMember` members got bound; the rest is bound as it comes",
        "look why the API server refused the others; see `--take-back-s`",
    )
    IGNORED_FIELD = (
        "IgnoredField",
        "something in a new PodGroup has no effect here, and what",
        "remove it, or do not count on it",
    )
    GONE = ("Gone", "the gang is gone: no pod of it and no PodGroup are left", "nothing to do")


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason with the sentence that names the thing and the mend."""

    reason: Reason
    message: str
