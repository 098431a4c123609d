"""Every right in our manifests is used, none is missing: each is taken away, and is missed.

The API server here does not stream lists, as in many minors: there `list` is needed.
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
from extender.kube.reflector import Watch
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

from .missed import (
    LEASES,
    LONG_S,
    POOL,
    TEAM,
    THE_LEADER,
    URGENT,
    IsLabelled,
    Leads,
    World,
    foreign_crd,
    is_missed,
    story_of,
    the_leaders_pod,
)

FOLLOWED = [right for right in EVERYWHERE if right.verb in ("list", "watch")]
#: With those for CRDs of others, which are installed here.
ALL = (*EVERYWHERE, *WHOLE_PODGROUPS)
ACTED = [right for right in ALL if right not in FOLLOWED]
DELETE_PODS = Permission("", "pods", "delete")
#: Nobody needs these; the test of the test.
PLANTED = [
    Permission("", "nodes", "get"),
    Permission("", "pods", "patch"),
    DELETE_PODS,
    Permission("apiextensions.k8s.io", "customresourcedefinitions", "list"),
]
FOREIGN = ("scheduling.x-k8s.io", "scheduling.incubator.k8s.io", "scheduling.sigs.dev")
US = f"system:serviceaccount:{EXTENDER_NAMESPACE}:gang-extender"


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
        room = {"wide": "1000", "narrow-1": "2", "narrow-2": "2"}
        plane.api.create(
            *(objects.node(name, cpu=cpu, labels={POOL: name}) for name, cpu in room.items())
        )
        plane.wait_until_nodes_are_ready(list(room), LONG_S)
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


def test_with_all_rights_every_story_has_its_effect_and_nothing_is_refused(world: World) -> None:
    record = AuditRecord(world.plane, world.account.user)

    def play_out(rights: list[Permission]) -> None:
        for right in rights:
            story, name = story_of(right), world.a_name()
            story.begin(world, name, right)
            wait_for(
                lambda: story.is_seen(world, name, right),  # noqa: B023 (waited for at once)
                LONG_S,
                f"the effect of `{right}`",
            )
            story.end(world, name)

    # Those of one story one after the other: they share its nodes.
    by_story: dict[int, list[Permission]] = {}
    for right in ACTED:
        by_story.setdefault(id(story_of(right)), []).append(right)
    with ThreadPoolExecutor() as actors:
        for done in [actors.submit(play_out, rights) for rights in by_story.values()]:
            done.result()

    assert record.forbidden() == set()
    whole = AuditRecord(world.plane, world.account.user, from_the_start=True)
    assert whole.requested() == set(ALL)


@pytest.mark.parametrize("right", ACTED, ids=str)
def test_what_we_may_not_do_is_missed_and_named(world: World, right: Permission) -> None:
    assert is_missed(world, world.account, right)


@pytest.mark.parametrize("right", FOLLOWED, ids=str)
def test_what_we_may_not_follow_is_named(
    lab: ControlPlane, mirroring: Account, right: Permission
) -> None:
    with mirroring.without(right), mirror(mirroring) as (cluster, access):

        def complaints() -> list[str]:
            # Quotas are the API server's own: one decides without, and should know.
            notes = [each.why for each in access.missing_permissions.recent()]
            return cluster.readiness() or notes

        wait_for(
            lambda: [f"may not {right};" in each for each in complaints()] == [True],
            LONG_S,
            f"`{right}` is named, and nothing else",
            seeing=complaints,
        )
        assert bool(cluster.readiness()) is (right.resource != "resourcequotas")


@contextmanager
def mirror(account: Account) -> Iterator[tuple[Cluster, ApiClient]]:
    """What the extender knows of the cluster, without the rest of it."""
    access, cluster = ApiClient.load(str(account.kubeconfig)), Cluster(SystemClock())
    watches = Watch(access, cluster, SystemClock(), frozenset({"gang-scheduler"}))
    watches.start()
    try:
        yield cluster, access
    finally:
        watches.stop()


@pytest.mark.parametrize("right", PLANTED, ids=str)
def test_a_right_that_nobody_needs_is_found_out(world: World, right: Permission) -> None:
    assert not is_missed(world, world.account, right)


def test_doctor_names_the_right_and_the_mend(world: World) -> None:
    right = Permission("", "events", "create")

    assert is_missed(world, world.account, right)
    # It is remembered for a while.
    command = [sys.executable, "-m", "extender", "doctor", "--ops-url", world.extender.ops_url]
    ran = subprocess.run([*command, "--offline"], cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert f"PermissionMissing  ServiceAccount/{world.account.user}" in ran.stdout
    assert f"may not {right}\n" in ran.stdout
    assert "grant it as our manifests do" in ran.stdout


# Leases


@pytest.fixture(scope="module")
def leader(lab: ControlPlane) -> Iterator[tuple[Account, Replica]]:
    """One that stands for a lease of its own, as behind a Service, and may write nothing else."""
    account = Account(lab, "leading", (*FOLLOWED, *POD_STATUS, *BEHIND_A_SERVICE))
    times = ("--lease-duration-s=6", "--lease-renew-s=4", "--lease-retry-s=1")
    lab.api.create(the_leaders_pod())
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
        arguments=("--scheduler-name=nobody", where, *arguments),
    )
    lab.programs.append(made)
    with made:
        yield made


@pytest.mark.parametrize("right", BEHIND_A_SERVICE, ids=str)
def test_without_a_right_on_its_lease_nobody_leads_behind_a_service(
    world: World, leader: tuple[Account, Replica], right: Permission
) -> None:
    account, process = leader
    wait_for(lambda: process.leads, LONG_S, "it leads")
    story = Leads(process, without_lease=right.verb != "patch")

    assert is_missed(world, account, right, story)


@pytest.mark.parametrize("right", POD_STATUS, ids=str)
def test_without_a_right_on_the_status_of_pods_no_label_shows_the_leader(
    world: World, leader: tuple[Account, Replica], right: Permission
) -> None:
    account, process = leader
    wait_for(lambda: process.leads, LONG_S, "it leads")
    story = IsLabelled(process)
    wait_for(lambda: story.is_seen(world, "", right), LONG_S, "its pod is labelled")

    assert is_missed(world, account, right, story)
    wait_for(lambda: story.is_seen(world, "", right), LONG_S, "it is labelled again")


@pytest.mark.parametrize("right", BESIDE_A_SCHEDULER, ids=str)
def test_without_a_look_at_its_schedulers_lease_nobody_leads_beside_it(
    lab: ControlPlane, right: Permission
) -> None:
    account = Account(lab, "beside", (*FOLLOWED, *BESIDE_A_SCHEDULER))
    with (
        account.without(right),
        replica(lab, account, "--lease=scheduler", "--lease-name=gang-scheduler") as process,
    ):
        wait_for(
            lambda: f"may not {right};" in process.page("/readyz").partition("\n")[0],
            LONG_S,
            "it says why it does not lead",
            seeing=lambda: process.page("/readyz"),
        )


# The lease of the kube-scheduler in a pair


@pytest.fixture(scope="module")
def electing(lab: ControlPlane) -> Account:
    """The kube-scheduler of a pair: what every one may, and what our overlay adds."""
    account = Account(lab, "electing", OF_SCHEDULER)
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        who = {"kind": "ServiceAccount", "name": "electing", "namespace": EXTENDER_NAMESPACE}
        lab.api.create(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"electing-{role.removeprefix('system:')}"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [who],
            }
        )
    return account


@contextmanager
def elected(lab: ControlPlane, account: Account) -> Iterator[None]:
    """A kube-scheduler that stands for the lease of the overlay, in a hurry."""
    overlay = MANIFESTS / "overlays/second-scheduler/scheduler-config.yaml"
    election = yaml.safe_load(overlay.read_text())["leaderElection"]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(account.kubeconfig)},
        "leaderElection": {**election, "leaseDuration": "3s", "renewDeadline": "2s"},
        "profiles": [{"schedulerName": "nobody"}],
    }
    with lab.scheduler(yaml.safe_dump(config)):
        yield


def renewed(lab: ControlPlane) -> str:
    lease = lab.api.find(LEASES, "gang-scheduler", EXTENDER_NAMESPACE)
    return str(lease["spec"]["renewTime"]) if lease else ""


@pytest.mark.parametrize("right", OF_SCHEDULER, ids=str)
def test_without_a_right_on_its_lease_the_kube_scheduler_of_a_pair_does_not_lead(
    lab: ControlPlane, electing: Account, right: Permission
) -> None:
    leases = AuditRecord(lab, electing.user)
    before = renewed(lab)
    with elected(lab, electing):
        wait_for(lambda: renewed(lab) not in ("", before), LONG_S, "with all of them it leads")
    assert not [each for each in leases.forbidden() if each.resource == "leases"]

    before = renewed(lab)
    with electing.without(right), elected(lab, electing):
        wait_for(lambda: leases.was_forbidden(right), LONG_S, "it is refused")
        assert renewed(lab) == before


# Who reads


@pytest.fixture(scope="module")
def asking(lab: ControlPlane) -> Iterator[tuple[Account, Extender]]:
    """One that asks who reads."""
    account = Account(lab, "asking", (*FOLLOWED, *TOKEN_REVIEWS))
    told = ("--scheduler-name=nobody", "--ops-auth=tokenreview")
    made = Extender("asking-extender", lab.logs, kubeconfig=account.kubeconfig, arguments=told)
    lab.programs.append(made)
    with made:
        yield account, made


@pytest.mark.parametrize("right", TOKEN_REVIEWS, ids=str)
def test_without_a_right_to_ask_who_reads_pages_are_closed_and_it_is_said_which(
    lab: ControlPlane, asking: tuple[Account, Extender], right: Permission
) -> None:
    account, extender = asking
    users = yaml.safe_load(lab.kubeconfig("admin").read_text())["users"]
    headers = {"authorization": f"Bearer {users[0]['user']['token']}"}

    def metrics() -> tuple[int, str]:
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            told = http.request("GET", f"{extender.ops_url}/metrics", headers=headers)
            return told.status, told.data.decode()[:1000]

    def is_let_in() -> bool:
        return metrics()[0] == 200

    wait_for(is_let_in, LONG_S, "it may ask", seeing=metrics)
    with account.without(right):
        wait_for(lambda: metrics()[0] == 503, LONG_S, "it may not ask", seeing=metrics)
        assert "apply manifests/ops-auth" in metrics()[1]
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            ready = http.request("GET", f"{extender.ops_url}/readyz")
        # It goes on, and says what should be mended.
        assert ready.status == 200
        assert f"may not {right};" in ready.data.decode()
    wait_for(is_let_in, LONG_S, "it may ask again", seeing=metrics)


# Whose rights are whose


def taken_away() -> set[Permission]:
    """What the tests above take away, by the parameters that they have."""
    tests = [each for name, each in globals().items() if name.startswith("test_without_")]
    tests += [test_what_we_may_not_do_is_missed_and_named, test_what_we_may_not_follow_is_named]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ())]
    return {right for mark in marks for right in mark.args[1]}


def test_every_verb_of_every_role_that_we_ship_is_taken_away() -> None:
    assert taken_away() == shipped()
    assert len(shipped()) > len(EVERYWHERE)


def test_our_roles_alone_let_nobody_delete_pods(lab: ControlPlane) -> None:
    lab.kubectl("apply", "-f", MANIFESTS / "overlays/default-scheduler/lease-rbac.yaml")
    ours = (*EVERYWHERE, *BEHIND_A_SERVICE)
    wait_for(
        lambda: all(has_permission(lab, US, right) for right in ours),
        LONG_S,
        "all of it is granted",
    )

    assert not has_permission(lab, US, DELETE_PODS)


@pytest.mark.parametrize("namespace", ["", EXTENDER_NAMESPACE, TEAM])
def test_our_roles_alone_let_nobody_change_what_a_pod_runs(
    lab: ControlPlane, namespace: str
) -> None:
    wait_for(
        lambda: all(has_permission(lab, US, right) for right in EVERYWHERE), LONG_S, "it is granted"
    )

    for verb in ("patch", "update"):
        assert not has_permission(lab, US, Permission("", "pods", verb, namespace))


def test_by_the_status_of_a_pod_its_image_cannot_be_changed_but_its_labels_can(
    lab: ControlPlane,
) -> None:
    lab.api.create(objects.pod("by-status", TEAM, gang=None))
    image = {"name": "main", "image": "evil"}
    both = {"metadata": {"labels": {"by": "status"}}, "spec": {"containers": [image]}}
    lab.api.patch("pods", "by-status", both, TEAM, subresource="status")

    pod = lab.api.get("pods", "by-status", TEAM)
    assert pod["metadata"]["labels"]["by"] == "status"
    assert "evil" not in str(pod["spec"])


def test_beside_a_scheduler_the_account_may_delete_pods_by_the_schedulers_role(
    lab: ControlPlane,
) -> None:
    roles = MANIFESTS / "overlays/second-scheduler/scheduler-rbac.yaml"
    lab.kubectl("apply", "-f", roles)
    try:
        wait_for(
            lambda: has_permission(lab, US, DELETE_PODS), LONG_S, "what a scheduler may is granted"
        )
    finally:
        lab.kubectl("delete", "-f", roles)
        wait_for(lambda: not has_permission(lab, US, DELETE_PODS), LONG_S, "it is taken again")

    assert DELETE_PODS not in granted(roles)
