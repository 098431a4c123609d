"""Shapes: all fields that decide which nodes a pod fits. Identical pods share one shape.

To create a shape, quantities are parsed and selectors built; to recognise one, the decoded fields
are hashed. So each spec is first looked up as it is written, and only a new one is converted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from extender.errors import InvalidQuantity
from extender.kube.decode.limits import MOST_PORTS, excess_of_pod, limit_kinds, text_weight
from extender.kube.decode.raw import (
    Quantities,
    RawContainer,
    RawContainerStatus,
    RawNodeAffinity,
    RawNodeTerm,
    RawPod,
    RawPodStatus,
    RawRequirement,
    RawResources,
    RawToleration,
)
from extender.model.pod import HostPort, NodeTerm, Requirement, Shape, Toleration
from extender.model.resources import LARGEST, NOTHING, PODS, Resources

ONE_POD = Resources({PODS: 1})
_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"


def requests_of(pod: RawPod) -> Resources:
    """Return the resources that *pod* uses; raises `InvalidQuantity` for an invalid amount."""
    spec, status = pod.spec, pod.status
    is_infeasible = _is_infeasible(status)
    statuses = {each.name: each for each in _statuses(status)}

    def effective(container: RawContainer) -> Resources:
        current = statuses.get(container.name)
        requested = parse(container.resources)
        return (
            _effective(requested, current.resources, current.allocated_resources, is_infeasible)
            if current
            else requested
        )

    total = pod_requests(
        [effective(each) for each in spec.containers or ()],
        [
            # A plain init container ends soon and is not resized.
            (effective(each) if is_sidecar(each) else parse(each.resources), is_sidecar(each))
            for each in spec.init_containers or ()
        ],
        quantities(spec.overhead),
        _pod_level(pod, is_infeasible),
    )
    return Resources({name: min(amount, LARGEST) for name, amount in total.items() if amount})


def pod_requests(
    containers: Sequence[Resources],
    init: Sequence[tuple[Resources, bool]] = (),
    overhead: Resources = NOTHING,
    pod_level: Resources = NOTHING,
) -> Resources:
    """Return the request of a pod as kube-scheduler computes it, with `pods: 1`.

    *init* is in the order of the pod's spec; the flag marks a sidecar (`restartPolicy: Always`),
    which keeps running beside all containers that start after it. Plain init containers run alone,
    so only the highest of their requests counts. A resource in *pod_level* replaces the sum of the
    containers.
    """
    running, peak = NOTHING, NOTHING
    for amounts, stays in init:
        peak = peak.at_least(running + amounts)
        if stays:
            running = running + amounts
    needed = sum(containers, running).at_least(peak)
    return Resources({**needed, **pod_level}) + overhead + ONE_POD


def resize_of(pod: RawPod) -> Hashable:
    """Return the resources that the kubelet allocates, if a resize makes them differ from the spec.

    The value is only for comparison, as a part of the key of a shape.
    """
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    spec = pod.spec
    statuses = {each.name: each for each in _statuses(status)}
    # By position: the key of a shape does not contain the names of containers.
    differing = [
        (position, _allocation(found.resources, found.allocated_resources))
        for position, each in enumerate(chain(spec.containers or (), spec.init_containers or ()))
        if (found := statuses.get(each.name))
        and _differs(each.resources, found.resources, found.allocated_resources)
    ]
    if _differs(spec.resources, status.resources, status.allocated_resources):
        differing.append((-1, _allocation(status.resources, status.allocated_resources)))
    return (tuple(differing), _is_infeasible(status)) if differing else None


def is_sidecar(container: RawContainer) -> bool:
    """Return whether an init container keeps running beside those that start after it."""
    return container.restart_policy == "Always"


def parse(resources: RawResources | None) -> Resources:
    """Return the requests; a limit without a request counts as one, as in the API server."""
    if resources is None:
        return NOTHING
    return quantities({**(resources.limits or {}), **(resources.requests or {})})


def quantities(written: Quantities | None) -> Resources:
    """Parse quantities; raises `InvalidQuantity` for a negative one."""
    if not written:
        return NOTHING
    amounts = Resources.parse(written)
    for name, amount in amounts.items():
        if amount < 0:
            raise InvalidQuantity(written[name])
    return amounts


def _pod_level(pod: RawPod, is_infeasible: bool) -> Resources:
    """Return the requests at pod level, with the kubelet's allocation of the same resources."""
    status, requested = pod.status, parse(pod.spec.resources)
    effective = _effective(requested, status.resources, status.allocated_resources, is_infeasible)
    return Resources({name: effective.amount(name) for name in requested})


def _effective(
    requested: Resources,
    actual: RawResources | None,
    allocated: Quantities | None,
    is_infeasible: bool,
) -> Resources:
    if actual is None:
        return requested
    current = quantities(actual.requests).at_least(quantities(allocated))
    return current if is_infeasible else requested.at_least(current)


def _differs(
    requested: RawResources | None, actual: RawResources | None, allocated: Quantities | None
) -> bool:
    if actual is None:
        return False
    wanted = (requested and requested.requests) or {}
    return (actual.requests or {}) != wanted or (allocated or {}) != wanted


def _is_infeasible(status: RawPodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == _RESIZE_PENDING:
            return condition.reason == _INFEASIBLE
    return status.resize == _INFEASIBLE


def _statuses(status: RawPodStatus) -> Iterator[RawContainerStatus]:
    return chain(status.container_statuses or (), status.init_container_statuses or ())


def _allocation(actual: RawResources | None, allocated: Quantities | None) -> Hashable:
    requests = actual.requests if actual else None
    return tuple((requests or {}).items()), tuple((allocated or {}).items())


#: The total weight of remembered shapes at which all are dropped: more than the different shapes of
#: any cluster weigh together. An ordinary shape weighs ten.
_MAX_WEIGHT = 500_000
#: The number of remembered shapes of pods that are too large, each of which may have megabytes.
_MAX_CUT = 16
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (in Kubernetes any address; nothing listens here)


class Shapes:
    """A cache of shapes; safe to share between threads."""

    def __init__(self, max_weight: int = _MAX_WEIGHT) -> None:
        self._max_weight = max_weight
        self._by_key: dict[Hashable, Shape] = {}
        self._by_content: dict[Hashable, Shape] = {}
        self._weight = 0
        self._cut: dict[Hashable, Shape] = {}

    def __len__(self) -> int:
        """Return the number of cached specs; several of them may share a shape."""
        return len(self._by_key) + len(self._cut)

    def of(self, pod: RawPod, *, ours: bool, waits: bool = False) -> tuple[Shape, str]:
        """Return the shape of *pod*, and a phrase with what of it is not read, usually empty.

        For a pod that is not ours, the shape has only its requests and host ports. Raises
        `InvalidQuantity` for an invalid amount.
        """
        key = _key_of(pod, ours)
        shape = self._by_key.get(key)
        if shape is not None:
            return shape, ""  # shapes that are too large are not in this cache
        if excess := excess_of_pod(pod):
            return self._of_large(pod, waits=waits), excess
        return self._add(pod, key, _read(pod, ours)), ""

    def _of_large(self, pod: RawPod, *, waits: bool) -> Shape:
        """Return the shape of a pod that is too large: its requests, and some of its host ports.

        All of its requests, unless it *waits*: such a pod is not scheduled. Few of these shapes are
        remembered, in a separate cache, so that they displace no other shape.
        """
        key = (_key_of(pod, ours=False), waits)
        shape = self._cut.get(key)
        if shape is None:
            requests, ports = requests_of(pod), _host_ports(pod)[:MOST_PORTS]
            shape = Shape(Resources(limit_kinds(requests)) if waits else requests, host_ports=ports)
            if len(self._cut) >= _MAX_CUT:
                self._cut.clear()
            self._cut[key] = shape
        return shape

    def _add(self, pod: RawPod, key: Hashable, shape: Shape) -> Shape:
        self._weight += (weight := _written_weight(pod) + _weight(shape))
        if self._weight >= self._max_weight:
            self._by_key.clear()
            self._by_content.clear()
            self._weight = weight
        shape = self._by_content.setdefault(_content(shape), shape)
        self._by_key[key] = shape
        return shape


def _written_weight(pod: RawPod) -> int:
    """Return the weight of the requests of a pod as they are written."""
    spec = pod.spec
    return sum(
        2
        + len(each.ports or ())
        + (len(each.resources.requests or ()) if each.resources else 0)
        + (len(each.resources.limits or ()) if each.resources else 0)
        for each in chain(spec.containers or (), spec.init_containers or ())
    )


def _weight(shape: Shape) -> int:
    """Return the weight of a shape."""
    terms = [*(shape.affinity or ()), *(term for _, term in shape.preferred)]
    expressions = [each for term in terms for each in (*term.labels, *term.fields)]
    return (
        4
        + len(shape.requests)
        + len(shape.selector)
        + sum(2 + sum(map(text_weight, each.values)) for each in expressions)
        + sum(text_weight(each.key) + text_weight(each.value) for each in shape.tolerations)
        + len(shape.host_ports)
    )


def _key_of(pod: RawPod, ours: bool) -> Hashable:
    spec = pod.spec
    needs = (
        tuple([_needs(container) for container in spec.containers or ()]),
        tuple([_needs(container) for container in spec.init_containers or ()]),
        _items(spec.overhead),
        _amounts(spec.resources),
        resize_of(pod),
    )
    if not ours:
        return needs
    return (needs, _items(spec.node_selector), spec.affinity, spec.tolerations)


def _needs(container: RawContainer) -> Hashable:
    return (_amounts(container.resources), container.ports, container.restart_policy)


def _amounts(resources: RawResources | None) -> Hashable:
    if resources is None:
        return None
    return (_items(resources.requests), _items(resources.limits))


def _items(mapping: Quantities | dict[str, str] | None) -> Hashable:
    return tuple(mapping.items()) if mapping else None


def _content(shape: Shape) -> Hashable:
    return (
        shape.requests,
        shape.selector,
        shape.affinity,
        shape.preferred,
        shape.tolerations,
        shape.host_ports,
    )


def _read(pod: RawPod, ours: bool) -> Shape:
    requests, host_ports = requests_of(pod), _host_ports(pod)
    if not ours:
        return Shape(requests=requests, host_ports=host_ports)
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return Shape(
        requests=requests,
        selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=_required(affinity),
        preferred=_preferred(affinity),
        tolerations=tuple(map(_toleration, spec.tolerations or ())),
        host_ports=host_ports,
    )


def _toleration(raw: RawToleration) -> Toleration:
    return Toleration(raw.key or "", raw.operator or "Equal", raw.value or "", raw.effect or "")


def _host_ports(pod: RawPod) -> tuple[HostPort, ...]:
    sidecars = filter(is_sidecar, pod.spec.init_containers or ())
    return tuple(
        HostPort(port.port, port.protocol or "TCP", port.ip or _ANY_ADDRESS)
        for each in chain(pod.spec.containers or (), sidecars)
        for port in each.ports or ()
        if port.port
    )


def _required(affinity: RawNodeAffinity | None) -> tuple[NodeTerm, ...] | None:
    if affinity is None or affinity.required is None:
        return None
    return tuple(map(_term, affinity.required.node_selector_terms or ()))


def _preferred(affinity: RawNodeAffinity | None) -> tuple[tuple[int, NodeTerm], ...]:
    if affinity is None:
        return ()
    return tuple((each.weight, _term(each.preference)) for each in affinity.preferred or ())


def _term(term: RawNodeTerm | None) -> NodeTerm:
    if term is None:
        return NodeTerm()
    return NodeTerm(
        tuple(map(requirement, term.match_expressions or ())),
        tuple(map(requirement, term.match_fields or ())),
    )


def requirement(raw: RawRequirement) -> Requirement:
    """Return one expression of a selector."""
    return Requirement(raw.key, raw.operator, raw.values or ())
