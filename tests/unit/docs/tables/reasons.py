"""The tables of reasons: of verdicts, of events of a gang, and of findings."""

from __future__ import annotations

from collections.abc import Mapping

from extender import policy_file
from extender.findings import audit, namespaces, queues
from extender.findings.finding import ACCOUNT, NAMESPACE, POLICY, QUEUE
from extender.model.reason import Happening, Reason
from extender.status.desired import _WARNINGS
from tests.unit.docs.tables import explained
from tests.unit.docs.tables.parts import table

#: Kind -> reason -> what is wrong, and what the extender does until it is fixed.
FINDINGS = {
    QUEUE: {**queues.REASONS, **namespaces.REASONS[QUEUE]},
    NAMESPACE: namespaces.REASONS[NAMESPACE],
    POLICY: policy_file.REASONS,
    ACCOUNT: audit.REASONS,
}


#: What the meaning and the remedy do not say.
NOTES: Mapping[Reason, str] = {
    Reason.ADMITTED: "If this lasts longer than some seconds, kube-scheduler does not call for the"
    " pods: check its log.",
    Reason.RUNNING: "Members beyond the minimum may still wait; the message counts them.",
    Reason.COMPLETED: "New pods of its controller make the gang wait again.",
    Reason.NOT_ENOUGH_MEMBERS: "The usual cause is a ResourceQuota or a webhook that refuses pods:"
    " `kubectl describe` their controller. Pods in another namespace, or with another key than"
    " [these](../jobs.md#how-a-pod-joins-a-gang), are not members.",
    Reason.NOT_ENOUGH_ROLES: "The role of a pod is its annotation `volcano.sh/task-spec`.",
    Reason.QUEUE_NOT_FOUND: "The Queue does not exist, or a field of it cannot be read."
    " [How a gang gets its queue](../jobs.md#the-queue-of-a-gang).",
    Reason.QUEUE_CLOSED: "The `status.state` of the queue or of an ancestor is not `Open`. Without"
    " Volcano's controller, open it with `kubectl patch queue NAME --subresource status"
    """ --type merge -p '{"status":{"state":"Open"}}'`.""",
    Reason.QUEUE_NOT_ALLOWED: "The annotations of the Namespace do not allow the queue, or the"
    " queue has child queues and takes no gangs itself."
    " [Policy per namespace](../queues.md#policy-per-namespace).",
    Reason.QUEUE_OVER_DESERVED: "A queue borrows only capacity that no gang can use within the"
    " deserved amount of its own queue, and there is not enough of that for the whole gang.",
    Reason.QUEUE_AT_CAPABILITY: "The limit is that of the queue, that of an ancestor, or the"
    " guarantees of other queues; the message names it. A gang that requests more than the limit"
    " in all never starts.",
    Reason.NAMESPACE_OVER_LIMIT: "The limit is that of one namespace in one queue.",
    Reason.NOT_ENQUEUED: "The `minResources` of the gang exceed what plugin `overcommit` admits, or"
    " what a [ResourceQuota](../jobs.md#resource-quotas) of the namespace admits.",
    Reason.BEHIND_IN_ORDER: "In an event of kube-scheduler about a node it means that the node is"
    " reserved for other gangs. Where a namespace has more than 1,000 gangs waiting in one queue,"
    " it may mean that the gang has no turn in this cycle; the message says so.",
    Reason.INSUFFICIENT_CAPACITY: "Each node is counted by the first obstacle. Affinity between"
    " pods, volumes and devices are checked by kube-scheduler alone: a gang that fits here and not"
    " there goes on to `BackingOff`.",
    Reason.EXCEEDS_CLUSTER: "With an autoscaler that adds nodes for pending pods, the reason"
    " changes by itself.",
    Reason.WAITING_FOR_VICTIMS: "It lasts as long as the grace periods of the victims. A victim"
    " that does not begin to terminate within a minute is replaced by others.",
    Reason.SCHEDULER_SILENT: "That kube-scheduler does not run, does not reach the extender, or has"
    " no profile with the `schedulerName` of the pods. Until it calls, nothing is reserved for the"
    " gang and no pod is evicted for it.",
    Reason.BACKING_OFF: "Members had nodes, but too few of their binds came in time. The events of"
    " the pods show what kube-scheduler lacked: a volume, an affinity, a device. The pause doubles"
    " each time.",
    Reason.POD_GROUP_MISSING: "The PodGroup is not in the namespace of the pods, or has a field"
    " that is [refused](../jobs.md#fields-of-volcano); the message says which.",
    Reason.NODE_NOT_MANAGED: "The gang would fit if nodes without such a label were managed.",
    Reason.EXEMPT: "[Exempt pods](../jobs.md#exempt-pods) do not wait, and a PodGroup makes no gang"
    " of them.",
    Reason.GATED: "Kueue and Volcano's webhook set such gates. A gate of a controller that is no"
    " longer installed stays for ever.",
}


def anchor(reason: Reason) -> str:
    """Link to the example of *reason*."""
    return f"[`{reason.value}`](#{reason.value.lower()})"


def reasons() -> str:
    """Write the meaning, the event and the remedy of each reason of a verdict."""
    return table(
        ("reason", "meaning", "event", "what to do"),
        (
            (
                anchor(each),
                each.meaning.replace("minMember", "`minMember`").replace(
                    "--node-selector", "`--node-selector`"
                ),
                _event(each),
                each.mend,
            )
            for each in Reason
        ),
    )


def examples() -> str:
    """Write what `gang-extender explain` prints of a gang with each reason."""
    return "\n".join(
        f"### {each.value}\n\n{NOTES[each]}\n\n{explained.of(each)}" for each in Reason
    )


def happenings() -> str:
    """Write the other events of gangs."""
    return table(
        ("word", "meaning", "what to do"),
        ((f"`{each.value}`", each.meaning, each.mend) for each in Happening),
    )


def findings() -> str:
    """Write the meaning of each reason of a finding, and the behaviour until it is fixed."""
    return table(
        ("kind", "reason", "what is wrong", "effect"),
        (
            (kind, f"`{reason}`", flaw.wrong, flaw.until_mended)
            for kind, flaws in FINDINGS.items()
            for reason, flaw in flaws.items()
        ),
    )


def _event(reason: Reason) -> str:
    if reason is Reason.ADMITTED:
        return ""
    return "Warning" if reason in _WARNINGS else "Normal"
