"""Installed word by word as the README says, it works: what was applied is what runs here.

A dry run cannot see a right that is bound in the wrong place or a lease that the role does not
name, and neither can a probe. So this cluster has nothing but what README's commands gave it.
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
    install, hand_in_a_gang = [c for c in commands() if c.startswith("kubectl apply")]
    with empty_cluster(tmp_path_factory.mktemp("installed")) as made, made.plane.scheduler():
        made.shell.type(install)
        made.shell.type(hand_in_a_gang)
        yield made


def test_the_example_gang_starts_after_two_commands(installed: Installation) -> None:
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
def test_a_gang_of_every_scheduler_name_that_we_serve_starts(
    installed: Installation, scheduler: str
) -> None:
    assert installed.start_gang(f"for-{scheduler}", scheduler)


def test_two_pairs_are_ready_on_two_nodes(installed: Installation) -> None:
    pairs = installed.pods()
    about = [installed.plane.api.get("pods", each.name, EXTENDER_NAMESPACE) for each in pairs]

    assert len({objects.node_of(each) for each in about}) == 2


def test_a_pod_may_ask_for_longer_than_any_run_of_ours(installed: Installation) -> None:
    for pair in installed.pods():
        claims = pair.token.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))

        assert said["exp"] - said["iat"] == 24 * 3600


def test_every_applied_probe_is_green_in_both_pairs(installed: Installation) -> None:
    probes = [each.probes() for pair in installed.pods() for each in pair.containers]

    assert [len(asked) for asked in probes] == [3, 2] * 2
    assert all(green for asked in probes for green in asked.values()), probes


def test_the_scheduler_leads_by_the_lease_that_its_configuration_names(
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
        "somebody leads",
    )


def test_the_only_lease_is_the_schedulers_and_the_extender_beside_its_holder_leads(
    installed: Installation,
) -> None:
    leader, standby = installed.leader_and_standby()
    (lease,) = installed.plane.api.list(LEASES, EXTENDER_NAMESPACE)

    assert lease["metadata"]["name"] == "gang-scheduler"
    assert lease["spec"]["holderIdentity"].rpartition("_")[0] == leader.name
    assert standby.is_ready()


def test_a_standby_changes_nothing_while_a_gang_starts(installed: Installation) -> None:
    leader, standby = installed.leader_and_standby()
    since = datetime.now(UTC)
    installed.start_gang("while-one-stands-by", "gang-scheduler")

    assert installed.acts_of(leader, since)
    assert installed.asked_by(standby)
    assert installed.acts_of(standby, since) == []


def test_the_account_of_the_pair_may_delete_pods_because_a_scheduler_may(
    installed: Installation,
) -> None:
    user = installed.pods()[0].user

    assert (
        installed.plane.kubectl("auth", "can-i", "delete", "pods", f"--as={user}").strip() == "yes"
    )


def test_a_gang_starts_when_the_leading_pair_is_gone(installed: Installation) -> None:
    leader, standby = installed.leader_and_standby()
    installed.end(leader)

    assert installed.start_gang("after-the-leader", "gang-scheduler")
    now_leads, new = installed.leader_and_standby()
    assert leader.name not in (now_leads.name, new.name)
    assert standby.name in (now_leads.name, new.name)


def test_a_rolling_update_comes_through_and_gangs_start_after_it(installed: Installation) -> None:
    before = {pair.name for pair in installed.pods()}
    deployment = "-n gang-system deployment/gang-scheduler"
    installed.shell.type(f"kubectl rollout restart {deployment}")
    installed.shell.type(f"kubectl rollout status --timeout=240s {deployment}")

    assert before.isdisjoint(pair.name for pair in installed.pods())
    assert installed.start_gang("after-the-update", "gang-scheduler")


def test_the_pair_has_every_right_that_it_asks_for(installed: Installation) -> None:
    def phase() -> str:
        group = installed.plane.api.get(objects.POD_GROUPS, "train", "default")
        return str(group.get("status", {}).get("phase"))

    # By then it has read, led, bound and told.
    wait_for(lambda: phase() == "Running", 60, "the gang is said to run", seeing=phase)

    assert installed.refused() == []
