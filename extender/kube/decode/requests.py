"""What a pod takes up on its node, added up as kube-scheduler does it, a resize in place included.

A resize makes what is asked for, what the kubelet has allocated and what a container actually has
differ for a while. The most of the three counts; unless the kubelet says that the resize can never
happen: then what is asked for counts no more, else a typo of one tenant would fill a node for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from extender.errors import BadQuantity
from extender.kube.decode.raw import (
    Quantities,
    RawContainer,
    RawContainerStatus,
    RawPod,
    RawPodStatus,
    RawResources,
)
from extender.model.quantity import LARGEST
from extender.model.resources import NOTHING, PODS, Resources

ONE_POD = Resources({PODS: 1})
_RESIZE_PENDING = "PodResizePending"
_NEVER = "Infeasible"


def requests_of(pod: RawPod) -> Resources:
    """Add up what *pod* takes up; raises `BadQuantity` for an amount nobody can read."""
    spec, status = pod.spec, pod.status
    never = _is_never_possible(status)
    statuses = {each.name: each for each in _statuses(status)}

    def effective(container: RawContainer) -> Resources:
        given = statuses.get(container.name)
        asked = parse(container.resources)
        return (
            _effective(asked, given.resources, given.allocated_resources, never) if given else asked
        )

    total = pod_requests(
        [effective(each) for each in spec.containers or ()],
        [
            # A plain init container is over soon and is not resized.
            (effective(each) if is_sidecar(each) else parse(each.resources), is_sidecar(each))
            for each in spec.init_containers or ()
        ],
        quantities(spec.overhead),
        _of_the_whole(pod, never),
    )
    return Resources({name: min(amount, LARGEST) for name, amount in total.items() if amount})


def pod_requests(
    containers: Sequence[Resources],
    init: Sequence[tuple[Resources, bool]] = (),
    overhead: Resources = NOTHING,
    pod_level: Resources = NOTHING,
) -> Resources:
    """Add up a pod as kube-scheduler does, `pods: 1` included.

    *init* is in the order of the pod's spec; the flag says that the container is a sidecar
    (`restartPolicy: Always`), which keeps running beside everything that starts after it. Plain
    init containers run alone, so only the most demanding moment counts. A resource named at
    *pod_level* replaces what the containers add up to.
    """
    running, peak = NOTHING, NOTHING
    for amounts, stays in init:
        peak = peak.at_least(running + amounts)
        if stays:
            running = running + amounts
    needed = sum(containers, running).at_least(peak)
    return Resources({**needed, **pod_level}) + overhead + ONE_POD


def resize_of(pod: RawPod) -> Hashable:
    """Tell what the kubelet really gives, where a resize makes it differ from the spec."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    spec = pod.spec
    given = {each.name: each for each in _statuses(status)}
    # By place: the rest of a pod's shape is told without the names of its containers.
    differing = [
        (place, _given(found.resources, found.allocated_resources))
        for place, each in enumerate(chain(spec.containers or (), spec.init_containers or ()))
        if (found := given.get(each.name))
        and _differs(each.resources, found.resources, found.allocated_resources)
    ]
    if _differs(spec.resources, status.resources, status.allocated_resources):
        differing.append((-1, _given(status.resources, status.allocated_resources)))
    return (tuple(differing), _is_never_possible(status)) if differing else None


def is_sidecar(container: RawContainer) -> bool:
    """Ask whether an init container keeps running beside what starts after it."""
    return container.restart_policy == "Always"


def parse(resources: RawResources | None) -> Resources:
    """Read requests; a limit without a request is one, as the API server's defaults make it."""
    if resources is None:
        return NOTHING
    return quantities({**(resources.limits or {}), **(resources.requests or {})})


def quantities(written: Quantities | None) -> Resources:
    """Read amounts, none of them below zero."""
    if not written:
        return NOTHING
    amounts = Resources.parse(written)
    for name, amount in amounts.items():
        if amount < 0:
            raise BadQuantity(written[name])
    return amounts


def _of_the_whole(pod: RawPod, never: bool) -> Resources:
    """Read what is said of the pod as a whole; what the kubelet gives counts for these names."""
    status, asked = pod.status, parse(pod.spec.resources)
    effective = _effective(asked, status.resources, status.allocated_resources, never)
    return Resources({name: effective.amount(name) for name in asked})


def _effective(
    asked: Resources, actual: RawResources | None, allocated: Quantities | None, never: bool
) -> Resources:
    if actual is None:
        return asked
    given = quantities(actual.requests).at_least(quantities(allocated))
    return given if never else asked.at_least(given)


def _differs(
    asked: RawResources | None, actual: RawResources | None, allocated: Quantities | None
) -> bool:
    if actual is None:
        return False
    wanted = (asked and asked.requests) or {}
    return (actual.requests or {}) != wanted or (allocated or {}) != wanted


def _is_never_possible(status: RawPodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == _RESIZE_PENDING:
            return condition.reason == _NEVER
    return status.resize == _NEVER


def _statuses(status: RawPodStatus) -> Iterator[RawContainerStatus]:
    return chain(status.container_statuses or (), status.init_container_statuses or ())


def _given(actual: RawResources | None, allocated: Quantities | None) -> Hashable:
    requests = actual.requests if actual else None
    return tuple((requests or {}).items()), tuple((allocated or {}).items())
