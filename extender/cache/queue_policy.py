"""The queue and the priority of a gang, by the policy of the cluster.

Tenants write PodGroups and pods; only administrators write Namespaces, Queues and
PriorityClasses. So a namespace sets which queues its gangs may use. A gang that names another
queue is invalid; it is not moved silently. So is a gang that names none where the list leaves
more than one choice: the default queue would be one that its namespace may not use.

A pod on a node always counts in a queue, whatever is written or deleted later. A running gang
stays in the queue in which it was started. Its pods state that queue (their bindings write it, so
a restart changes nothing). Tenants can edit pods, so that value counts only while the namespace
may use the queue. Otherwise the queue of the PodGroup counts, then the home queue of the
namespace, then the default queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.cache.changes import ObjectStore
from extender.model.annotations import ALLOWED_CLASSES, ALLOWED_QUEUES, HOME_QUEUE
from extender.model.gang import WITHOUT_PRIORITY, PodGroup
from extender.model.pod import FINISHED_SET, SYSTEM_NAMESPACE, VALID_SET, Pod
from extender.model.queue import (
    DEFAULT_QUEUE,
    Namespace,
    NamespaceShare,
    PriorityClass,
    Queue,
)
from extender.model.queue_tree import MAX_DEPTH, is_too_deep
from extender.model.reason import Problem, Reason
from extender.settings import Settings

#: Members that have a node or could get one.
_CAN_RUN = VALID_SET - FINISHED_SET


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """The policy for gangs whose namespace sets none."""

    #: The queue of last resort; it exists even without a Queue object.
    default_queue: str = DEFAULT_QUEUE
    #: A namespace without a queue of its name counts as one, with weight 1.
    namespaces_are_queues: bool = False
    #: A namespace that lists no queues may use none.
    deny_unlisted: bool = False

    @classmethod
    def of(cls, settings: Settings) -> QueuePolicy:
        """Read the policy from the settings."""
        return cls(
            default_queue=settings.default_queue,
            namespaces_are_queues=settings.namespaces_are_queues,
            deny_unlisted=settings.unlisted_namespaces == "deny",
        )

    def denies(self, namespace: Namespace) -> bool:
        """Return whether *namespace* may use no queue, because it lists none."""
        return self.deny_unlisted and not namespace.queue and namespace.allowed is None


class PodPriority(NamedTuple):
    """The priority of a gang."""

    value: int
    #: Why it differs from the requested priority (a sentence); empty when it does not.
    remark: str = ""
    #: Whether its class allows preemption.
    may_preempt: bool = True


class QueueResolver:
    """Resolves queues and priorities from the known queues, namespaces and classes."""

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
        #: Namespaces are watched, so one that is unknown is too new to be trusted.
        self.knows_namespaces = False

    def all_queues(self) -> dict[str, Queue]:
        """Return every queue, implied ones included, sorted by name."""
        queues = {queue.name: queue for queue in self._queues}
        implied = [self._policy.default_queue]
        if self._policy.namespaces_are_queues:
            implied += [namespace.name for namespace in self._namespaces]
        for name in implied:
            if name not in queues:
                queues[name] = Queue(name=name)
        return {name: queues[name] for name in sorted(queues)}

    def all_shares(self) -> dict[str, NamespaceShare]:
        """Return the shares of namespaces in single queues, by name, sorted."""
        # A share of a queue that its namespace may not use would be reserved for no gang.
        shares = [
            share
            for namespace in self._namespaces
            for share in namespace.shares
            if self._may_count(namespace.name, share.queue)
        ]
        return {share.name: share for share in sorted(shares, key=lambda each: each.name)}

    def share(self, queue: str, namespace: str) -> NamespaceShare | None:
        """Return the share of a namespace in a queue; None without any."""
        known = self._namespaces.get(namespace)
        if known is None or not known.shares:
            return None
        return next((each for each in known.shares if each.queue == queue), None)

    def all_namespaces(self) -> dict[str, Namespace]:
        """Return every known namespace, sorted by name."""
        return {each.name: each for each in sorted(self._namespaces, key=lambda each: each.name)}

    def all_classes(self) -> frozenset[str]:
        """Return the name of every known priority class."""
        return frozenset(each.name for each in self._classes)

    @property
    def default_class(self) -> int:
        """Return the priority of pods that name no class."""
        return min((each.value for each in self._classes if each.is_default), default=0)

    def queue(self, name: str) -> Queue | None:
        """Return the Queue object of that name; None without any."""
        return self._queues.get(name)

    def resolve(
        self, namespace: str, wanted: str, started_in: str = ""
    ) -> tuple[str, Problem | None]:
        """Return the queue of a gang that requests *wanted*, and why it may not use it.

        A running gang stays where it was *started_in*, whatever it requests now.
        """
        queue, problem = self._resolve_current(namespace, wanted)
        if started_in and self._may_count(namespace, started_in):
            return started_in, problem
        return queue, problem

    def accounting_queue(self, namespace: str, queue: str) -> str:
        """Return the queue in which used capacity counts, given the queue of the gang."""
        home = self._home(namespace, self._namespaces.get(namespace))
        able = (each for each in (queue, home) if self._may_count(namespace, each))
        return next(able, self._policy.default_queue)

    def _may_count(self, namespace: str, queue: str) -> bool:
        """Return whether *queue* exists and the namespace may use it, as far as known."""
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

    def _resolve_current(self, namespace: str, wanted: str) -> tuple[str, Problem | None]:
        known = self._namespaces.get(namespace)
        home = self._home(namespace, known)
        # The CRD fills in `default`, so that value is no choice of the tenant.
        is_choice = wanted and wanted not in (home, DEFAULT_QUEUE, self._policy.default_queue)
        queue = wanted if is_choice else home or self._policy.default_queue
        if known is None and (self.knows_namespaces or self._policy.deny_unlisted):
            # Too new to be trusted with any queue: its allowed queues are not known yet.
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
        """Return the priority of the class of the group; without one, that of its pods.

        Any user may write any class into a PodGroup: unlike for a pod, no admission checks it. So a
        class counts only if administrators list it on the namespace, or as far as the pods have it
        themselves. A class that may not be used counts as the default, and a remark states this.
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
        """Limit a class to the priority with which the pods were admitted, unless it is listed.

        A gang without pods preempts none; all it can gain is its place in the admission order.
        """
        namespace = group.namespace
        known = self._namespaces.get(namespace)
        is_listed = known is not None and known.classes is not None
        admitted = self._of_pods(group, pods).value if pods else named.value
        value = max(admitted, self.default_class)
        if is_listed or namespace == SYSTEM_NAMESPACE or named.value <= value:
            return PodPriority(named.value, may_preempt=named.may_preempt)
        remark = (
            f"priority class {named.name} counts as {value}, which is what the pods have together,"
            f" and not as {named.value}; give it to all of them, or have the annotation"
            f" {ALLOWED_CLASSES} of namespace {namespace} list it"
        )
        return PodPriority(value, remark, may_preempt=named.may_preempt)

    def _of_pods(self, group: PodGroup, pods: Sequence[Pod]) -> PodPriority:
        """Return the highest priority that at least as many members have as the gang needs.

        The API server admitted each pod with its own class; the namespace may not list it. Fewer
        members than the gang needs, perhaps one that never starts, do not raise its priority.
        """
        known = self._namespaces.get(group.namespace) or Namespace(name=group.namespace)
        denied, values = set[str](), list[int]()
        for pod in _priority_members(pods):
            value = pod.priority
            if pod.priority_class and not known.ranks(pod.priority_class):
                value = min(value, self.default_class)
            if value < pod.priority and not pod.is_exempt:
                denied.add(pod.priority_class)
            values.append(value)
        values.sort(reverse=True)
        needed = min(max(group.min_member, 1), len(values))
        remark = self._no_class(group.namespace, min(denied)) if denied else ""
        return PodPriority(values[needed - 1] if values else 0, remark)

    def _ranks(self, namespace: str, priority_class: str) -> bool:
        known = self._namespaces.get(namespace)
        if known is None:
            # Too new to be trusted with a class that administrators may restrict.
            return not self.knows_namespaces and Namespace(name=namespace).ranks(priority_class)
        return known.ranks(priority_class)

    def _no_class(self, namespace: str, priority_class: str) -> str:
        known = self._namespaces.get(namespace)
        ignored = f"priority class {priority_class} does not count in namespace {namespace}"
        if known is None and self.knows_namespaces:
            return f"{ignored}, which has not been seen yet"
        if known is None or known.classes is None:
            return f"{ignored}; its annotation {ALLOWED_CLASSES} would have to list it"
        allowed = ", ".join(sorted(known.classes)) or "none"
        return f"{ignored}; its annotation {ALLOWED_CLASSES} allows {allowed}"

    def _home(self, name: str, namespace: Namespace | None) -> str:
        """Return the queue of gangs that name none; empty when each of them has to name one."""
        if namespace is not None and namespace.queue:
            return namespace.queue
        is_queue = name in self._queues or self._policy.namespaces_are_queues
        default = (name, self._policy.default_queue) if is_queue else (self._policy.default_queue,)
        if namespace is None:
            return default[0]
        if self._policy.denies(namespace):
            return ""
        listed = namespace.allowed or ()
        only = listed if len(listed) == 1 else ()
        return next(filter(namespace.allows, (*default, *only)), "")

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


def _priority_members(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the members that set the priority of a gang: they run, or the extender starts them.

    A gated pod may wait for ever, and an exempt pod waits for no gang. A finished or terminating
    pod needs no capacity any more. If only such pods are left, there is nothing to start.
    """
    if len({(pod.priority, pod.priority_class) for pod in pods}) <= 1:
        return pods[:1]  # nearly always: all of them have the same priority
    able = (pod for pod in pods if pod.status in _CAN_RUN and not pod.gated)
    return [pod for pod in able if not pod.is_exempt] or pods


def _not_allowed(wanted: str, namespace: Namespace) -> Problem:
    allowed = ", ".join(sorted(namespace.allowed or ())) or "none by name"
    return Problem(
        Reason.QUEUE_NOT_ALLOWED,
        f"namespace {namespace.name} may not use queue {wanted}; its annotation"
        f" {ALLOWED_QUEUES} allows {allowed}",
    )


def _no_home(default: str, namespace: Namespace) -> Problem:
    """Return the problem of a gang that has to name a queue, with the queues it may name."""
    if not namespace.allowed:
        message = (
            f"namespace {namespace.name} may use no queue: its annotation {ALLOWED_QUEUES} is"
            " empty; an administrator has to list one there"
        )
    else:
        message = (
            f"namespace {namespace.name} may not use queue {default}, the queue of gangs that name"
            f" none; name one of {', '.join(sorted(namespace.allowed))}, or have the annotation"
            f" {HOME_QUEUE} of the namespace name it for all"
        )
    return Problem(Reason.QUEUE_NOT_ALLOWED, message)


def _denied(namespace: Namespace) -> Problem:
    return Problem(
        Reason.QUEUE_NOT_ALLOWED,
        f"namespace {namespace.name} may use no queue: unlisted namespaces are denied; an"
        f" administrator has to list queues in its annotation {ALLOWED_QUEUES}",
    )
