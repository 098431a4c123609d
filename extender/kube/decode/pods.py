"""Pods: from the JSON of Kubernetes to the model, with the membership in a gang.

This runs once per watch event, and once per filter call in the serial loop of kube-scheduler. So it
shares what pods have in common: shapes, labels, names of nodes and namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from sys import intern

import msgspec

from extender.durations import MAX_DURATION_S, parse_duration
from extender.errors import InvalidHookCall, InvalidQuantity
from extender.kube.decode.decoder import MinimalMeta
from extender.kube.decode.limits import (
    LONGEST_NAME,
    drop_labels,
    excess_of_labels,
    excess_of_members,
    excess_of_text,
    first_labels,
    shorten,
    shorten_name,
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
from extender.model.annotations import (
    COSCHEDULING_GROUP,
    DURATION,
    GANG,
    GROUP_MIN_MEMBER,
    GROUP_NAME,
    MIN_MEMBER,
    PREEMPTABLE,
    QUEUE_NAME,
    ROLE,
    SIGS_GROUP,
    SIGS_MIN_AVAILABLE,
    VOLCANO_GROUP_MIN_MEMBER,
    VOLCANO_GROUP_NAME,
)
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

#: The remark on a gang in an exempt namespace.
NO_GANG = (
    "its namespace is exempt: its pods do not wait and are scheduled one by one, not as a gang"
)
_GROUP_KEYS = (GANG, GROUP_NAME, VOLCANO_GROUP_NAME, COSCHEDULING_GROUP, SIGS_GROUP)
_SIZE_KEYS = (MIN_MEMBER, VOLCANO_GROUP_MIN_MEMBER, GROUP_MIN_MEMBER, SIGS_MIN_AVAILABLE)
#: The part of an invalid size that a message quotes.
_LONGEST_SIZE = 40
_NO_ANNOTATIONS = RawPodAnnotations()


def membership_of(pod: RawPod) -> Membership:
    """Return the gang of *pod*."""
    meta, spec = pod.metadata, pod.spec
    native = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or (
        spec.workload_ref and f"{spec.workload_ref.name}.{spec.workload_ref.pod_group}"
    )
    if native:
        return _membership(
            meta.namespace, f"native{IMPLICIT}{shorten_name(native)}", True, "", "", True
        )
    annotations, labels = meta.annotations or _NO_ANNOTATIONS, meta.labels
    named = (
        annotations.gang
        or annotations.group
        or annotations.volcano_group
        or annotations.pod_group
        or annotations.sigs_group
    )
    group = named or _labelled(labels, _GROUP_KEYS)
    sized = (
        annotations.min_member
        or annotations.volcano_min
        or annotations.group_min
        or annotations.sigs_min
    )
    size = sized or _labelled(labels, _SIZE_KEYS)
    name = group or _implicit_name(meta.owner_references, meta.name)
    queue = annotations.queue or (labels and labels.get(QUEUE_NAME)) or ""
    # Shortened, because annotations may be long, and memberships are cached.
    return _membership(
        meta.namespace,
        shorten_name(name),
        bool(group or size),
        size[: _LONGEST_SIZE + 1] if size else "",
        shorten_name(queue),
        False,
        (group or "") and excess_of_text("a gang name", name),
        excess_of_text("a queue name", queue),
    )


@lru_cache(maxsize=16_384)
def without_gang(membership: Membership) -> Membership:
    """Return the *membership* as it counts in an exempt namespace.

    The pod is still accounted and shown with its group, but it does not wait for the gang.
    """
    return Membership(key=membership.key, queue=membership.queue, remark=NO_GANG)


def _labelled(labels: Labels | None, keys: Sequence[str]) -> str | None:
    return next((labels[key] for key in keys if labels.get(key)), None) if labels else None


def _implicit_name(owners: tuple[RawOwner, ...] | None, pod_name: str) -> str:
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
    """Create the membership that all pods of one gang share."""
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


#: The part of an invalid duration that a message quotes.
_QUOTED = 40
#: The default of the API server.
_GRACE_S = 30.0
#: The part of the message of kube-scheduler that is kept.
_REFUSAL_LENGTH = 300
#: The size of the cache of label sets, and the bounds of each set in it.
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
    """Decode one Pod: JSON, or the mapping that a YAML file was parsed into."""
    try:
        if isinstance(data, Mapping):
            return msgspec.convert(data, RawPod)
        return _decoder.decode(drop_labels(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHookCall(f"this is not a Pod: {error}") from error


def uid(data: bytes | msgspec.Raw) -> PodUid:
    """Return the uid of a Pod, without decoding the rest; empty if it has none."""
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
    """Return a reader of the pod in a hook call.

    It returns the pod of the watch if *seen* has it, else it reads the pod just as the watch does.
    *membership* returns the final membership, which other objects can change.
    """

    def read(raw: bytes) -> tuple[Pod, Membership]:
        # The fields that matter do not change while a pod is pending, and reading is expensive.
        known = seen(uid(raw))
        if known is not None and known[0].status is Status.PENDING and not known[0].gated:
            return known
        new, declared = to_pod(pod(raw), schedulers=schedulers, exempt=exempt)
        return new, membership(new, declared)

    return read


def to_pod(
    raw: RawPod, *, schedulers: frozenset[str], exempt: frozenset[str] = frozenset()
) -> tuple[Pod, Membership]:
    """Return a pod and its membership; never raises: what cannot be read becomes a problem.

    In *exempt* namespaces no pod belongs to a gang.
    """
    meta, spec, status = raw.metadata, raw.spec, raw.status
    annotations = meta.annotations or _NO_ANNOTATIONS
    labels = meta.labels
    scheduler = spec.scheduler_name or "default-scheduler"
    ours = scheduler in schedulers
    membership, pod_status = membership_of(raw), _status(raw)
    waits = ours and pod_status is Status.PENDING
    try:
        shape, excess = _shapes.of(raw, ours=ours, waits=waits)
        if excess:
            membership = _too_large(membership, excess, waits)
        elif labels and (excess := excess_of_labels(labels)):
            # The pod is placed without them. After a refusal, kube-scheduler would write the status
            # of this large object, which is slow, and schedule no other pod meanwhile.
            membership = _too_large(membership, excess, waits=False)
    except InvalidQuantity as error:
        shape = _UNREADABLE
        membership = replace(
            membership, problem=f"pod {meta.name} cannot be read: {shorten(error)}"
        )
    lasts_s = parse_duration(annotations.duration) if annotations.duration else None
    if annotations.duration and lasts_s is None:
        membership = _with_remark(membership, annotations.duration[: _QUOTED + 1])
    namespace = intern(meta.namespace or "default")
    is_exempt = namespace in exempt or namespace == SYSTEM_NAMESPACE
    if is_exempt and membership.named and not membership.native:
        membership = without_gang(membership)
    return (
        Pod(
            uid=PodUid(meta.uid or f"{namespace}/{meta.name}"),
            namespace=namespace,
            name=meta.name,
            shape=shape,
            status=pod_status,
            node=intern(shorten_name(spec.node_name or "")),
            role=_value(annotations.role, labels, ROLE),
            priority=spec.priority or 0,
            task_priority=_task_priority(annotations),
            priority_class=intern(shorten_name(spec.priority_class_name or "")),
            created=meta.created,
            leaves_by=meta.leaves_by,
            gated=bool(spec.scheduling_gates),
            preemptable=_is_true(_value(annotations.preemptable, labels, PREEMPTABLE)),
            may_preempt=spec.preemption_policy != "Never",
            ours=ours,
            scheduler=intern(scheduler) if ours else "",
            exempt=is_exempt,
            nominated=intern(shorten_name(status.nominated_node_name or "")),
            started_in=intern(shorten_name(annotations.started_in))
            if annotations.started_in and spec.node_name
            else "",
            terminating=ours and bool(spec.node_name) and _is_disruption_target(status),
            labels=_labels(labels) if labels and ours else NO_LABELS,
            lasts_s=lasts_s or 0.0,
            deadline_s=_deadline(spec.active_deadline_seconds),
            grace_s=_grace(spec),
            began=status.began if spec.node_name else 0.0,
            ended=status.ended if pod_status in FINISHED_SET else 0.0,
            refusal=_refusal(status) if ours and not spec.node_name else "",
            woken_by=_waker(annotations.woken) if ours and annotations.woken else "",
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
    return float(seconds) if seconds is not None and 0 < seconds <= MAX_DURATION_S else 0.0


def _grace(spec: RawPodSpec) -> float:
    """Return how long a pod may run after its deadline; 0 without a deadline."""
    if not _deadline(spec.active_deadline_seconds):
        return 0.0
    grace = spec.termination_grace_period_seconds
    return _GRACE_S if grace is None else float(min(max(grace, 0), MAX_DURATION_S))


@lru_cache(maxsize=4096)
def _with_remark(membership: Membership, written: str) -> Membership:
    """Return the membership with a remark that the duration cannot be read."""
    remark = invalid_duration(written)
    return replace(membership, remark="; ".join(filter(None, (membership.remark, remark))))


def invalid_duration(written: str) -> str:
    """Return a remark with the format of a duration."""
    shown = written[:_QUOTED] + "…" if len(written) > _QUOTED else written
    return f"annotation {DURATION} is {shown!r}, which is not a duration; write 90s, 45m or 1h30m"


def _task_priority(annotations: RawPodAnnotations) -> int | None:
    if annotations.task_priority:
        try:
            return int(annotations.task_priority[:11])
        except ValueError:
            pass
    return None


def _value(annotation: str | None, labels: Labels | None, key: str) -> str:
    value = annotation or (labels.get(key) if labels else None)
    return intern(shorten_name(value)) if value else ""


def _is_true(text: str) -> bool:
    """Return a flag of Volcano: true when absent, false when invalid."""
    return text in ("", "true", "True", "TRUE", "t", "T", "1")


def _refusal(status: RawPodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            refused = condition.status == "False" and condition.reason == "Unschedulable"
            return intern((condition.message or "")[:_REFUSAL_LENGTH]) if refused else ""
    return ""


def _is_disruption_target(status: RawPodStatus) -> bool:
    return any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == "PreemptionByScheduler"
        for condition in status.conditions or ()
    )


def _waker(woken: str) -> str:
    """Return the extender that woke a pod: the annotation has it after the time (`write/wake`)."""
    return intern(woken.partition(" by ")[2][:_WAKER_LENGTH])


@lru_cache(maxsize=16_384)
def _too_large(membership: Membership, excess: str, waits: bool) -> Membership:
    """Return the membership of a gang's pods that are too large in the same way.

    Pending pods are not scheduled; for pods on a node, or not ours, the excess is only reported.
    """
    problem = f"a pod of it has {excess}; write fewer" if waits else membership.problem
    return replace(membership, problem=membership.problem or problem, excess=excess)


def _labels(labels: Labels) -> Mapping[str, str]:
    """Return the labels, shared between equal pods if they are as few as usual."""
    if len(labels) <= _SHARED_LABELS:
        pairs = tuple(labels.items())
        if sum(map(len, chain(*pairs))) <= _SHARED_LENGTH:
            return _shared(pairs)
    return first_labels(labels)


@lru_cache(_REMEMBERED_LABELS)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(labels)


def placeholder_pod(meta: MinimalMeta, why: str) -> tuple[Pod, Membership]:
    """Return a placeholder for a pod that cannot be read: a gang of its own, with a problem."""
    namespace, name = meta.namespace or "default", meta.name
    uid = PodUid(meta.uid or f"{namespace}/{name}")
    pod = Pod(uid=uid, namespace=namespace, name=name, shape=_UNREADABLE)
    key = GangKey(f"{namespace}/pod{IMPLICIT}{name}")
    return pod, Membership(key=key, named=True, problem=f"pod {name} cannot be read: {why}")
