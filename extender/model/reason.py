"""The closed list of reasons, used alike in answers, events, conditions, metrics and pages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Reason(Enum):
    """Why a gang is in its state; kube-scheduler's event shows the sentence."""

    # Equality and `Reason("Admitted")` use the word alone.
    _value_: str
    #: The meaning as a clause.
    meaning: str
    #: For messages: constant, without counters and without a percent sign.
    sentence: str
    #: What a user can do about it; the manual prints it.
    mend: str

    def __new__(cls, word: str, meaning: str, mend: str) -> Reason:
        """Set the word as value, beside its meaning and its fix."""
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
        "nothing to do: it uses no capacity, and its PodGroup may be deleted when no longer needed",
    )
    NOT_ENOUGH_MEMBERS = (
        "NotEnoughMembers",
        "fewer pods of the gang exist than minMember",
        "create the missing pods or lower `minMember`; check whether their controller is stuck",
    )
    NOT_ENOUGH_ROLES = (
        "NotEnoughRoles",
        "fewer pods of a role exist than its minTaskMember",
        "create the pods of that role, or lower its `minTaskMember`",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "the queue of the gang does not exist",
        "create the queue or fix it, or name another in the PodGroup",
    )
    QUEUE_CLOSED = (
        "QueueClosed",
        "the queue of the gang is not open",
        "open the queue, or the parent queue that the message names",
    )
    QUEUE_NOT_ALLOWED = (
        "QueueNotAllowed",
        "the namespace may not use the queue that the gang names",
        "name a queue that the namespace may use, or add this queue to the annotation"
        " `gang-extender.io/queues` of the Namespace",
    )
    QUEUE_OVER_DESERVED = (
        "QueueOverDeserved",
        "the queue uses its deserved share, and no capacity is left to borrow",
        "wait for gangs of the queue to end, raise its weight, or add nodes: idle capacity can be"
        " borrowed",
    )
    QUEUE_AT_CAPABILITY = (
        "QueueAtCapability",
        "the queue is at its capability",
        "wait, raise the `capability` that the message names, or let the queues that hold the rest"
        " as their guarantee lend it (`guarantee.lend`)",
    )
    NAMESPACE_OVER_LIMIT = (
        "NamespaceOverLimit",
        "the namespace is at its limit in the queue",
        "wait, or raise the annotation `gang-extender.io/at-most` of the Namespace",
    )
    NOT_ENQUEUED = (
        "NotEnqueued",
        "the gang is not enqueued yet",
        "wait, lower `minResources`, or raise the ResourceQuota if the message names one",
    )
    BEHIND_IN_ORDER = (
        "BehindInOrder",
        "gangs ahead of it need the capacity first",
        "wait; `explain` lists the gangs ahead and the rule that puts them there",
    )
    INSUFFICIENT_CAPACITY = (
        "InsufficientCapacity",
        "the nodes lack free capacity for the whole gang",
        "wait, or fix what excludes nodes: `explain` counts them by cause and names the nearest",
    )
    EXCEEDS_CLUSTER = (
        "ExceedsCluster",
        "the gang would not fit even an empty cluster",
        "add nodes, use larger ones, or make the gang smaller: waiting does not help",
    )
    WAITING_FOR_VICTIMS = (
        "WaitingForVictims",
        "capacity is being freed for the gang",
        "wait a moment; `explain` lists the pods that are evicted",
    )
    SCHEDULER_SILENT = (
        "SchedulerSilent",
        "no kube-scheduler calls for pods of its scheduler name",
        "check that this kube-scheduler runs, reaches this extender, and has a profile with the"
        " name in the message; or set another `schedulerName` in the pods",
    )
    BACKING_OFF = (
        "BackingOff",
        "the gang did not assemble in time and is retried later",
        "wait a moment; if it happens again, check the events of its pods",
    )
    POD_GROUP_MISSING = (
        "PodGroupMissing",
        "the PodGroup named by the pod does not exist or cannot be used",
        "create it or fix it, or set the size on the pods (`gang-extender.io/min-member`)",
    )
    NODE_NOT_MANAGED = (
        "NodeNotManaged",
        "nodes without a label of --node-selector are not managed by this extender",
        "label the nodes if this extender should manage them",
    )
    EXEMPT = (
        "Exempt",
        "exempt pods do not wait; kube-scheduler alone places them",
        "nothing: the events of its pods state what kube-scheduler lacks",
    )
    GATED = (
        "Gated",
        "members of the gang have scheduling gates",
        "wait until the controller that set the gates removes them",
    )


class Happening(StrEnum):
    """What happens to a gang, reported as an event, in its history, or both."""

    meaning: str
    mend: str

    def __new__(cls, word: str, meaning: str, mend: str) -> Happening:
        """Set the word as value, beside its meaning and its fix."""
        happening = str.__new__(cls, word)
        happening._value_ = word
        happening.meaning = meaning
        happening.mend = mend
        return happening

    HELD = (
        "Held",
        "binds of its members wait for the rest of the gang; only in its history",
        "nothing: the members start together. If it persists, check which members are missing",
    )
    EVICT = (
        "Evict",
        "members of it are evicted: how many, for which gang and by which rule; in the history of"
        " the gang that gets the capacity, the gangs that lose it",
        "nothing, if its controller creates them again; a Job counts them as failures unless its"
        " `podFailurePolicy` ignores `DisruptionTarget`. `--min-run-s` protects gangs for a while",
    )
    WOULD_EVICT = (
        "WouldEvict",
        "the same in a dry run: no pod is evicted",
        "run without `--dry-run` when the evictions are what you want",
    )
    VICTIM_NOT_EVICTED = (
        "VictimNotEvicted",
        "a pod that should be evicted for it stays, and why",
        "nothing: other victims are chosen; where a PodDisruptionBudget forbids it, raise it",
    )
    PARTIALLY_BOUND = (
        "PartiallyBound",
        "fewer than `minMember` members are bound; the others are bound as they arrive",
        "check why the API server refused the others; see `--evict-partial-s`",
    )
    IGNORED_FIELD = (
        "IgnoredField",
        "a field of a new PodGroup has no effect here, and which",
        "remove it, or do not rely on it",
    )
    GONE = ("Gone", "the gang is gone: it has no pod and no PodGroup left", "nothing to do")


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason with a message that names the object and the fix."""

    reason: Reason
    message: str
