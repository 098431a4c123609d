"""All known checks, and the list of problems that they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from extender.clock import timestamp
from extender.doctor import config_checks, rbac, tls_checks
from extender.doctor.facts import (
    Check,
    ClusterFacts,
    CrdFacts,
    ExtenderDeployment,
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
from extender.web.documents import Finding

#: Priority classes whose pods the extender always admits.
_CRITICAL = ("system-cluster-critical", "system-node-critical")
#: The namespace whose pods the extender always admits.
_SYSTEM = "kube-system"
NOT_INSTALLED = Check(
    "NotInstalled",
    "no extender is installed: pods of its schedulers are not scheduled, or one by one",
    "`kubectl apply -k manifests/overlays/second-scheduler`",
)
INVALID_SETTINGS = Check(
    "InvalidSettings",
    "the extender refuses its arguments and does not start: after the next restart none answers",
    "arguments that `gang-extender serve` takes",
)
SCHEDULES_ITSELF = Check(
    "ExtenderSchedulesItself",
    "the extender's own pods wait for the scheduler that waits for the extender: once all"
    " replicas have stopped, none starts again",
    "another `schedulerName` for its pods; behind the cluster's own scheduler, which has to"
    " schedule them, a critical priority class or `--exempt-namespace` of their namespace",
)
NO_STANDBY = Check(
    "NoStandby",
    "one replica: while its node is lost, drained or upgraded nothing is scheduled",
    "`replicas: 2` and a `--lease`",
)
STANDBY_NOT_SYNCED = Check(
    "StandbyNotSynced",
    "fewer than two replicas could lead: if the ready one stops, nothing is scheduled until"
    " another is ready",
    "the reason in its log and `/warmz`",
)
EXTENDER_NOT_READY = Check(
    "ExtenderNotReady",
    "no replica is ready: pods of its schedulers wait",
    "the reason in its log and the events of its pods",
)
TWO_LEADERS = Check(
    "TwoLeaders",
    "several replicas and no lease: each acts alone, reserves the same capacity and evicts for it",
    "`--lease own`, or `--lease scheduler` beside a kube-scheduler",
)
TWO_EXTENDERS = Check(
    "TwoExtenders",
    "two Deployments serve the same name: each reserves the same capacity and evicts for it",
    "only one of them, or different names",
)
SERVICE_WITHOUT_POD = Check(
    "ServiceWithoutEndpoints",
    "no ready pod has the labels that the Service selects: clients get no answer",
    'a selector of the pods\' labels and `gang-extender.io/leader: "true"`, and a leader',
)
DEPLOYMENT = (
    NOT_INSTALLED, INVALID_SETTINGS, SCHEDULES_ITSELF, NO_STANDBY, STANDBY_NOT_SYNCED,
    EXTENDER_NOT_READY, TWO_LEADERS, TWO_EXTENDERS, SERVICE_WITHOUT_POD,
)  # fmt: skip


def of_deployments(facts: ClusterFacts) -> Iterator[Problem]:
    """Check every Deployment of the extender, and all of them together."""
    if facts.installed is None:
        return
    if not facts.installed and facts.readiness is None:
        yield NOT_INSTALLED.at(
            "the cluster",
            "no Deployment has the label app.kubernetes.io/name: gang-extender and runs `serve`",
        )
    for each in facts.installed:
        yield from _of_settings(each)
        yield from _of_replicas(each)
    yield from _between(facts.installed)
    yield from _of_services(facts)


def _of_settings(each: ExtenderDeployment) -> Iterator[Problem]:
    settings = each.settings
    if settings is None:
        yield INVALID_SETTINGS.at(
            each.where, each.problem, f"kubectl -n {each.namespace} edit deployment {each.name}"
        )
        return
    if each.scheduler_name in settings.scheduler_name and not _is_exempt(each, settings):
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


def _is_exempt(each: ExtenderDeployment, settings: Settings) -> bool:
    """Return whether the scheduler it serves must schedule it, and may without its answer.

    The cluster's own scheduler schedules all pods. A remaining replica answers for exempt pods even
    when its cache is not synced.
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
        not_ready = [pod.name for pod in each.pods if not pod.is_ready]
        listed = f"; {', '.join(not_ready)} is not" if not_ready else ""
        yield STANDBY_NOT_SYNCED.at(
            each.where,
            f"only {ready[0]} is ready{listed}",
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
                f"kubectl -n {other.namespace} delete deployment {other.name}, or set different"
                " names with --scheduler-name",
            )


def _of_services(facts: ClusterFacts) -> Iterator[Problem]:
    known = [each.pods for each in facts.installed or () if each.pods is not None]
    ready = [pod for pods in known for pod in pods if pod.is_ready]
    # Without a ready pod there is another problem already, and no Service can fix it.
    if not ready:
        return
    for service in facts.services:
        if not any(service.selector.items() <= pod.labels.items() for pod in ready):
            wants = ", ".join(f"{key}={value}" for key, value in service.selector.items())
            yield SERVICE_WITHOUT_POD.at(
                service.where,
                f"it selects {wants}, and no ready pod of the extender has all of these",
                "apply service.yaml of the overlay again; if it is unchanged, no replica leads",
            )


#: An expired lease may be acquired the next moment.
_GRACE_S = 5.0
NO_LEADER = Check(
    "NoLeader",
    "no replica holds the lease: all of them stand by, and nothing is scheduled",
    "a replica, or the kube-scheduler in its pod, that runs and may write the lease",
)
LEASES = (NO_LEADER,)


def of_leases(facts: ClusterFacts) -> Iterator[Problem]:
    """Find leases that do not exist, were released, or expired."""
    # Leases have times of the cluster; another check reports a wrong clock.
    now = facts.clocks.here + (facts.clocks.api_server_s or 0.0)
    for lease in facts.leases:
        if why := _problem(lease, now):
            yield NO_LEADER.at(
                f"lease/{lease.name} in {lease.namespace}",
                why,
                f"kubectl -n {lease.namespace} get lease {lease.name} -o yaml, and the logs of"
                " the pod that should hold it",
            )


def _problem(lease: LeaseFacts, now: float) -> str:
    if not lease.exists:
        return "it does not exist"
    if not lease.holder:
        return "it has no holder"
    silent_s = now - lease.renewed
    if silent_s > lease.duration_s + _GRACE_S:
        return f"{lease.holder} renewed it last at {timestamp(lease.renewed)}, {silent_s:.0f} s ago"
    return ""


#: A difference that has no effect.
_TOLERATED_S = 5.0
CLOCK_SKEW = Check(
    "ClockSkew",
    "the extender's clock differs from the API server's: waits, run times and reservations are"
    " measured wrongly, and certificates seem to have expired or not to be valid yet",
    "time synchronisation (chrony, systemd-timesyncd) on the nodes of both",
)
CLOCK_SKEW_HERE = Check(
    "ClockSkewHere",
    "the clock of this machine differs from the API server's: times in `explain` and `top` look"
    " wrong",
    "time synchronisation on this machine",
    Severity.HINT,
)
CLOCKS = (CLOCK_SKEW, CLOCK_SKEW_HERE)


def of_clocks(facts: ClusterFacts) -> Iterator[Problem]:
    """Compare the clocks that were read with the API server's."""
    clocks = facts.clocks
    if clocks.api_server_s is None:
        return
    if abs(clocks.api_server_s) > _TOLERATED_S:
        yield CLOCK_SKEW_HERE.at("this machine", _skew(-clocks.api_server_s))
    if clocks.extender_s is not None:
        ahead_s = clocks.extender_s - clocks.api_server_s
        if abs(ahead_s) > _TOLERATED_S:
            yield CLOCK_SKEW.at("the extender", _skew(ahead_s))
    now = clocks.here + clocks.api_server_s
    for lease in facts.leases:
        if lease.exists and lease.holder and lease.renewed - now > _TOLERATED_S:
            yield CLOCK_SKEW.at(
                f"lease/{lease.name} in {lease.namespace}",
                f"{lease.holder} renewed it {lease.renewed - now:.0f} s in the future of the API"
                " server",
            )


def _skew(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return f"its clock is {abs(ahead_s):.0f} s {way} the API server's"


#: The fields without which gangs have no minimum, and all queues the same weight.
_NEEDED = {"podgroups": frozenset({"minMember"}), "queues": frozenset({"weight"})}
#: Further fields that are read where the CRD has them.
_READ = {
    "podgroups": frozenset({"queue", "priorityClassName", "minTaskMember", "minResources"}),
    "queues": frozenset(
        {"capability", "deserved", "guarantee", "reclaimable", "parent", "priority"}
    ),
}
#: The kinds that are read, in the order of the problems.
PLURALS = ("podgroups", "queues")
#: The policies in manifests/admission.
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
    "no PodGroup, or no Queue, can be created: gangs have no minimum, or all share one queue",
    "`kubectl apply -k manifests/crds`",
)
CRD_VERSION_UNKNOWN = Check(
    "CRDVersionUnknown",
    "the kind is installed in versions that the extender does not read: its gangs look like pods"
    " without a group",
    "a CustomResourceDefinition that serves the version that the extender reads",
)
CRD_FIELDS_MISSING = Check(
    "CRDFieldsMissing",
    "the API server drops a required field: `minMember` of a gang, or the `weight` of a queue",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
)
CRD_OUTDATED = Check(
    "CRDOutdated",
    "the API server silently drops fields that the extender reads: they have no effect",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
    Severity.HINT,
)
NO_ADMISSION_POLICIES = Check(
    "NoAdmissionPolicies",
    "invalid Queues and PodGroups are accepted and reported afterwards, and a tenant can edit the"
    " record of where a pod was started",
    "`kubectl apply -k manifests/admission`",
    Severity.HINT,
)
KINDS = (
    CRD_MISSING, CRD_VERSION_UNKNOWN, CRD_FIELDS_MISSING, CRD_OUTDATED,
    NO_ADMISSION_POLICIES,
)  # fmt: skip


def of_kinds(facts: ClusterFacts) -> Iterator[Problem]:
    """Check the kinds and admission policies that the extender reads."""
    if facts.kinds is not None:
        for plural in PLURALS:
            if not any(each.plural == plural for each in facts.kinds):
                name = f"{plural}.{VOLCANO}"
                yield CRD_MISSING.at(f"crd/{name}", "no CustomResourceDefinition of any API group")
        for each in facts.kinds:
            yield from _of_kind(each)
    if facts.admission_policies is not None and (absent := POLICIES - facts.admission_policies):
        yield NO_ADMISSION_POLICIES.at(
            "the cluster",
            f"no ValidatingAdmissionPolicy {', '.join(sorted(absent))}",
            "kubectl apply -k manifests/admission",
        )


def _of_kind(kind: CrdFacts) -> Iterator[Problem]:
    version, where = VERSIONS[kind.group], f"crd/{kind.name}"
    if version not in kind.versions:
        yield CRD_VERSION_UNKNOWN.at(
            where,
            f"it serves {', '.join(kind.versions) or 'nothing'}, and the extender reads {version}",
            f"add {version} to its served versions"
            + ("; ours does: kubectl apply -k manifests/crds" if kind.group == VOLCANO else ""),
        )
        return
    if kind.fields is None:
        return
    if missing := _NEEDED[kind.plural] - kind.fields:
        yield CRD_FIELDS_MISSING.at(where, f"its spec has no {', '.join(sorted(missing))}")
    # The other API groups never had them, and their users do not expect them.
    if kind.group == VOLCANO and (missing := _READ[kind.plural] - kind.fields):
        yield CRD_OUTDATED.at(where, f"its spec has no {', '.join(sorted(missing))}")


def is_read(group: str, plural: str) -> bool:
    """Return whether the extender reads that kind; coscheduling has no queues."""
    return group in VERSIONS and plural in PLURALS and (group, plural) != (COSCHEDULING, "queues")


NOT_READY = Check(
    "NotReady",
    "the extender decides nothing: pods of its schedulers wait",
    "as its message says",
)
CONDITION_REPORTED = Check(
    "ConditionReported",
    "the extender works, but not as configured",
    "as its message says",
)
#: The remedy of a finding without one in its message.
_ELSEWHERE = "its message says"
FINDINGS = (NOT_READY, CONDITION_REPORTED)


def of_findings(facts: ClusterFacts) -> Iterator[Problem]:
    """Report notes and findings of the extender that no other check found."""
    yield from _of_readiness(facts)
    missing = [f"may not {each.verb} {each.resource};" for each in facts.missing_permissions]
    for each in facts.findings:
        if each.reason == PERMISSION_MISSING and any(lack in each.message for lack in missing):
            continue
        yield of_finding(each)


def of_finding(finding: Finding) -> Problem:
    """Return the problem of a finding; its message ends with the remedy."""
    check = Check(finding.reason, "an object or a setting is invalid", _ELSEWHERE)
    return check.at(f"{finding.kind}/{finding.name}", *_with_remedy(finding.message))


def _of_readiness(facts: ClusterFacts) -> Iterator[Problem]:
    readiness = facts.readiness
    if readiness is None:
        return
    messages = [finding.message for finding in facts.findings]
    for line in readiness.lines:
        if any(each in line or line in each for each in messages):
            continue
        if line.startswith(UNPROTECTED):
            yield unprotected(readiness.where, line.removeprefix(UNPROTECTED))
            continue
        check = CONDITION_REPORTED if readiness.is_ready else NOT_READY
        yield check.at(readiness.where, *_with_remedy(line))


def _with_remedy(sentence: str) -> tuple[str, str]:
    """Split a sentence into what is wrong and the remedy; empty where it has none."""
    wrong, semicolon, mend = sentence.rpartition("; ")
    return (wrong, mend) if semicolon else (sentence, "")


#: By area its checks and the function that runs them; the manual has them in this order.
_AREAS: tuple[tuple[str, tuple[Check, ...], Callable[[ClusterFacts], Iterator[Problem]]], ...] = (
    (
        "kube-scheduler's configuration",
        config_checks.CONFIGURATION,
        config_checks.of_configurations,
    ),
    ("names of schedulers", config_checks.NAMES, config_checks.of_names),
    ("the Deployment", DEPLOYMENT, of_deployments),
    ("leadership", LEASES, of_leases),
    ("permissions", rbac.RBAC, rbac.of_rights),
    ("kinds", KINDS, of_kinds),
    ("certificates", tls_checks.TLS, tls_checks.of_certificates),
    ("clocks", CLOCKS, of_clocks),
    ("features of Kubernetes", config_checks.FEATURES, config_checks.of_features),
    ("findings of the extender", FINDINGS, of_findings),
)
KNOWN = {area: checks for area, checks, _ in _AREAS}


def run_checks(facts: ClusterFacts) -> list[Problem]:
    """Run all checks and return the problems, hints last."""
    problems = [problem for _, _, find in _AREAS for problem in find(facts)]
    return sorted(problems, key=lambda each: each.check.severity is Severity.HINT)
