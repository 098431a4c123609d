"""The cluster's own kube-scheduler calls the extender through the applied Service, by mutual TLS.

Installed as in docs/install.md (`default_deployment.py`). The extender schedules every pod of this
cluster, its own pods among them.
"""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime

import pytest
import yaml

from tests import objects
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .default_deployment import DEPLOYMENT, DefaultDeployment

NAMES = ("default-scheduler", "gang-scheduler", "volcano", "kube-batch")


def test_extender_serves_the_profiles_of_the_scheduler(behind: DefaultDeployment) -> None:
    (container,) = behind.made.plane.api.get(
        "deployments.apps/v1", "gang-extender", EXTENDER_NAMESPACE
    )["spec"]["template"]["spec"]["containers"]
    profiles = [each["schedulerName"] for each in yaml.safe_load(behind.config)["profiles"]]

    assert [w for w in container["args"] if w.startswith("--scheduler-name=")] == [
        f"--scheduler-name={name}" for name in profiles
    ]


@pytest.mark.parametrize("name", NAMES)
def test_gang_of_every_scheduler_name_starts(behind: DefaultDeployment, name: str) -> None:
    assert behind.made.start_gang(f"for-{name}", name)


def test_ordinary_and_critical_pods_start_while_a_gang_waits(behind: DefaultDeployment) -> None:
    api, ours = behind.made.plane.api, {"scheduler": "default-scheduler", "cpu": "10m"}
    members = objects.pods(3, "waiting", "default", gang="waiting", **ours)
    api.create(objects.pod_group("waiting", "default", 3), *members[:2])

    assert behind.bind(objects.pod("ordinary", "default", **ours))
    assert behind.bind(objects.pod("of-the-system", "kube-system", **ours))
    critical = "system-cluster-critical"
    assert behind.bind(objects.pod("critical", "default", priority=critical, **ours))
    assert behind.bind(objects.pod("of-a-node", "kube-system", priority=critical, **ours))
    assert not any(
        objects.node_of(api.get("pods", each["metadata"]["name"], "default"))
        for each in members[:2]
    )

    api.create(members[2])
    assert behind.made.nodes([each["metadata"]["name"] for each in members])


def test_service_has_only_the_leader_and_kube_scheduler_calls_it(
    behind: DefaultDeployment,
) -> None:
    leader, standby = behind.made.leader_and_standby()
    wait_for(
        lambda: behind.address.endpoints == [leader.name],
        60,
        "the leader is the only endpoint",
        seeing=lambda: behind.address.endpoints,
    )
    binds = 'gang_extender_hook_seconds_count{verb="bind"}'
    before, by_standby = behind.metric(leader, binds), behind.metric(standby, binds)
    behind.made.start_gang("asks-the-leader", "default-scheduler")

    # The page of metrics is cached for a moment.
    wait_for(lambda: behind.metric(leader, binds) >= before + 3, 30, "the leader was called")
    assert behind.metric(standby, binds) == by_standby


def test_standby_writes_nothing_while_a_gang_starts(behind: DefaultDeployment) -> None:
    leader, standby = behind.made.leader_and_standby()
    since = datetime.now(UTC)
    behind.made.start_gang("while-one-stands-by", "default-scheduler")

    assert behind.made.writes_of(leader, since)
    assert behind.made.requests_of(standby)
    assert behind.made.writes_of(standby, since) == []


def test_kube_scheduler_without_its_certificate_is_refused(behind: DefaultDeployment) -> None:
    leader, _ = behind.made.leader_and_standby()
    refused = 'gang_extender_tls_refused_total{reason="no_certificate"}'
    nameless = yaml.safe_load(behind.config)
    for entry in nameless["extenders"]:
        kept = ("caFile", "serverName")
        entry["tlsConfig"] = {name: entry["tlsConfig"][name] for name in kept}
    behind.scheduler.terminate()
    try:
        with behind.made.plane.scheduler(yaml.safe_dump(nameless)):
            pod = objects.pod("refused-pod", "default", cpu="10m", scheduler="default-scheduler")
            behind.made.plane.api.create(pod)
            wait_for(lambda: behind.metric(leader, refused) >= 1, 60, "it is refused")
            assert not objects.node_of(behind.made.plane.api.get("pods", "refused-pod", "default"))
    finally:
        behind.scheduler.start()

    assert behind.made.nodes(["refused-pod"])


def test_other_replica_takes_over_when_the_leading_pod_is_deleted(
    behind: DefaultDeployment,
) -> None:
    leader, standby = behind.made.leader_and_standby()
    behind.made.end(leader)
    behind.made.start_gang("after-the-leader", "default-scheduler")

    # The new pod was scheduled with the extender.
    pods = {pod.name for pod in behind.made.leader_and_standby()}
    assert standby.name in pods
    assert leader.name not in pods


def test_replicas_that_crashed_together_restart_in_place(behind: DefaultDeployment) -> None:
    pods = behind.made.pods()
    for pod in pods:
        os.killpg(pod.container("extender").pid, signal.SIGKILL)
    behind.made.start_gang("after-a-crash-of-both", "default-scheduler")

    assert {pod.name for pod in behind.made.pods()} == {pod.name for pod in pods}


def test_gangs_start_after_a_rolling_update(behind: DefaultDeployment) -> None:
    before = {pod.name for pod in behind.made.pods()}
    behind.made.shell.type(f"kubectl rollout restart {DEPLOYMENT}")
    behind.made.shell.type(f"kubectl rollout status --timeout=240s {DEPLOYMENT}")

    assert before.isdisjoint(pod.name for pod in behind.made.pods())
    assert behind.made.start_gang("after-the-update", "default-scheduler")


def test_no_request_of_the_extender_is_forbidden(behind: DefaultDeployment) -> None:
    behind.made.start_gang("reported", "default-scheduler")

    def phase() -> str:
        group = behind.made.plane.api.get(objects.POD_GROUPS, "reported", "default")
        return str(group.get("status", {}).get("phase"))

    wait_for(lambda: phase() == "Running", 60, "the status is Running", seeing=phase)
    assert behind.made.refused() == []
