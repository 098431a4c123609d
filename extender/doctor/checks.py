"""All traps that we know, and all that are set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from extender.clock import timestamp
from extender.doctor import (
    config_checks,
    rbac,
    tls_checks,
)
from extender.doctor.facts import (
    Check,
    ClusterFacts,
    CrdFacts,
    ExtenderDeployment,
    FindingFacts,
    LeaseFacts,
    Problem,
    Severity,
)
from extender.doctor.scheduler_config import DEFAULT_PROFILE
from extender.doctor.tls_checks import unprotected
from extender.findings.finding import PERMISSION_MISSING
from extender.model.gang import COSCHEDULING, VERSIONS, VOLCANO
from extender.ports import UNPROTECTED
from extender.settings import Settings

#: Classes that never wait for us.
_CRITICAL = ("system-cluster-critical", "system-node-critical")
#: In which no pod ever waits for us.
_SYSTEM = "kube-system"
NOT_INSTALLED = Check(
    "NotInstalled",
    "no extender is there: pods of its schedulers are scheduled by nobody, or one by one",
    "`kubectl apply -k manifests/overlays/second-scheduler`",
)
INVALID_SETTINGS = Check(
    "InvalidSettings",
    "the extender refuses its arguments and does not start; after the next restart nobody answers",
    "arguments that `gang-extender serve` takes",
)
SCHEDULES_ITSELF = Check(
    "ExtenderSchedulesItself",
    "the extender's own pods wait for the scheduler that waits for the extender: once all"
    " replicas are gone, none comes back",
    "another `schedulerName` for its pods; behind the cluster's own scheduler, which has to"
    " schedule them, a critical priority class or `--exempt-namespace` of their own",
)
NO_STANDBY = Check(
    "NoStandby",
    "one replica: while its node is lost, drained or upgraded nothing is scheduled",
    "`replicas: 2` and a `--lease`",
)
STANDBY_NOT_SYNCED = Check(
    "StandbyNotSynced",
    "fewer than two replicas could lead: if the one that is ready goes, nothing is scheduled"
    " until another is",
    "what its log and `/warmz` say",
)
EXTENDER_NOT_READY = Check(
    "ExtenderNotReady",
    "no replica is ready: pods of its schedulers wait",
    "what its log and the events of its pods say",
)
TWO_LEADERS = Check(
    "TwoLeaders",
    "several replicas and no lease: each acts by itself, promises the same room and evicts for it",
    "`--lease own`, or `--lease scheduler` beside a kube-scheduler",
)
TWO_EXTENDERS = Check(
    "TwoExtenders",
    "two Deployments serve the same name: each promises the same room and evicts for it",
    "one of them alone, or names that differ",
)
SERVICE_WITHOUT_POD = Check(
    "ServiceWithoutEndpoints",
    "no ready pod carries the labels that the Service selects: whoever asks there gets no answer",
    'a selector of the pods\' labels and `gang-extender.io/leader: "true"`, and a leader',
)
DEPLOYMENT = (
    NOT_INSTALLED, INVALID_SETTINGS, SCHEDULES_ITSELF, NO_STANDBY, STANDBY_NOT_SYNCED,
    EXTENDER_NOT_READY, TWO_LEADERS, TWO_EXTENDERS, SERVICE_WITHOUT_POD,
)  # fmt: skip


def of_deployments(seen: ClusterFacts) -> Iterator[Problem]:
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


def _of_settings(each: ExtenderDeployment) -> Iterator[Problem]:
    settings = each.settings
    if settings is None:
        yield INVALID_SETTINGS.at(
            each.where, each.problem, f"kubectl -n {each.namespace} edit deployment {each.name}"
        )
        return
    if each.scheduler_name in settings.scheduler_name and not _has_no_choice(each, settings):
        mend = (
            "set `priorityClassName: system-cluster-critical` in its pod template"
            if each.scheduler_name == DEFAULT_PROFILE
            else "take `schedulerName` out of its pod template"
        )
        yield SCHEDULES_ITSELF.at(
            each.where, f"its pods are scheduled by {each.scheduler_name}, which it serves", mend
        )
    if each.replicas > 1 and settings.lease == "none":
        kind = "--lease=scheduler --lease-name=NAME" if each.is_pair else "--lease=own"
        yield TWO_LEADERS.at(
            each.where, f"{each.replicas} replicas, --lease=none", f"add {kind} to its arguments"
        )


def _has_no_choice(each: ExtenderDeployment, settings: Settings) -> bool:
    """Ask whether only the scheduler it serves can take it, and need not wait for its answer.

    Behind the cluster's own scheduler somebody must be; a replica that is left answers for those
    that never wait, whatever else it knows.
    """
    places = (_SYSTEM, *settings.exempt_namespace)
    exempt = each.priority_class in _CRITICAL or each.namespace in places
    return each.scheduler_name == DEFAULT_PROFILE and exempt


def _of_replicas(each: ExtenderDeployment) -> Iterator[Problem]:
    scale = f"kubectl -n {each.namespace} scale deployment {each.name} --replicas=2"
    if each.replicas < 2:
        yield NO_STANDBY.at(each.where, f"replicas: {each.replicas}", scale)
    if each.pods is None or not each.replicas:
        return
    ready = [pod.name for pod in each.pods if pod.is_ready]
    logs = f"kubectl -n {each.namespace} logs deployment/{each.name} -c extender"
    if not ready:
        yield EXTENDER_NOT_READY.at(each.where, f"0 of {len(each.pods)} pods are ready", logs)
    elif len(ready) < min(2, each.replicas):
        cold = [pod.name for pod in each.pods if not pod.is_ready]
        which = f"; {', '.join(cold)} is not" if cold else ""
        yield STANDBY_NOT_SYNCED.at(
            each.where,
            f"only {ready[0]} is ready{which}",
            f"kubectl -n {each.namespace} describe pods, and logs of those that are not ready",
        )


def _between(installed: tuple[ExtenderDeployment, ...]) -> Iterator[Problem]:
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


def _of_services(seen: ClusterFacts) -> Iterator[Problem]:
    known = [each.pods for each in seen.installed or () if each.pods is not None]
    ready = [pod for pods in known for pod in pods if pod.is_ready]
    # While none is ready that is said already, and no Service can mend it.
    if not ready:
        return
    for service in seen.services:
        if not any(service.selector.items() <= pod.labels.items() for pod in ready):
            wants = ", ".join(f"{key}={value}" for key, value in service.selector.items())
            yield SERVICE_WITHOUT_POD.at(
                service.where,
                f"it selects {wants}, and no ready pod of ours has all of these",
                "apply service.yaml of the overlay again; if that is as it was, nobody leads",
            )


#: A lease that ran out may be taken the next moment.
_PATIENCE_S = 5.0
NO_LEADER = Check(
    "NoLeader",
    "nobody holds the lease by which one of the replicas acts: all of them stand by, and nothing"
    " is scheduled",
    "a replica, or the kube-scheduler beside it, that runs and may write the lease",
)
LEASES = (NO_LEADER,)


def of_leases(seen: ClusterFacts) -> Iterator[Problem]:
    """Find leases that are not there, were given back, or ran out."""
    # They are written by clocks of the cluster; whose clock is wrong is told elsewhere.
    now = seen.clocks.here + (seen.clocks.api_server_s or 0.0)
    for lease in seen.leases:
        if why := _problem(lease, now):
            yield NO_LEADER.at(
                f"lease/{lease.name} in {lease.namespace}",
                why,
                f"kubectl -n {lease.namespace} get lease {lease.name} -o yaml, and the logs of"
                " whoever should hold it",
            )


def _problem(lease: LeaseFacts, now: float) -> str:
    if not lease.exists:
        return "it does not exist"
    if not lease.holder:
        return "nobody holds it"
    silent_s = now - lease.renewed
    if silent_s > lease.duration_s + _PATIENCE_S:
        return f"{lease.holder} renewed it last at {timestamp(lease.renewed)}, {silent_s:.0f} s ago"
    return ""


#: What nobody notices.
_TOLERATED_S = 5.0
CLOCK_SKEW = Check(
    "ClockSkew",
    "the extender's clock is not the API server's: how long gangs wait, run and are kept is"
    " counted wrongly, and certificates seem to have expired or not to be valid yet",
    "time synchronisation (chrony, systemd-timesyncd) on the nodes of both",
)
CLOCK_SKEW_HERE = Check(
    "ClockSkewHere",
    "the clock of the machine you type on is not the API server's: what `explain` and `top` say"
    " of times looks wrong to you",
    "time synchronisation on this machine",
    Severity.HINT,
)
CLOCKS = (CLOCK_SKEW, CLOCK_SKEW_HERE)


def of_clocks(seen: ClusterFacts) -> Iterator[Problem]:
    """Compare the clocks that were read with the API server's."""
    clocks = seen.clocks
    if clocks.api_server_s is None:
        return
    if abs(clocks.api_server_s) > _TOLERATED_S:
        yield CLOCK_SKEW_HERE.at("this machine", _said(-clocks.api_server_s))
    if clocks.extender_s is not None:
        ahead_s = clocks.extender_s - clocks.api_server_s
        if abs(ahead_s) > _TOLERATED_S:
            yield CLOCK_SKEW.at("the extender", _said(ahead_s))
    now = clocks.here + clocks.api_server_s
    for lease in seen.leases:
        if lease.exists and lease.holder and lease.renewed - now > _TOLERATED_S:
            yield CLOCK_SKEW.at(
                f"lease/{lease.name} in {lease.namespace}",
                f"{lease.holder} renewed it {lease.renewed - now:.0f} s in the future of the API"
                " server",
            )


def _said(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return f"its clock is {abs(ahead_s):.0f} s {way} the API server's"


#: Without these a gang is none, and a queue all alike.
_NEEDED = {"podgroups": frozenset({"minMember"}), "queues": frozenset({"weight"})}
#: Fields that we read where the CRD has them, beside those.
_READ = {
    "podgroups": frozenset({"queue", "priorityClassName", "minTaskMember", "minResources"}),
    "queues": frozenset(
        {"capability", "deserved", "guarantee", "reclaimable", "parent", "priority"}
    ),
}
#: What a cluster can have us read, in the order in which we tell.
PLURALS = ("podgroups", "queues")
#: Of the policies in manifests/admission.
POLICIES = frozenset(
    {
        "gang-extender-pod-groups",
        "gang-extender-pod-sizes",
        "gang-extender-queues",
        "gang-extender-started-in",
        "gang-extender-without-effect",
    }
)
CRD_MISSING = Check(
    "CRDMissing",
    "no PodGroup, or no Queue, can be written: gangs have no minimum, or all share one queue",
    "`kubectl apply -k manifests/crds`",
)
CRD_VERSION_UNKNOWN = Check(
    "CRDVersionUnknown",
    "the kind is installed in versions that we do not read: its gangs look like pods without a"
    " group",
    "a CustomResourceDefinition that serves the version we read",
)
CRD_FIELDS_MISSING = Check(
    "CRDFieldsMissing",
    "the API server drops a field without which a gang is none: `minMember`, or the `weight` of a"
    " queue",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
)
CRD_OUTDATED = Check(
    "CRDOutdated",
    "the API server drops fields that we read, without a word: what they say has no effect",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
    Severity.HINT,
)
NO_ADMISSION_POLICIES = Check(
    "NoAdmissionPolicies",
    "senseless Queues and PodGroups are accepted and said afterwards, and a tenant can edit where"
    " a pod was started",
    "`kubectl apply -k manifests/admission`",
    Severity.HINT,
)
KINDS = (
    CRD_MISSING, CRD_VERSION_UNKNOWN, CRD_FIELDS_MISSING, CRD_OUTDATED,
    NO_ADMISSION_POLICIES,
)  # fmt: skip


def of_kinds(seen: ClusterFacts) -> Iterator[Problem]:
    """Find what is missing of the kinds that we read."""
    if seen.kinds is not None:
        for plural in PLURALS:
            if not any(each.plural == plural for each in seen.kinds):
                name = f"{plural}.{VOLCANO}"
                yield CRD_MISSING.at(f"crd/{name}", "no CustomResourceDefinition of any dialect")
        for each in seen.kinds:
            yield from _of_kind(each)
    if seen.admission_policies is not None and (absent := POLICIES - seen.admission_policies):
        yield NO_ADMISSION_POLICIES.at(
            "the cluster",
            f"no ValidatingAdmissionPolicy {', '.join(sorted(absent))}",
            "kubectl apply -k manifests/admission",
        )


def _of_kind(kind: CrdFacts) -> Iterator[Problem]:
    wanted, where = VERSIONS[kind.group], f"crd/{kind.name}"
    if wanted not in kind.versions:
        yield CRD_VERSION_UNKNOWN.at(
            where,
            f"it serves {', '.join(kind.versions) or 'nothing'}, and we read {wanted}",
            f"let it serve {wanted}"
            + ("; ours does: kubectl apply -k manifests/crds" if kind.group == VOLCANO else ""),
        )
        return
    if kind.fields is None:
        return
    if lacks := _NEEDED[kind.plural] - kind.fields:
        yield CRD_FIELDS_MISSING.at(where, f"its spec has no {', '.join(sorted(lacks))}")
    # The others never had them, and nobody of theirs expects them.
    if kind.group == VOLCANO and (lacks := _READ[kind.plural] - kind.fields):
        yield CRD_OUTDATED.at(where, f"its spec has no {', '.join(sorted(lacks))}")


def is_read(group: str, plural: str) -> bool:
    """Ask whether we read that kind; coscheduling has no queues."""
    return group in VERSIONS and plural in PLURALS and (group, plural) != (COSCHEDULING, "queues")


NOT_READY = Check(
    "NotReady",
    "the extender decides nothing: pods of its schedulers wait",
    "what it says",
)
CONDITION_REPORTED = Check(
    "ConditionReported",
    "the extender goes on, but for what it says here",
    "what it says",
)
#: Of every reason that a finding has: its name is the reason, and its message has the mend.
_ELSEWHERE = "its message says"
FINDINGS = (NOT_READY, CONDITION_REPORTED)


def of_findings(seen: ClusterFacts) -> Iterator[Problem]:
    """Pass on what the extender says, but for what was seen already."""
    yield from _of_readiness(seen)
    lacks = [f"may not {each.verb} {each.resource};" for each in seen.lacking]
    for each in seen.findings:
        if each.reason == PERMISSION_MISSING and any(lack in each.message for lack in lacks):
            continue
        yield of_finding(each)


def of_finding(finding: FindingFacts) -> Problem:
    """Make one a trap; its sentence ends with the mend."""
    wrong, semicolon, mend = finding.message.rpartition("; ")
    trap = Check(finding.reason, "something is written that makes no sense", _ELSEWHERE)
    where = f"{finding.kind}/{finding.name}"
    return trap.at(where, wrong if semicolon else finding.message, mend if semicolon else "")


def _of_readiness(seen: ClusterFacts) -> Iterator[Problem]:
    said = seen.said
    if said is None:
        return
    told = [finding.message for finding in seen.findings]
    news = [line for line in said.lines if not any(each in line or line in each for each in told)]
    for line in news:
        if line.startswith(UNPROTECTED):
            yield unprotected(said.where, line.removeprefix(UNPROTECTED))
            continue
        wrong, semicolon, mend = line.rpartition("; ")
        trap = CONDITION_REPORTED if said.is_ready else NOT_READY
        yield trap.at(said.where, wrong if semicolon else line, mend if semicolon else "")


#: By where one looks; the manual has them in this order.
KNOWN: dict[str, tuple[Check, ...]] = {
    "kube-scheduler's configuration": config_checks.CONFIGURATION,
    "names of schedulers": config_checks.NAMES,
    "the Deployment": DEPLOYMENT,
    "leadership": LEASES,
    "rights": rbac.RBAC,
    "kinds": KINDS,
    "certificates": tls_checks.TLS,
    "clocks": CLOCKS,
    "features of Kubernetes": config_checks.FEATURES,
    "what the extender says": FINDINGS,
}


def run_checks(seen: ClusterFacts) -> list[Problem]:
    """Name every trap that is set; those that only hint come last."""
    caught = [
        *(each for told in seen.configurations for each in config_checks.of_configuration(told)),
        *config_checks.of_names(seen),
        *of_deployments(seen),
        *of_leases(seen),
        *rbac.of_rights(seen),
        *of_kinds(seen),
        *tls_checks.of_certificates(seen),
        *of_clocks(seen),
        *config_checks.of_features(seen),
        *of_findings(seen),
    ]
    return sorted(caught, key=lambda each: each.trap.severity is Severity.HINT)
