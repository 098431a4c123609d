"""Traps in how the extender itself is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from extender.doctor.entries import DEFAULT_PROFILE
from extender.doctor.seen import Installed, Seen
from extender.doctor.trap import Caught, Trap
from extender.settings import Settings

#: Classes that never wait for us.
_CRITICAL = ("system-cluster-critical", "system-node-critical")
#: In which no pod ever waits for us.
_SYSTEM = "kube-system"

NOT_INSTALLED = Trap(
    "NotInstalled",
    "no extender is there: pods of its schedulers are scheduled by nobody, or one by one",
    "`kubectl apply -k manifests/overlays/second-scheduler`",
)
BAD_SETTINGS = Trap(
    "BadSettings",
    "the extender refuses its arguments and does not start; after the next restart nobody answers",
    "arguments that `gang-extender serve` takes",
)
SCHEDULED_BY_ITSELF = Trap(
    "ScheduledByItself",
    "the extender's own pods wait for the scheduler that waits for the extender: once all"
    " replicas are gone, none comes back",
    "another `schedulerName` for its pods; behind the cluster's own scheduler, which has to"
    " schedule them, a critical priority class or `--exempt-namespace` of their own",
)
NO_STANDBY = Trap(
    "NoStandby",
    "one replica: while its node is lost, drained or upgraded nothing is scheduled",
    "`replicas: 2` and a `--lease`",
)
STANDBY_NOT_WARM = Trap(
    "StandbyNotWarm",
    "fewer than two replicas could lead: if the one that is ready goes, nothing is scheduled"
    " until another is",
    "what its log and `/warmz` say",
)
EXTENDER_SILENT = Trap(
    "ExtenderSilent",
    "no replica is ready: pods of its schedulers wait",
    "what its log and the events of its pods say",
)
TWO_LEADERS = Trap(
    "TwoLeaders",
    "several replicas and no lease: each acts by itself, promises the same room and evicts for it",
    "`--lease own`, or `--lease scheduler` beside a kube-scheduler",
)
TWO_EXTENDERS = Trap(
    "TwoExtenders",
    "two Deployments serve the same name: each promises the same room and evicts for it",
    "one of them alone, or names that differ",
)
SERVICE_LEADS_NOWHERE = Trap(
    "ServiceLeadsNowhere",
    "no ready pod carries the labels that the Service selects: whoever asks there gets no answer",
    'a selector of the pods\' labels and `gang-extender.io/leader: "true"`, and a leader',
)

TRAPS = (
    NOT_INSTALLED, BAD_SETTINGS, SCHEDULED_BY_ITSELF, NO_STANDBY, STANDBY_NOT_WARM,
    EXTENDER_SILENT, TWO_LEADERS, TWO_EXTENDERS, SERVICE_LEADS_NOWHERE,
)  # fmt: skip


def of_deployments(seen: Seen) -> Iterator[Caught]:
    """Find the traps of every Deployment of ours, and those between them."""
    if seen.installed is None:
        return
    if not seen.installed and seen.said is None:
        yield NOT_INSTALLED.at(
            "the cluster",
            "no Deployment has the label app.kubernetes.io/name: gang-extender and runs `serve`",
        )
    for each in seen.installed:
        yield from _of_settings(each)
        yield from _of_replicas(each)
    yield from _between(seen.installed)
    yield from _of_services(seen)


def _of_settings(each: Installed) -> Iterator[Caught]:
    settings = each.settings
    if settings is None:
        yield BAD_SETTINGS.at(
            each.where, each.problem, f"kubectl -n {each.namespace} edit deployment {each.name}"
        )
        return
    if each.scheduler_name in settings.scheduler_name and not _has_no_choice(each, settings):
        mend = (
            "set `priorityClassName: system-cluster-critical` in its pod template"
            if each.scheduler_name == DEFAULT_PROFILE
            else "take `schedulerName` out of its pod template"
        )
        yield SCHEDULED_BY_ITSELF.at(
            each.where, f"its pods are scheduled by {each.scheduler_name}, which it serves", mend
        )
    if each.replicas > 1 and settings.lease == "none":
        kind = "--lease=scheduler --lease-name=NAME" if each.is_pair else "--lease=own"
        yield TWO_LEADERS.at(
            each.where, f"{each.replicas} replicas, --lease=none", f"add {kind} to its arguments"
        )


def _has_no_choice(each: Installed, settings: Settings) -> bool:
    """Ask whether only the scheduler it serves can take it, and need not wait for its answer.

    Behind the cluster's own scheduler somebody must be; a replica that is left answers for those
    that never wait, whatever else it knows.
    """
    places = (_SYSTEM, *settings.exempt_namespace)
    exempt = each.priority_class in _CRITICAL or each.namespace in places
    return each.scheduler_name == DEFAULT_PROFILE and exempt


def _of_replicas(each: Installed) -> Iterator[Caught]:
    scale = f"kubectl -n {each.namespace} scale deployment {each.name} --replicas=2"
    if each.replicas < 2:
        yield NO_STANDBY.at(each.where, f"replicas: {each.replicas}", scale)
    if each.pods is None or not each.replicas:
        return
    ready = [pod.name for pod in each.pods if pod.is_ready]
    logs = f"kubectl -n {each.namespace} logs deployment/{each.name} -c extender"
    if not ready:
        yield EXTENDER_SILENT.at(each.where, f"0 of {len(each.pods)} pods are ready", logs)
    elif len(ready) < min(2, each.replicas):
        cold = [pod.name for pod in each.pods if not pod.is_ready]
        which = f"; {', '.join(cold)} is not" if cold else ""
        yield STANDBY_NOT_WARM.at(
            each.where,
            f"only {ready[0]} is ready{which}",
            f"kubectl -n {each.namespace} describe pods, and logs of those that are not ready",
        )


def _between(installed: tuple[Installed, ...]) -> Iterator[Caught]:
    served = [(e, e.settings.scheduler_name) for e in installed if e.replicas and e.settings]
    for (one, names), (other, its) in combinations(served, 2):
        both = [name for name in names if name in its]
        if both:
            yield TWO_EXTENDERS.at(
                f"{one.where} and {other.where}",
                f"both serve {', '.join(both)}",
                f"kubectl -n {other.namespace} delete deployment {other.name}, or name with"
                " --scheduler-name what each shall serve",
            )


def _of_services(seen: Seen) -> Iterator[Caught]:
    known = [each.pods for each in seen.installed or () if each.pods is not None]
    ready = [pod for pods in known for pod in pods if pod.is_ready]
    # While none is ready that is said already, and no Service can mend it.
    if not ready:
        return
    for service in seen.services:
        if not any(service.selector.items() <= pod.labels.items() for pod in ready):
            wants = ", ".join(f"{key}={value}" for key, value in service.selector.items())
            yield SERVICE_LEADS_NOWHERE.at(
                service.where,
                f"it selects {wants}, and no ready pod of ours has all of these",
                "apply service.yaml of the overlay again; if that is as it was, nobody leads",
            )
