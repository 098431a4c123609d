"""Facts of a cluster without problems, and for every check the same with that one problem."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from extender.doctor import rbac
from extender.doctor.checks import POLICIES
from extender.doctor.facts import (
    CallerFiles,
    Clocks,
    ClusterFacts,
    CrdFacts,
    Document,
    ExtenderDeployment,
    HookFiles,
    LeaseFacts,
    MissingPermission,
    Readiness,
    Replica,
    RunningScheduler,
    SchedulerConfig,
    ServiceFacts,
)
from extender.settings import Settings
from extender.tls.issue import Authority
from extender.web.documents import Finding

OVERLAYS = Path(__file__).parents[3] / "manifests" / "overlays"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
HERE = NOW.timestamp()
CONFIG: Document = yaml.safe_load(
    (OVERLAYS / "second-scheduler" / "scheduler-config.yaml").read_text()
)
SETTINGS = Settings(
    lease="scheduler", lease_name="gang-scheduler", lease_namespace="gang-system", pod_name="x"
)
LABELS = {"app.kubernetes.io/name": "gang-extender"}
LEADER = {**LABELS, "gang-extender.io/leader": "true"}
SERVER = "gang-extender.gang-system.svc"
AUTHORITY = Authority.new("ca", 3650, NOW)
SHOWN = AUTHORITY.for_server([SERVER], 365, NOW).certificate
CALLER = AUTHORITY.for_client("system:kube-scheduler", 365, NOW).certificate
ANOTHER = Authority.new("another", 3650, NOW)
TLS = {"caFile": "/ca.crt", "certFile": "/client.crt", "keyFile": "/k", "serverName": SERVER}

#: Fields of our Queue and PodGroup.
FIELDS = {
    "podgroups": ["minMember", "queue", "priorityClassName", "minTaskMember", "minResources"],
    "queues": [
        "weight", "capability", "deserved", "guarantee", "reclaimable", "parent", "priority",
    ],
}  # fmt: skip


def kind(plural: str, **changes: Any) -> CrdFacts:
    found = CrdFacts("scheduling.volcano.sh", plural, ("v1beta1",), frozenset(FIELDS[plural]))
    return found._replace(**changes)


INSTALLED = ExtenderDeployment(
    namespace="gang-system",
    name="gang-scheduler",
    settings=SETTINGS,
    replicas=2,
    account="gang-extender",
    priority_class="system-cluster-critical",
    is_pair=True,
    pods=(Replica("a", True, LEADER), Replica("b", True, LABELS)),
)
LEASE = LeaseFacts("gang-system", "gang-scheduler", True, "a_1", HERE - 1)
HOOKS = HookFiles(where="tls.crt", certificate=SHOWN, client_ca=AUTHORITY.pair.certificate)
ASKING = CallerFiles(
    where="extenders[0]",
    server_name=SERVER,
    ca=AUTHORITY.pair.certificate,
    certificate=CALLER,
    client_names=("system:kube-scheduler",),
)
GOOD = ClusterFacts(
    clocks=Clocks(here=HERE, api_server_s=0.0, extender_s=0.4),
    is_cluster=True,
    configurations=(SchedulerConfig(where="config", document=CONFIG, settings=SETTINGS),),
    schedulers=(RunningScheduler("kube-scheduler", {"WatchList": True}),),
    installed=(INSTALLED,),
    leases=(LEASE,),
    services=(ServiceFacts("service/gang-extender in gang-system", LEADER),),
    kinds=(kind("podgroups"), kind("queues")),
    admission_policies=POLICIES,
    hooks=(HOOKS,),
    callers=(ASKING,),
    readiness=Readiness("http://127.0.0.1:8889", True, ()),
)


def configured(change: Callable[[Document], object], **settings: Any) -> ClusterFacts:
    """The good cluster with a configuration that *change* has edited."""
    document = copy.deepcopy(CONFIG)
    change(document)
    return with_settings(document, replace(SETTINGS, **settings))


def with_settings(document: Document, settings: Settings) -> ClusterFacts:
    told = SchedulerConfig(where="config", document=document, settings=settings)
    return replace(GOOD, configurations=(told,), installed=(replace(INSTALLED, settings=settings),))


def entry(index: int, **changes: Any) -> ClusterFacts:
    """The good cluster with changes in an entry: 0 filters, 1 binds; None removes a field."""

    def change(document: Document) -> None:
        found = document["extenders"][index]
        found.update(changes)
        for name in [name for name, value in changes.items() if value is None]:
            del found[name]

    return configured(change)


def secured(**changes: Any) -> ClusterFacts:
    """The good cluster over https, with changes in the tlsConfig of both entries."""

    def change(document: Document) -> None:
        for each in document["extenders"]:
            told = {**TLS, **changes}
            each["urlPrefix"] = "https://10.0.0.7:8888"
            each["enableHTTPS"] = True
            each["tlsConfig"] = {name: value for name, value in told.items() if value is not None}

    return configured(change)


def called(url: str, **changes: Any) -> ClusterFacts:
    """The good cluster with another URL in both entries."""
    return configured(
        lambda told: [each.update(urlPrefix=url, **changes) for each in told["extenders"]]
    )


def deployed(**changes: Any) -> ClusterFacts:
    """The good cluster with changes in its Deployment."""
    return replace(GOOD, installed=(replace(INSTALLED, **changes),))


OTHER_DEPLOYMENT = replace(
    INSTALLED, name="gang-extender", settings=Settings(lease="own"), is_pair=False
)
OLD = AUTHORITY.for_server([SERVER], 365, NOW - timedelta(days=360)).certificate
OTHER_CLIENT = AUTHORITY.for_client("another-client", 365, NOW).certificate

#: Name of a check -> the good cluster with that problem, and no other.
CASES: dict[str, ClusterFacts] = {
    "ExtenderNotConfigured": configured(lambda told: told.pop("extenders")),
    "IgnorableBind": entry(1, ignorable=True),
    "IgnorableFilter": entry(0, ignorable=True),
    "BindTimeoutMissing": entry(1, httpTimeout=None),
    "BindTimeoutShort": entry(1, httpTimeout="30s"),
    "NodeCacheOff": entry(0, nodeCacheCapable=False),
    "CAMissing": secured(caFile=None),
    "NoClientCertificate": secured(certFile=None),
    "PlainHttp": called("http://10.0.0.7:8888"),
    "SingleEntry": entry(1, filterVerb="filter"),
    "TwoBinders": configured(lambda told: told["extenders"].append(told["extenders"][1])),
    "NoBind": configured(lambda told: told["extenders"].pop()),
    "NoFilter": entry(0, filterVerb=None),
    "NoPreempt": entry(0, preemptVerb=None),
    "ManagedResourcesSet": entry(0, managedResources=[{"name": "example.com/gpu"}]),
    "PrioritizeNotCalled": configured(lambda told: None, prefer="pack"),
    "LeaseMismatch": configured(
        lambda told: told["leaderElection"].update(resourceName="kube-scheduler")
    ),
    "ProfileNotServed": configured(
        lambda told: told["profiles"].append({"schedulerName": "not-served"})
    ),
    "ProfileMissing": configured(lambda told: told["profiles"].pop()),
    "NotInstalled": replace(GOOD, installed=(), readiness=None),
    "InvalidSettings": deployed(settings=None, problem="--hold-s 'x' is not a number"),
    "ExtenderSchedulesItself": deployed(scheduler_name="gang-scheduler"),
    "NoStandby": deployed(replicas=1, pods=INSTALLED.pods and INSTALLED.pods[:1]),
    "StandbyNotSynced": deployed(pods=(Replica("a", True, LEADER), Replica("b", False, LABELS))),
    "ExtenderNotReady": deployed(pods=(Replica("a", False, LEADER),)),
    "TwoLeaders": with_settings(CONFIG, Settings()),
    "TwoExtenders": replace(GOOD, installed=(INSTALLED, OTHER_DEPLOYMENT)),
    "ServiceWithoutEndpoints": replace(
        GOOD, services=(ServiceFacts("service/gang-extender", {"app": "another"}),)
    ),
    "NoLeader": replace(GOOD, leases=(LEASE._replace(renewed=HERE - 60),)),
    "TokenReviewForbidden": replace(
        GOOD,
        missing_permissions=tuple(
            MissingPermission(INSTALLED.user, right.verb, right.what, "")
            for right in rbac.TOKEN_REVIEW
        ),
    ),
    "PermissionMissing": replace(
        GOOD,
        missing_permissions=(MissingPermission(INSTALLED.user, "create", "pods/eviction"),),
        findings=(
            # The extender was refused too and reports the same finding.
            Finding(
                "ServiceAccount",
                INSTALLED.user,
                "PermissionMissing",
                f"{INSTALLED.user} may not create pods/eviction; grant it as our manifests do",
            ),
        ),
    ),
    "CRDMissing": replace(GOOD, kinds=(kind("queues"),)),
    "CRDVersionUnknown": replace(
        GOOD, kinds=(kind("podgroups", versions=("v1alpha1",), fields=None), kind("queues"))
    ),
    "CRDFieldsMissing": replace(
        GOOD,
        kinds=(kind("podgroups", fields=frozenset(FIELDS["podgroups"][1:])), kind("queues")),
    ),
    "CRDOutdated": replace(
        GOOD,
        kinds=(kind("podgroups"), kind("queues", fields=frozenset(FIELDS["queues"][:-2]))),
    ),
    "NoAdmissionPolicies": replace(GOOD, admission_policies=frozenset()),
    "CertificateExpires": replace(GOOD, hooks=(replace(HOOKS, certificate=OLD),)),
    "CertificateUntrusted": replace(GOOD, callers=(replace(ASKING, ca=ANOTHER.pair.certificate),)),
    "CertificateWrongName": replace(GOOD, callers=(replace(ASKING, server_name="10.0.0.7"),)),
    "CallerRefused": replace(GOOD, callers=(replace(ASKING, certificate=OTHER_CLIENT),)),
    "CertificateUnreadable": replace(GOOD, hooks=(replace(HOOKS, certificate=b"none"),)),
    "CredentialsUnprotected": replace(
        GOOD, unprotected=("kubeconfig k sends its token over http; write https",)
    ),
    "ClockSkew": replace(GOOD, clocks=Clocks(here=HERE, api_server_s=0.0, extender_s=-90.0)),
    "ClockSkewHere": replace(
        GOOD,
        clocks=Clocks(here=HERE, api_server_s=90.0, extender_s=90.0),
        leases=(LEASE._replace(renewed=HERE + 89),),
    ),
    "NativeGangs": replace(GOOD, server_gates=frozenset({"GenericWorkload"})),
    "NotReady": replace(
        GOOD, readiness=Readiness("ops", False, ("pods: first list not complete",))
    ),
    "ConditionReported": replace(
        GOOD, readiness=Readiness("ops", True, ("binds: kube-scheduler gives up; set it",))
    ),
}
