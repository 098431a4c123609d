"""The manifests grant exactly the needed permissions: without any of them something fails.

The API server here does not stream lists, as in older minors, so that `list` is needed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
import urllib3
import yaml

from extender.cache.cluster import Cluster
from extender.clock import SystemClock
from extender.kube.client import ApiClient
from extender.kube.watch import Watch
from tests import objects
from tests.cluster.components import ApiServer
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.cluster.extender_process import REPOSITORY, Extender
from tests.cluster.permissions import (
    BEHIND_A_SERVICE,
    BESIDE_A_SCHEDULER,
    EVERYWHERE,
    OF_SCHEDULER,
    POD_STATUS,
    RBAC,
    TOKEN_REVIEWS,
    WHOLE_PODGROUPS,
    Account,
    AuditRecord,
    Permission,
    granted,
    has_permission,
    shipped,
)
from tests.cluster.replicas import Replica
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .permission_stories import (
    LEASES,
    POOL,
    TEAM,
    THE_LEADER,
    TIMEOUT_S,
    URGENT,
    IsLabelled,
    Leads,
    World,
    foreign_crd,
    is_needed,
    leader_pod,
    story_of,
)

FOLLOWED = [right for right in EVERYWHERE if right.verb in ("list", "watch")]
#: With those for CRDs of other projects, which are installed here.
ALL = (*EVERYWHERE, *WHOLE_PODGROUPS)
ACTED = [right for right in ALL if right not in FOLLOWED]
DELETE_PODS = Permission("", "pods", "delete")
#: Permissions that are not needed, to test the tests.
PLANTED = [
    Permission("", "nodes", "get"),
    Permission("", "pods", "patch"),
    DELETE_PODS,
    Permission("apiextensions.k8s.io", "customresourcedefinitions", "list"),
]
FOREIGN = ("scheduling.x-k8s.io", "scheduling.incubator.k8s.io", "scheduling.sigs.dev")
EXTENDER_USER = f"system:serviceaccount:{EXTENDER_NAMESPACE}:gang-extender"


@pytest.fixture(scope="module")
def lab(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A cluster with the CRDs of all dialects, and the base manifests."""
    with ExitStack() as running:
        patch = running.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(ApiServer, "feature_gates", "WatchList=false")
        folder = tmp_path_factory.mktemp("rights")
        plane = running.enter_context(ControlPlane(folder, audit_reads=True))
        plane.api.create(
            *(
                foreign_crd(right.group, right.resource)
                for right in FOLLOWED
                if right.verb == "list" and right.group in FOREIGN
            )
        )
        plane.install()
        plane.api.create(objects.namespace(TEAM), objects.priority_class(URGENT, 1000))
        cpus = {"wide": "1000", "narrow-1": "2", "narrow-2": "2"}
        plane.api.create(
            *(objects.node(name, cpu=cpu, labels={POOL: name}) for name, cpu in cpus.items())
        )
        plane.wait_until_nodes_are_ready(list(cpus), TIMEOUT_S)
        yield plane


@pytest.fixture(scope="module")
def world(lab: ControlPlane) -> Iterator[World]:
    account = Account(lab, "acting", (*ALL, *PLANTED))
    extender = Extender("acting-extender", lab.logs, kubeconfig=account.kubeconfig)
    lab.programs.append(extender)
    with extender, lab.scheduler(lab.scheduler_config(extender)):
        yield World(lab, account, extender)


@pytest.fixture(scope="module")
def mirroring(lab: ControlPlane) -> Account:
    return Account(lab, "mirroring", FOLLOWED)


def test_with_all_permissions_every_story_has_its_effect(world: World) -> None:
    record = AuditRecord(world.plane, world.account.user)

    def run_stories(rights: list[Permission]) -> None:
        for right in rights:
            story, name = story_of(right), world.new_name()
            story.begin(world, name, right)
            wait_for(
                lambda: story.is_seen(world, name, right),  # noqa: B023 (called at once)
                TIMEOUT_S,
                f"the effect of `{right}`",
            )
            story.end(world, name)

    # Permissions of one story run one after the other, since they share its nodes.
    by_story: dict[int, list[Permission]] = {}
    for right in ACTED:
        by_story.setdefault(id(story_of(right)), []).append(right)
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(run_stories, rights) for rights in by_story.values()]:
            done.result()

    assert record.forbidden() == set()
    whole = AuditRecord(world.plane, world.account.user, from_the_start=True)
    assert whole.requested() == set(ALL)


@pytest.mark.parametrize("right", ACTED, ids=str)
def test_missing_permission_has_an_effect_and_is_reported(world: World, right: Permission) -> None:
    assert is_needed(world, world.account, right)


@pytest.mark.parametrize("right", FOLLOWED, ids=str)
def test_missing_permission_of_a_watch_is_reported(
    lab: ControlPlane, mirroring: Account, right: Permission
) -> None:
    with mirroring.without(right), mirror(mirroring) as (cluster, access):

        def complaints() -> list[str]:
            # Quotas are optional: the extender is ready without them, and reports it.
            notes = [each.why for each in access.missing_permissions.recent()]
            return cluster.why_not_ready() or notes

        wait_for(
            lambda: [f"may not {right};" in each for each in complaints()] == [True],
            TIMEOUT_S,
            f"`{right}` is reported, and nothing else",
            seeing=complaints,
        )
        assert bool(cluster.why_not_ready()) is (right.resource != "resourcequotas")


@contextmanager
def mirror(account: Account) -> Iterator[tuple[Cluster, ApiClient]]:
    """Run the watches of the extender alone."""
    access, cluster = ApiClient.load(str(account.kubeconfig)), Cluster(SystemClock())
    watches = Watch(access, cluster, SystemClock(), frozenset({"gang-scheduler"}))
    watches.start()
    try:
        yield cluster, access
    finally:
        watches.stop()


@pytest.mark.parametrize("right", PLANTED, ids=str)
def test_unneeded_permission_is_detected(world: World, right: Permission) -> None:
    assert not is_needed(world, world.account, right)


def test_doctor_names_the_missing_permission_and_the_fix(world: World) -> None:
    right = Permission("", "events", "create")

    assert is_needed(world, world.account, right)
    # It is reported for a while.
    command = [sys.executable, "-m", "extender", "doctor", "--ops-url", world.extender.ops_url]
    ran = subprocess.run([*command, "--offline"], cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert f"PermissionMissing  ServiceAccount/{world.account.user}" in ran.stdout
    assert f"may not {right}\n" in ran.stdout
    assert "grant it as our manifests do" in ran.stdout


# Leases


@pytest.fixture(scope="module")
def leader(lab: ControlPlane) -> Iterator[tuple[Account, Replica]]:
    """An extender with its own lease, as behind a Service, without other permissions to write."""
    account = Account(lab, "leading", (*FOLLOWED, *POD_STATUS, *BEHIND_A_SERVICE))
    times = ("--lease-duration-s=6", "--lease-renew-s=4", "--lease-retry-s=1")
    lab.api.create(leader_pod())
    of_its_pod = (f"--pod-name={THE_LEADER}", f"--pod-namespace={EXTENDER_NAMESPACE}")
    with replica(lab, account, "--lease=own", *times, *of_its_pod) as made:
        yield account, made


@contextmanager
def replica(lab: ControlPlane, account: Account, *arguments: str) -> Iterator[Replica]:
    where = f"--lease-namespace={EXTENDER_NAMESPACE}"
    made = Replica(
        f"{account.kubeconfig.stem}-extender",
        lab.logs,
        kubeconfig=account.kubeconfig,
        arguments=("--scheduler-name=unserved", where, *arguments),
    )
    lab.programs.append(made)
    with made:
        yield made


@pytest.mark.parametrize("right", BEHIND_A_SERVICE, ids=str)
def test_without_a_permission_on_its_lease_no_extender_leads(
    world: World, leader: tuple[Account, Replica], right: Permission
) -> None:
    account, process = leader
    wait_for(lambda: process.leads, TIMEOUT_S, "it leads")
    story = Leads(process, without_lease=right.verb != "patch")

    assert is_needed(world, account, right, story)


@pytest.mark.parametrize("right", POD_STATUS, ids=str)
def test_without_a_permission_on_pod_status_no_pod_has_the_leader_label(
    world: World, leader: tuple[Account, Replica], right: Permission
) -> None:
    account, process = leader
    wait_for(lambda: process.leads, TIMEOUT_S, "it leads")
    story = IsLabelled(process)
    wait_for(lambda: story.is_seen(world, "", right), TIMEOUT_S, "its pod is labelled")

    assert is_needed(world, account, right, story)
    wait_for(lambda: story.is_seen(world, "", right), TIMEOUT_S, "it is labelled again")


@pytest.mark.parametrize("right", BESIDE_A_SCHEDULER, ids=str)
def test_without_reading_the_lease_of_its_scheduler_no_extender_leads(
    lab: ControlPlane, right: Permission
) -> None:
    account = Account(lab, "beside", (*FOLLOWED, *BESIDE_A_SCHEDULER))
    with (
        account.without(right),
        replica(lab, account, "--lease=scheduler", "--lease-name=gang-scheduler") as process,
    ):
        wait_for(
            lambda: f"may not {right};" in process.page("/readyz").partition("\n")[0],
            TIMEOUT_S,
            "it reports why it does not lead",
            seeing=lambda: process.page("/readyz"),
        )


# The lease of the kube-scheduler in a pair


@pytest.fixture(scope="module")
def electing(lab: ControlPlane) -> Account:
    """The account of a pair's kube-scheduler: the stock roles, and what the overlay adds."""
    account = Account(lab, "electing", OF_SCHEDULER)
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        subject = {"kind": "ServiceAccount", "name": "electing", "namespace": EXTENDER_NAMESPACE}
        lab.api.create(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"electing-{role.removeprefix('system:')}"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            }
        )
    return account


@contextmanager
def elected(lab: ControlPlane, account: Account) -> Iterator[None]:
    """Run a kube-scheduler with the lease of the overlay, and short timings."""
    overlay = MANIFESTS / "overlays/second-scheduler/scheduler-config.yaml"
    election = yaml.safe_load(overlay.read_text())["leaderElection"]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(account.kubeconfig)},
        "leaderElection": {**election, "leaseDuration": "3s", "renewDeadline": "2s"},
        "profiles": [{"schedulerName": "unserved"}],
    }
    with lab.scheduler(yaml.safe_dump(config)):
        yield


def renewed(lab: ControlPlane) -> str:
    lease = lab.api.find(LEASES, "gang-scheduler", EXTENDER_NAMESPACE)
    return str(lease["spec"]["renewTime"]) if lease else ""


@pytest.mark.parametrize("right", OF_SCHEDULER, ids=str)
def test_without_a_permission_on_its_lease_the_kube_scheduler_of_a_pair_does_not_lead(
    lab: ControlPlane, electing: Account, right: Permission
) -> None:
    leases = AuditRecord(lab, electing.user)
    before = renewed(lab)
    with elected(lab, electing):
        wait_for(
            lambda: renewed(lab) not in ("", before), TIMEOUT_S, "it leads with all permissions"
        )
    assert not [each for each in leases.forbidden() if each.resource == "leases"]

    before = renewed(lab)
    with electing.without(right), elected(lab, electing):
        wait_for(lambda: leases.was_forbidden(right), TIMEOUT_S, "it is refused")
        assert renewed(lab) == before


# Token reviews


@pytest.fixture(scope="module")
def asking(lab: ControlPlane) -> Iterator[tuple[Account, Extender]]:
    """An extender that authenticates readers."""
    account = Account(lab, "asking", (*FOLLOWED, *TOKEN_REVIEWS))
    flags = ("--scheduler-name=unserved", "--ops-auth=tokenreview")
    made = Extender("asking-extender", lab.logs, kubeconfig=account.kubeconfig, arguments=flags)
    lab.programs.append(made)
    with made:
        yield account, made


@pytest.mark.parametrize("right", TOKEN_REVIEWS, ids=str)
def test_without_a_permission_for_token_reviews_pages_are_refused_with_the_reason(
    lab: ControlPlane, asking: tuple[Account, Extender], right: Permission
) -> None:
    account, extender = asking
    users = yaml.safe_load(lab.kubeconfig("admin").read_text())["users"]
    headers = {"authorization": f"Bearer {users[0]['user']['token']}"}

    def metrics() -> tuple[int, str]:
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            response = http.request("GET", f"{extender.ops_url}/metrics", headers=headers)
            return response.status, response.data.decode()[:1000]

    def is_allowed() -> bool:
        return metrics()[0] == 200

    wait_for(is_allowed, TIMEOUT_S, "the page is readable", seeing=metrics)
    with account.without(right):
        wait_for(lambda: metrics()[0] == 503, TIMEOUT_S, "the page is refused", seeing=metrics)
        assert "apply manifests/ops-auth" in metrics()[1]
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            ready = http.request("GET", f"{extender.ops_url}/readyz")
        # It stays ready, and reports the missing permission.
        assert ready.status == 200
        assert f"may not {right};" in ready.data.decode()
    wait_for(is_allowed, TIMEOUT_S, "the page is readable again", seeing=metrics)


# Which role grants what


def removed_permissions() -> set[Permission]:
    """Return the permissions that the tests above remove, by their parameters."""
    tests = [each for name, each in globals().items() if name.startswith("test_without_")]
    tests += [
        test_missing_permission_has_an_effect_and_is_reported,
        test_missing_permission_of_a_watch_is_reported,
    ]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ())]
    return {right for mark in marks for right in mark.args[1]}


def test_every_verb_of_every_role_that_we_ship_is_removed_permissions() -> None:
    assert removed_permissions() == shipped()
    assert len(shipped()) > len(EVERYWHERE)


def test_roles_of_the_extender_do_not_allow_deleting_pods(lab: ControlPlane) -> None:
    lab.kubectl("apply", "-f", MANIFESTS / "overlays/default-scheduler/lease-rbac.yaml")
    ours = (*EVERYWHERE, *BEHIND_A_SERVICE)
    wait_for(
        lambda: all(has_permission(lab, EXTENDER_USER, right) for right in ours),
        TIMEOUT_S,
        "all permissions are granted",
    )

    assert not has_permission(lab, EXTENDER_USER, DELETE_PODS)


@pytest.mark.parametrize("namespace", ["", EXTENDER_NAMESPACE, TEAM])
def test_roles_of_the_extender_do_not_allow_changing_pods(
    lab: ControlPlane, namespace: str
) -> None:
    wait_for(
        lambda: all(has_permission(lab, EXTENDER_USER, right) for right in EVERYWHERE),
        TIMEOUT_S,
        "the permissions are granted",
    )

    for verb in ("patch", "update"):
        assert not has_permission(lab, EXTENDER_USER, Permission("", "pods", verb, namespace))


def test_status_patch_can_change_labels_but_not_the_image(
    lab: ControlPlane,
) -> None:
    lab.api.create(objects.pod("by-status", TEAM, gang=None))
    image = {"name": "main", "image": "evil"}
    both = {"metadata": {"labels": {"by": "status"}}, "spec": {"containers": [image]}}
    lab.api.patch("pods", "by-status", both, TEAM, subresource="status")

    pod = lab.api.get("pods", "by-status", TEAM)
    assert pod["metadata"]["labels"]["by"] == "status"
    assert "evil" not in str(pod["spec"])


def test_role_of_the_scheduler_allows_the_shared_account_to_delete_pods(
    lab: ControlPlane,
) -> None:
    roles = MANIFESTS / "overlays/second-scheduler/scheduler-rbac.yaml"
    lab.kubectl("apply", "-f", roles)
    try:
        wait_for(
            lambda: has_permission(lab, EXTENDER_USER, DELETE_PODS),
            TIMEOUT_S,
            "the scheduler's role is granted",
        )
    finally:
        lab.kubectl("delete", "-f", roles)
        wait_for(
            lambda: not has_permission(lab, EXTENDER_USER, DELETE_PODS),
            TIMEOUT_S,
            "it is removed again",
        )

    assert DELETE_PODS not in granted(roles)
