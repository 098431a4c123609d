"""The installation by the commands of the README, with running pods.

A dry run does not show a RoleBinding in the wrong namespace, or a lease that the role does not
name. So only the commands of the README install the extender in this cluster.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import yaml

from extender.settings import Settings
from tests import objects
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.readme import commands

from .installation import Installation, empty_cluster

LEASES = "leases.coordination.k8s.io/v1"


@pytest.fixture(scope="module")
def installed(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    install, create_gang = [c for c in commands() if c.startswith("kubectl apply")]
    with empty_cluster(tmp_path_factory.mktemp("installed")) as made, made.plane.scheduler():
        made.shell.type(install)
        made.shell.type(create_gang)
        yield made


def test_example_gang_starts_after_two_commands(installed: Installation) -> None:
    job = "batch.kubernetes.io/job-name=train"

    def nodes() -> list[str | None]:
        members = installed.plane.api.list("pods", "default", labels=job)
        return [objects.node_of(member) for member in members]

    wait_for(
        lambda: len(nodes()) == 3 and all(nodes()),
        120,
        "3 members are bound",
        seeing=lambda: [nodes(), sorted(set(installed.refused())), installed.kubelet.problems],
    )


@pytest.mark.parametrize("scheduler", Settings().scheduler_name)
def test_gang_of_every_scheduler_name_starts(installed: Installation, scheduler: str) -> None:
    assert installed.start_gang(f"for-{scheduler}", scheduler)


def test_two_pairs_are_ready_on_two_nodes(installed: Installation) -> None:
    pairs = installed.pods()
    about = [installed.plane.api.get("pods", each.name, EXTENDER_NAMESPACE) for each in pairs]

    assert len({objects.node_of(each) for each in about}) == 2


def test_token_is_valid_longer_than_any_test(installed: Installation) -> None:
    for pair in installed.pods():
        claims = pair.token.split(".")[1]
        token = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))

        assert token["exp"] - token["iat"] == 24 * 3600


def test_all_probes_of_both_pairs_succeed(installed: Installation) -> None:
    probes = [each.probes() for pair in installed.pods() for each in pair.containers]

    assert [len(results) for results in probes] == [3, 2] * 2
    assert all(result for results in probes for result in results.values()), probes


def test_scheduler_leads_by_the_lease_of_its_configuration(
    installed: Installation,
) -> None:
    (applied,) = [
        thing
        for thing in installed.plane.api.list("configmaps", EXTENDER_NAMESPACE)
        if "scheduler-config.yaml" in thing["data"]
    ]
    election = yaml.safe_load(applied["data"]["scheduler-config.yaml"])["leaderElection"]

    assert election["leaderElect"]
    name, namespace = election["resourceName"], election["resourceNamespace"]
    wait_for(
        lambda: installed.plane.api.get(LEASES, name, namespace)["spec"]["holderIdentity"],
        30,
        "the lease has a holder",
    )


def test_extender_beside_the_holder_of_the_only_lease_leads(
    installed: Installation,
) -> None:
    leader, standby = installed.leader_and_standby()
    (lease,) = installed.plane.api.list(LEASES, EXTENDER_NAMESPACE)

    assert lease["metadata"]["name"] == "gang-scheduler"
    assert lease["spec"]["holderIdentity"].rpartition("_")[0] == leader.name
    assert standby.is_ready()


def test_standby_writes_nothing_while_a_gang_starts(installed: Installation) -> None:
    leader, standby = installed.leader_and_standby()
    since = datetime.now(UTC)
    installed.start_gang("while-one-stands-by", "gang-scheduler")

    assert installed.writes_of(leader, since)
    assert installed.requests_of(standby)
    assert installed.writes_of(standby, since) == []


def test_account_of_the_pair_may_delete_pods_as_kube_scheduler(
    installed: Installation,
) -> None:
    user = installed.pods()[0].user

    assert (
        installed.plane.kubectl("auth", "can-i", "delete", "pods", f"--as={user}").strip() == "yes"
    )


def test_gang_starts_after_the_leading_pair_is_deleted(installed: Installation) -> None:
    leader, standby = installed.leader_and_standby()
    installed.end(leader)

    assert installed.start_gang("after-the-leader", "gang-scheduler")
    now_leads, new = installed.leader_and_standby()
    assert leader.name not in (now_leads.name, new.name)
    assert standby.name in (now_leads.name, new.name)


def test_gangs_start_after_a_rolling_update(installed: Installation) -> None:
    before = {pair.name for pair in installed.pods()}
    deployment = "-n gang-system deployment/gang-scheduler"
    installed.shell.type(f"kubectl rollout restart {deployment}")
    installed.shell.type(f"kubectl rollout status --timeout=240s {deployment}")

    assert before.isdisjoint(pair.name for pair in installed.pods())
    assert installed.start_gang("after-the-update", "gang-scheduler")


def test_no_request_of_the_pair_is_forbidden(installed: Installation) -> None:
    def phase() -> str:
        group = installed.plane.api.get(objects.POD_GROUPS, "train", "default")
        return str(group.get("status", {}).get("phase"))

    # By then it has read, led, bound and written status.
    wait_for(lambda: phase() == "Running", 60, "the status is Running", seeing=phase)

    assert installed.refused() == []
