"""Whose gang is it? The queue and the priority that the cluster's policy gives a gang.

Tenants write PodGroups and pods; only administrators write Namespaces, Queues and
PriorityClasses. So a namespace says which queues its gangs may use, and a gang that names
another one is invalid instead of being quietly moved. So is one that names none where the list
leaves more than one choice: it would be in a queue that its namespace may not use.

Nobody escapes: whoever has a node counts in a queue, whatever is written or deleted later. A gang
that runs stays in the queue in which it was started, which its pods themselves say (written by
their bindings, so a restart of ours changes nothing). Pods can be edited by tenants, so that word
counts only while the namespace may use that queue. Where it does not, what the group says now
counts, then the home queue of the namespace, then the queue of last resort.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.cache.changes import ObjectStore
from extender.model.gang import WITHOUT_PRIORITY, PodGroup
from extender.model.pod import FINISHED_SET, VALID_SET, Pod
from extender.model.queue import (
    ALLOWED_CLASSES,
    ALLOWED_QUEUES,
    DEFAULT_QUEUE,
    HOME_QUEUE,
    SYSTEM_NAMESPACE,
    Namespace,
    NamespaceShare,
    PriorityClass,
    Queue,
)
from extender.model.queue_tree import MAX_DEPTH, is_too_deep
from extender.model.reason import Problem, Reason
from extender.settings import Settings

#: Has a node, or could get one.
_SPEAKING = VALID_SET - FINISHED_SET


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """What holds for gangs whose namespace says nothing."""

    #: The queue of last resort; it exists even if nobody created it.
    default_queue: str = DEFAULT_QUEUE
    #: A namespace without a queue of its name is one by itself, with weight 1.
    namespaces_are_queues: bool = False
    #: A namespace on which nobody wrote queues may use none.
    deny_unlisted: bool = False

    @classmethod
    def of(cls, settings: Settings) -> QueuePolicy:
        """Read it from what was set at start."""
        return cls(
            default_queue=settings.default_queue,
            namespaces_are_queues=settings.namespaces_are_queues,
            deny_unlisted=settings.unlisted_namespaces == "deny",
        )

    def denies(self, namespace: Namespace) -> bool:
        """Ask whether *namespace* may use no queue, because nobody wrote any on it."""
        return self.deny_unlisted and not namespace.queue and namespace.allowed is None


class PodPriority(NamedTuple):
    """The priority of a gang."""

    value: int
    #: Why it is not the one it asks for (a sentence), empty when it is.
    remark: str = ""
    #: Its class lets it make others leave.
    may_preempt: bool = True


class QueueResolver:
    """Answers from what was heard of queues, namespaces and priority classes."""

    def __init__(
        self,
        policy: QueuePolicy,
        queues: ObjectStore[Queue],
        namespaces: ObjectStore[Namespace],
        classes: ObjectStore[PriorityClass],
    ) -> None:
        self._policy = policy
        self._queues = queues
        self._namespaces = namespaces
        self._classes = classes
        #: Namespaces are being followed, so one we have not heard of is too new to be trusted.
        self.knows_namespaces = False

    def all_queues(self) -> dict[str, Queue]:
        """Give every queue, those nobody wrote included, sorted by name."""
        queues = {queue.name: queue for queue in self._queues}
        implied = [self._policy.default_queue]
        if self._policy.namespaces_are_queues:
            implied += [namespace.name for namespace in self._namespaces]
        for name in implied:
            if name not in queues:
                queues[name] = Queue(name=name)
        return {name: queues[name] for name in sorted(queues)}

    def all_shares(self) -> dict[str, NamespaceShare]:
        """Give what namespaces may have of single queues, by name, sorted."""
        # What is kept in a queue that its namespace cannot use would be kept for nobody.
        shares = [
            share
            for namespace in self._namespaces
            for share in namespace.shares
            if self._may_count(namespace.name, share.queue)
        ]
        return {share.name: share for share in sorted(shares, key=lambda each: each.name)}

    def share(self, queue: str, namespace: str) -> NamespaceShare | None:
        """Give what a namespace may have of a queue; None where nobody wrote anything."""
        known = self._namespaces.get(namespace)
        if known is None or not known.shares:
            return None
        return next((each for each in known.shares if each.queue == queue), None)

    def all_namespaces(self) -> dict[str, Namespace]:
        """Give every namespace somebody told us of, sorted by name."""
        return {each.name: each for each in sorted(self._namespaces, key=lambda each: each.name)}

    def all_classes(self) -> frozenset[str]:
        """Name every priority class somebody told us of."""
        return frozenset(each.name for each in self._classes)

    @property
    def default_class(self) -> int:
        """Give the priority of those who name no class."""
        return min((each.value for each in self._classes if each.is_default), default=0)

    def queue(self, name: str) -> Queue | None:
        """Give a queue that somebody wrote."""
        return self._queues.get(name)

    def resolve(
        self, namespace: str, wanted: str, started_in: str = ""
    ) -> tuple[str, Problem | None]:
        """Give the queue of a gang that wants *wanted* and, if it may not be there, the reason.

        One that runs stays where it was *started_in*, whatever it wants by now.
        """
        queue, problem = self._place(namespace, wanted)
        if started_in and self._may_count(namespace, started_in):
            return started_in, problem
        return queue, problem

    def accounting_queue(self, namespace: str, queue: str) -> str:
        """Give the queue in which room in use counts, if somebody says that it is *queue*."""
        home = self._home(namespace, self._namespaces.get(namespace))
        able = (each for each in (queue, home) if self._may_count(namespace, each))
        return next(able, self._policy.default_queue)

    def _may_count(self, namespace: str, queue: str) -> bool:
        """Ask whether *queue* is there, and may be used by the namespace as far as we know."""
        known = self._namespaces.get(namespace)
        exists = (
            queue in self._queues
            or queue == self._policy.default_queue
            or (self._policy.namespaces_are_queues and queue in self._namespaces)
        )
        return exists and (known is None or self._may_use(known, queue))

    def _may_use(self, namespace: Namespace, queue: str) -> bool:
        if queue == self._home(namespace.name, namespace):
            return True
        return namespace.allows(queue) and not self._policy.denies(namespace)

    def _place(self, namespace: str, wanted: str) -> tuple[str, Problem | None]:
        known = self._namespaces.get(namespace)
        home = self._home(namespace, known)
        # The CRD fills in `default`, so that word is no choice of the tenant.
        is_choice = wanted and wanted not in (home, DEFAULT_QUEUE, self._policy.default_queue)
        queue = wanted if is_choice else home or self._policy.default_queue
        if known is None and (self.knows_namespaces or self._policy.deny_unlisted):
            # Too new to be trusted with any queue: what it may use has not been heard of yet.
            unseen = f"namespace {namespace} has not been seen yet"
            return queue, Problem(Reason.QUEUE_NOT_ALLOWED, unseen)
        if known is None:
            return queue, self._missing(queue, namespace)
        if known.problem:
            return queue, Problem(Reason.QUEUE_NOT_ALLOWED, known.problem)
        if self._policy.denies(known):
            return queue, _denied(known)
        if not is_choice and not home:
            return queue, _no_home(queue, known)
        if not self._may_use(known, queue):
            return queue, _not_allowed(queue, known)
        return queue, self._missing(queue, namespace)

    def rank(self, group: PodGroup, pods: Iterable[Pod]) -> PodPriority:
        """Give the value of its priority class; without the field, what its pods have.

        Anybody may write any class into a PodGroup: unlike a pod's, nobody admits it. So it counts
        as far as administrators list it on the namespace, or as its pods have it themselves. One
        that may not be used gives what nobody has to ask for; then a sentence says so.
        """
        if group.dialect in WITHOUT_PRIORITY:
            return self._of_pods(group, tuple(pods))
        named = self._classes.get(group.priority_class) if group.priority_class else None
        if named is None:
            return PodPriority(self.default_class)
        if not self._ranks(group.namespace, named.name):
            return PodPriority(self.default_class, self._no_class(group.namespace, named.name))
        return self._as_admitted(group, named, tuple(pods))

    def _as_admitted(
        self, group: PodGroup, named: PriorityClass, pods: Sequence[Pod]
    ) -> PodPriority:
        """Cut a class to what the API server admitted its pods with, unless it is listed.

        A gang without pods makes nobody leave, and its turn to be let in is all it can win.
        """
        namespace = group.namespace
        known = self._namespaces.get(namespace)
        is_listed = known is not None and known.classes is not None
        there = self._of_pods(group, pods).value if pods else named.value
        value = max(there, self.default_class)
        if is_listed or namespace == SYSTEM_NAMESPACE or named.value <= value:
            return PodPriority(named.value, may_preempt=named.may_preempt)
        remark = (
            f"priority class {named.name} counts as {value}, which is what the pods have together,"
            f" and not as {named.value}; give it to all of them, or have the annotation"
            f" {ALLOWED_CLASSES} of namespace {namespace} list it"
        )
        return PodPriority(value, remark, may_preempt=named.may_preempt)

    def _of_pods(self, group: PodGroup, pods: Sequence[Pod]) -> PodPriority:
        """Give the highest priority that as many members have as the gang needs.

        The API server admitted each of them with its own, the list may not. Fewer than the gang
        needs, one perhaps that never starts, lend theirs to nobody.
        """
        known = self._namespaces.get(group.namespace) or Namespace(name=group.namespace)
        denied, granted = set[str](), list[int]()
        for pod in _speakers(pods):
            value = pod.priority
            if pod.priority_class and not known.ranks(pod.priority_class):
                value = min(value, self.default_class)
            if value < pod.priority and not pod.is_exempt:
                denied.add(pod.priority_class)
            granted.append(value)
        granted.sort(reverse=True)
        needed = min(max(group.min_member, 1), len(granted))
        remark = self._no_class(group.namespace, min(denied)) if denied else ""
        return PodPriority(granted[needed - 1] if granted else 0, remark)

    def _ranks(self, namespace: str, priority_class: str) -> bool:
        known = self._namespaces.get(namespace)
        if known is None:
            # Too new to be trusted with more than what nobody may limit.
            return not self.knows_namespaces and Namespace(name=namespace).ranks(priority_class)
        return known.ranks(priority_class)

    def _no_class(self, namespace: str, priority_class: str) -> str:
        known = self._namespaces.get(namespace)
        says_nothing = f"priority class {priority_class} does not count in namespace {namespace}"
        if known is None and self.knows_namespaces:
            return f"{says_nothing}, which has not been seen yet"
        if known is None or known.classes is None:
            return f"{says_nothing}; its annotation {ALLOWED_CLASSES} would have to list it"
        allowed = ", ".join(sorted(known.classes)) or "none"
        return f"{says_nothing}; its annotation {ALLOWED_CLASSES} allows {allowed}"

    def _home(self, name: str, namespace: Namespace | None) -> str:
        """Give the queue of gangs that name none; empty when each of them has to name one."""
        if namespace is not None and namespace.queue:
            return namespace.queue
        is_queue = name in self._queues or self._policy.namespaces_are_queues
        usual = (name, self._policy.default_queue) if is_queue else (self._policy.default_queue,)
        if namespace is None:
            return usual[0]
        if self._policy.denies(namespace):
            return ""
        listed = namespace.allowed or ()
        only = listed if len(listed) == 1 else ()
        return next(filter(namespace.allows, (*usual, *only)), "")

    def _missing(self, name: str, namespace: str) -> Problem | None:
        queue = self._queues.get(name)
        if queue is not None:
            problem = queue.problem
            if not problem and queue.parent and is_too_deep(queue, self._queues.get):
                problem = (
                    f"it is more than {MAX_DEPTH - 1} levels below the top; change spec.parent"
                )
            unusable = f"queue {name} cannot be used: {problem}"
            return Problem(Reason.QUEUE_NOT_FOUND, unusable) if problem else None
        if name == self._policy.default_queue:
            return None
        if self._policy.namespaces_are_queues and name == namespace:
            return None
        return Problem(
            Reason.QUEUE_NOT_FOUND, f"queue {name} does not exist; create it or name another"
        )


def _speakers(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Choose the members that a gang may have its priority from: they run, or will by us.

    A gated one may wait for ever and an exempt one waits for nobody; who is over, or on the way
    out, needs no room any more. Where there are none but such, nothing is to be started.
    """
    if len({(pod.priority, pod.priority_class) for pod in pods}) <= 1:
        return pods[:1]  # nearly always: whichever are chosen say the same
    able = (pod for pod in pods if pod.status in _SPEAKING and not pod.gated)
    return [pod for pod in able if not pod.is_exempt] or pods


def _not_allowed(wanted: str, namespace: Namespace) -> Problem:
    allowed = ", ".join(sorted(namespace.allowed or ())) or "none by name"
    return Problem(
        Reason.QUEUE_NOT_ALLOWED,
        f"namespace {namespace.name} may not use queue {wanted}; its annotation"
        f" {ALLOWED_QUEUES} allows {allowed}",
    )


def _no_home(usual: str, namespace: Namespace) -> Problem:
    """Say that a gang has to name a queue, and which ones it may."""
    if not namespace.allowed:
        message = (
            f"namespace {namespace.name} may use no queue: its annotation {ALLOWED_QUEUES} is"
            " empty; an administrator has to list one there"
        )
    else:
        message = (
            f"namespace {namespace.name} may not use queue {usual}, where gangs are that name none;"
            f" name one of {', '.join(sorted(namespace.allowed))}, or have the annotation"
            f" {HOME_QUEUE} of the namespace name it for all"
        )
    return Problem(Reason.QUEUE_NOT_ALLOWED, message)


def _denied(namespace: Namespace) -> Problem:
    return Problem(
        Reason.QUEUE_NOT_ALLOWED,
        f"namespace {namespace.name} may use no queue: unlisted namespaces are denied; an"
        f" administrator has to list queues in its annotation {ALLOWED_QUEUES}",
    )
