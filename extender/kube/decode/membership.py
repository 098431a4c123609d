"""Which gang a pod names, in whatever dialect its author knows.

Every mark may be an annotation or a label. Our own wins, then the order of `_GROUP_KEYS`. A pod
that names nothing belongs to the shadow gang of its controller, or is one by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from extender.kube.decode.bounds import LONGEST_NAME, excess_of_members, excess_of_text, short
from extender.kube.decode.raw import Labels, RawMarks, RawOwner, RawPod
from extender.model.gang import SHADOW, GangKey, Membership

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
_NO_MARKS = RawMarks()


def membership_of(pod: RawPod) -> Membership:
    """Say to which gang *pod* belongs."""
    meta, spec = pod.metadata, pod.spec
    native = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or (
        spec.workload_ref and f"{spec.workload_ref.name}.{spec.workload_ref.pod_group}"
    )
    if native:
        return _membership(meta.namespace, f"native{SHADOW}{short(native)}", True, "", "", True)
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
            return f"{owner.kind.lower()}{SHADOW}{owner.name}"
    return f"pod{SHADOW}{pod_name}"


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
