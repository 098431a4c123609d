"""Pods: from Kubernetes' JSON to what the plan sees.

This runs once per watch event and once per filter call, which sits in kube-scheduler's serial
loop, so it shares whatever pods have in common: shapes, labels, names of nodes and namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from sys import intern

import msgspec

from extender.durations import MOST_S, parse_duration
from extender.errors import InvalidHookCall, InvalidQuantity
from extender.kube.decode.decoder import MinimalMeta
from extender.kube.decode.limits import (
    LONGEST_NAME,
    drop_labels,
    excess_of_labels,
    excess_of_members,
    excess_of_text,
    first_of,
    short,
    shorten,
)
from extender.kube.decode.raw import (
    Labels,
    RawOwner,
    RawPod,
    RawPodAnnotations,
    RawPodSpec,
    RawPodStatus,
)
from extender.kube.decode.shapes import ONE_POD, Shapes
from extender.model.gang import IMPLICIT, GangKey, Membership
from extender.model.pod import (
    FINISHED_SET,
    NO_LABELS,
    SYSTEM_NAMESPACE,
    Pod,
    PodUid,
    Shape,
    Status,
)

GANG = "gang-extender.io/gang"
MIN_MEMBER = "gang-extender.io/min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
#: Written with the binding: the queue in which the pod was started.
STARTED_IN = "gang-extender.io/started-in"
#: Of whatever looks like a gang in an exempt namespace.
NO_GANG = "its namespace is exempt: its pods wait for nobody and start one by one, as no gang"
_GROUP_KEYS = (
    GANG,
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
)
_SIZE_KEYS = (
    MIN_MEMBER,
    "scheduling.volcano.sh/group-min-member",
    "scheduling.k8s.io/group-min-member",
    "pod-group.scheduling.sigs.k8s.io/min-available",
)
#: So much of a size that is none is said.
_LONGEST_SIZE = 40
_NO_MARKS = RawPodAnnotations()


def membership_of(pod: RawPod) -> Membership:
    """Say to which gang *pod* belongs."""
    meta, spec = pod.metadata, pod.spec
    native = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or (
        spec.workload_ref and f"{spec.workload_ref.name}.{spec.workload_ref.pod_group}"
    )
    if native:
        return _membership(meta.namespace, f"native{IMPLICIT}{short(native)}", True, "", "", True)
    marks, labels = meta.annotations or _NO_MARKS, meta.labels
    named = marks.gang or marks.group or marks.volcano_group or marks.pod_group or marks.sigs_group
    group = named or _labelled(labels, _GROUP_KEYS)
    sized = marks.min_member or marks.volcano_min or marks.group_min or marks.sigs_min
    size = sized or _labelled(labels, _SIZE_KEYS)
    name = group or _shadow(meta.owner_references, meta.name)
    queue = marks.queue or (labels and labels.get(QUEUE)) or ""
    # Annotations may be long, and what is made of them is remembered.
    return _membership(
        meta.namespace,
        short(name),
        bool(group or size),
        size[: _LONGEST_SIZE + 1] if size else "",
        short(queue),
        False,
        (group or "") and excess_of_text("a gang name", name),
        excess_of_text("a queue name", queue),
    )


@lru_cache(maxsize=16_384)
def no_gang(said: Membership) -> Membership:
    """Give what a pod of an exempt namespace is a member of that *said* it was one of a gang.

    It still counts, and is shown, with its group; but it waits for nobody there.
    """
    return Membership(key=said.key, queue=said.queue, remark=NO_GANG)


def _labelled(labels: Labels | None, keys: Sequence[str]) -> str | None:
    return next((labels[key] for key in keys if labels.get(key)), None) if labels else None


def _shadow(owners: tuple[RawOwner, ...] | None, pod_name: str) -> str:
    for owner in owners or ():
        if owner.controller:
            return f"{owner.kind.lower()}{IMPLICIT}{owner.name}"
    return f"pod{IMPLICIT}{pod_name}"


@lru_cache(maxsize=16_384)
def _membership(
    namespace: str,
    name: str,
    named: bool,
    size: str,
    queue: str,
    native: bool,
    cut_name: str = "",
    cut_queue: str = "",
) -> Membership:
    """Make the membership that all pods of one gang share."""
    min_member, problem = _read_size(size)
    if cut_name:
        problem = f"the name of its gang has over {LONGEST_NAME} characters; write a shorter one"
    return Membership(
        key=GangKey(f"{namespace or 'default'}/{name}"),
        named=named,
        min_member=min_member,
        native=native,
        queue=queue,
        problem=problem,
        excess=cut_name or cut_queue or excess_of_members(min_member),
    )


def _read_size(size: str) -> tuple[int | None, str]:
    if not size:
        return None, ""
    if size.isascii() and size.isdigit() and len(size) < 10 and int(size) > 0:
        return int(size), ""
    return 1, f"min-member is {size[:_LONGEST_SIZE]!r}; write a whole number such as 4"


DURATION = "gang-extender.io/duration"
#: So much of one that cannot be read is said.
_SAID = 40
#: What the API server writes where a pod does not say.
_GRACE_S = 30.0
_ROLE = "volcano.sh/task-spec"
_PREEMPTABLE = "volcano.sh/preemptable"
#: Longer texts add nothing to "why was it refused?".
_REFUSAL_LENGTH = 300
#: Sets of labels that are remembered, each of at most so many and so long.
_REMEMBERED_LABELS = 10_000
_SHARED_LABELS = 16
_SHARED_LENGTH = 2048
#: A host name and a few random letters.
_WAKER_LENGTH = 300


class _Identity(msgspec.Struct):
    uid: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


_identity = msgspec.json.Decoder(_Identified)
_decoder = msgspec.json.Decoder(RawPod)
_shapes = Shapes()
_UNREADABLE = Shape(requests=ONE_POD)
_BY_PHASE = {
    "Running": Status.RUNNING,
    "Succeeded": Status.SUCCEEDED,
    "Failed": Status.FAILED,
    "Unknown": Status.UNKNOWN,
}


def pod(data: bytes | msgspec.Raw | Mapping[str, object]) -> RawPod:
    """Decode one Pod object: JSON as it came, or what a YAML file was parsed into."""
    try:
        if isinstance(data, Mapping):
            return msgspec.convert(data, RawPod)
        return _decoder.decode(drop_labels(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHookCall(f"this is not a Pod: {error}") from error


def uid(data: bytes | msgspec.Raw) -> PodUid:
    """Read no more of a Pod object than who it is; empty when it does not say."""
    try:
        return PodUid(_identity.decode(data).metadata.uid)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHookCall(f"this is not a Pod: {error}") from error


def reader(
    schedulers: frozenset[str],
    seen: Callable[[PodUid], tuple[Pod, Membership] | None],
    membership: Callable[[Pod, Membership], Membership],
    *,
    exempt: frozenset[str] = frozenset(),
) -> Callable[[bytes], tuple[Pod, Membership]]:
    """Read the pod of a hook call just as the watch reads it, unless the watch has *seen* it.

    What it is a member of by itself may not be the last word: that has *membership*.
    """

    def read(raw: bytes) -> tuple[Pod, Membership]:
        # What decides about a pod that waits does not change; reading it again is dear.
        known = seen(uid(raw))
        if known is not None and known[0].status is Status.PENDING and not known[0].gated:
            return known
        new, said = to_pod(pod(raw), schedulers=schedulers, exempt=exempt)
        return new, membership(new, said)

    return read


def to_pod(
    raw: RawPod, *, schedulers: frozenset[str], exempt: frozenset[str] = frozenset()
) -> tuple[Pod, Membership]:
    """Read a pod and its membership; never fails, what cannot be read becomes a problem.

    In *exempt* namespaces nothing is a gang.
    """
    meta, spec, status = raw.metadata, raw.spec, raw.status
    marks = meta.annotations or _NO_MARKS
    labels = meta.labels
    scheduler = spec.scheduler_name or "default-scheduler"
    ours = scheduler in schedulers
    membership, stage = membership_of(raw), _status(raw)
    waits = ours and stage is Status.PENDING
    try:
        shape, excess = _shapes.of(raw, ours=ours, waits=waits)
        if excess:
            membership = _too_large(membership, excess, waits)
        elif labels and (excess := excess_of_labels(labels)):
            # It is placed without them. Refused, kube-scheduler would write that into its status,
            # for as long as an API server needs for such an object, and place nobody meanwhile.
            membership = _too_large(membership, excess, waits=False)
    except InvalidQuantity as error:
        shape = _UNREADABLE
        membership = replace(
            membership, problem=f"pod {meta.name} cannot be read: {shorten(error)}"
        )
    lasts_s = parse_duration(marks.duration) if marks.duration else None
    if marks.duration and lasts_s is None:
        membership = _misspelt(membership, marks.duration[: _SAID + 1])
    namespace = intern(meta.namespace or "default")
    is_exempt = namespace in exempt or namespace == SYSTEM_NAMESPACE
    if is_exempt and membership.named and not membership.native:
        membership = no_gang(membership)
    return (
        Pod(
            uid=PodUid(meta.uid or f"{namespace}/{meta.name}"),
            namespace=namespace,
            name=meta.name,
            shape=shape,
            status=stage,
            node=intern(short(spec.node_name or "")),
            role=_mark(marks.role, labels, _ROLE),
            priority=spec.priority or 0,
            task_priority=_task_priority(marks),
            priority_class=intern(short(spec.priority_class_name or "")),
            created=meta.created,
            leaves_by=meta.leaves_by,
            gated=bool(spec.scheduling_gates),
            preemptable=_is_true(_mark(marks.preemptable, labels, _PREEMPTABLE)),
            may_preempt=spec.preemption_policy != "Never",
            ours=ours,
            scheduler=intern(scheduler) if ours else "",
            exempt=is_exempt,
            nominated=intern(short(status.nominated_node_name or "")),
            started_in=intern(short(marks.started_in))
            if marks.started_in and spec.node_name
            else "",
            terminating=ours and bool(spec.node_name) and _is_doomed(status),
            labels=_labels(labels) if labels and ours else NO_LABELS,
            lasts_s=lasts_s or 0.0,
            deadline_s=_deadline(spec.active_deadline_seconds),
            grace_s=_grace(spec),
            began=status.began if spec.node_name else 0.0,
            ended=status.ended if stage in FINISHED_SET else 0.0,
            refusal=_refusal(status) if ours and not spec.node_name else "",
            woken_by=_waker(marks.woken) if ours and marks.woken else "",
        ),
        membership,
    )


def _status(raw: RawPod) -> Status:
    status = _BY_PHASE.get(raw.status.phase or "", Status.PENDING)
    if status is Status.SUCCEEDED or status is Status.FAILED:
        return status
    if raw.metadata.deletion_timestamp is not None:
        return Status.RELEASING
    if status is Status.PENDING and raw.spec.node_name:
        return Status.BOUND
    return status


def _deadline(seconds: int | None) -> float:
    return float(seconds) if seconds is not None and 0 < seconds <= MOST_S else 0.0


def _grace(spec: RawPodSpec) -> float:
    """Give how long after its deadline a pod may go on; nobody asks where it has none."""
    if not _deadline(spec.active_deadline_seconds):
        return 0.0
    grace = spec.termination_grace_period_seconds
    return _GRACE_S if grace is None else float(min(max(grace, 0), MOST_S))


@lru_cache(maxsize=4096)
def _misspelt(said: Membership, written: str) -> Membership:
    """Let people know that nobody can read for how long their pod runs; nothing else changes."""
    remark = unreadable(written)
    return replace(said, remark="; ".join(filter(None, (said.remark, remark))))


def unreadable(written: str) -> str:
    """Say how a duration is to be written."""
    shown = written[:_SAID] + "…" if len(written) > _SAID else written
    return f"annotation {DURATION} is {shown!r}, which is no span of time; write 90s, 45m or 1h30m"


def _task_priority(marks: RawPodAnnotations) -> int | None:
    if marks.task_priority:
        try:
            return int(marks.task_priority[:11])
        except ValueError:
            pass
    return None


def _mark(annotation: str | None, labels: Labels | None, key: str) -> str:
    value = annotation or (labels.get(key) if labels else None)
    return intern(short(value)) if value else ""


def _is_true(text: str) -> bool:
    """Read Volcano's flag: true when absent, false when nobody can tell."""
    return text in ("", "true", "True", "TRUE", "t", "T", "1")


def _refusal(status: RawPodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            refused = condition.status == "False" and condition.reason == "Unschedulable"
            return intern((condition.message or "")[:_REFUSAL_LENGTH]) if refused else ""
    return ""


def _is_doomed(status: RawPodStatus) -> bool:
    return any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
        for condition in status.conditions or ()
    )


def _waker(woken: str) -> str:
    """Read who woke a pod: after the moment, where it says so (`kube/act/wake`)."""
    return intern(woken.partition(" by ")[2][:_WAKER_LENGTH])


@lru_cache(maxsize=16_384)
def _too_large(said: Membership, excess: str, waits: bool) -> Membership:
    """Give the membership of all pods of one gang that are too large in the same way.

    Those that wait do not start; those that have a node, or are not ours, are only named.
    """
    problem = f"a pod of it has {excess}; write fewer" if waits else said.problem
    return replace(said, problem=said.problem or problem, excess=excess)


def _labels(labels: Labels) -> Mapping[str, str]:
    """Share the labels of pods alike, where they are as few as those of ordinary pods."""
    if len(labels) <= _SHARED_LABELS:
        pairs = tuple(labels.items())
        if sum(map(len, chain(*pairs))) <= _SHARED_LENGTH:
            return _shared(pairs)
    return first_of(labels)


@lru_cache(_REMEMBERED_LABELS)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(labels)


def placeholder_pod(meta: MinimalMeta, why: str) -> tuple[Pod, Membership]:
    """Stand in for a pod that cannot be read at all: a gang of its own, with a problem."""
    namespace, name = meta.namespace or "default", meta.name
    uid = PodUid(meta.uid or f"{namespace}/{name}")
    pod = Pod(uid=uid, namespace=namespace, name=name, shape=_UNREADABLE)
    key = GangKey(f"{namespace}/pod{IMPLICIT}{name}")
    return pod, Membership(key=key, named=True, problem=f"pod {name} cannot be read: {why}")
