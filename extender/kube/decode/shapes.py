"""Identical pods share one shape: everything that decides which nodes a pod fits.

Reading a shape means parsing quantities and building selectors; recognising one means hashing
what was decoded. So each spec is first looked up as it was written, and only a new one is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from extender.errors import InvalidQuantity
from extender.kube.decode.limits import MOST_PORTS, excess_of_pod, some, words
from extender.kube.decode.raw import (
    Quantities,
    RawContainer,
    RawContainerStatus,
    RawNodeAffinity,
    RawNodeTerm,
    RawPod,
    RawPodStatus,
    RawPort,
    RawRequirement,
    RawResources,
    RawToleration,
)
from extender.model.pod import HostPort, NodeTerm, Requirement, Shape, Toleration
from extender.model.resources import LARGEST, NOTHING, PODS, Resources

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
            raise InvalidQuantity(written[name])
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


#: More than the different shapes of any cluster say together, in words; when they are reached, the
#: memory starts afresh. An ordinary shape has ten.
_REMEMBERED = 500_000
#: Of pods that are too large, each of which may have some megabytes to say.
_REMEMBERED_CUT = 16
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (Kubernetes' word for any address; nothing listens here)


class Shapes:
    """Remembers the shapes it has seen; safe to share between threads."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._as_written: dict[Hashable, Shape] = {}
        self._canonical: dict[Hashable, Shape] = {}
        self._words = 0
        self._cut: dict[Hashable, Shape] = {}

    def of(self, pod: RawPod, *, ours: bool, waits: bool = False) -> tuple[Shape, str]:
        """Give the one shape of pods like *pod*; a foreign pod is only what it takes up.

        And what of it is more than we read (a phrase), mostly nothing. Raises `BadQuantity` for an
        amount nobody can read.
        """
        written = _as_written(pod, ours)
        shape = self._as_written.get(written)
        if shape is not None:
            return shape, ""  # what is too large is not remembered here
        if excess := excess_of_pod(pod):
            return self._of_large(pod, waits=waits), excess
        return self._learn(pod, written, _read(pod, ours)), ""

    def _of_large(self, pod: RawPod, *, waits: bool) -> Shape:
        """Give the shape of a pod that is too large: what it takes up, and some of its ports.

        All of what it takes up, unless it *waits*: it will not start. Few of these are
        remembered, and apart, so that they make us forget none of the others.
        """
        written = (_as_written(pod, ours=False), waits)
        shape = self._cut.get(written)
        if shape is None:
            requests, ports = requests_of(pod), _host_ports(pod)[:MOST_PORTS]
            shape = Shape(Resources(some(requests)) if waits else requests, host_ports=ports)
            if len(self._cut) >= _REMEMBERED_CUT:
                self._cut.clear()
            self._cut[written] = shape
        return shape

    def _learn(self, pod: RawPod, written: Hashable, shape: Shape) -> Shape:
        self._words += (said := _written_words(pod) + _words(shape))
        if self._words >= self._remembered:
            self._as_written.clear()
            self._canonical.clear()
            self._words = said
        shape = self._canonical.setdefault(_content(shape), shape)
        self._as_written[written] = shape
        return shape


def _written_words(pod: RawPod) -> int:
    """Count what was written to say what a pod takes up."""
    spec = pod.spec
    return sum(
        2
        + len(each.ports or ())
        + (len(each.resources.requests or ()) if each.resources else 0)
        + (len(each.resources.limits or ()) if each.resources else 0)
        for each in chain(spec.containers or (), spec.init_containers or ())
    )


def _words(shape: Shape) -> int:
    """Count what a shape says."""
    terms = [*(shape.affinity or ()), *(term for _, term in shape.preferred)]
    expressions = [each for term in terms for each in (*term.labels, *term.fields)]
    return (
        4
        + len(shape.requests)
        + len(shape.selector)
        + sum(2 + sum(map(words, each.values)) for each in expressions)
        + sum(words(each.key) + words(each.value) for each in shape.tolerations)
        + len(shape.host_ports)
    )


def _as_written(pod: RawPod, ours: bool) -> Hashable:
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
    containers = chain(
        pod.spec.containers or (),
        (each for each in pod.spec.init_containers or () if each.restart_policy == "Always"),
    )
    ports: Sequence[RawPort] = [port for each in containers for port in each.ports or ()]
    return tuple(
        HostPort(port.port, port.protocol or "TCP", port.ip or _ANY_ADDRESS)
        for port in ports
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
    """Read one expression of a selector."""
    return Requirement(raw.key, raw.operator, raw.values or ())
