"""Exempt and critical pods are bound whatever is reserved and whether the extender is ready."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3

from extender.planner.policy_parser import DEFAULT_TEXT
from tests import objects

from .api import Api, Object
from .components import answers
from .control_plane import ControlPlane
from .extender_process import Extender
from .train_gang import Nodes, Pool
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

NAME = "exempt-scheduler"
EXEMPT = "exempt-tests"
FLAGS = (f"--scheduler-name={NAME}", f"--exempt-namespace={EXEMPT}")
CRITICAL = "system-node-critical"
TIMEOUT_S = 60


class NeverReadyExtender(Extender):
    """An extender that never becomes ready; it has started when /healthz answers."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/healthz")

    def bind(self, pod: Object, node: str) -> Object:
        """Call bind as kube-scheduler does."""
        about = pod["metadata"]
        call = {
            "PodName": about["name"],
            "PodNamespace": about["namespace"],
            "PodUID": about["uid"],
            "Node": node,
        }
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            answer: Object = http.request("POST", f"{self.url}/bind", json=call).json()
        return answer


@pytest.fixture(autouse=True, scope="module")
def exempt_namespace(plane: ControlPlane) -> Iterator[None]:
    plane.api.create(objects.namespace(EXEMPT))
    yield
    plane.api.delete_all("pods", EXEMPT, grace_seconds=0)
    plane.api.delete("namespaces", EXEMPT)


def never_ready_extender(plane: ControlPlane, user: str, *arguments: str) -> NeverReadyExtender:
    extender = NeverReadyExtender(
        f"gang-extender-{len(plane.programs)}",
        plane.logs,
        kubeconfig=plane.kubeconfig(user),
        arguments=(*FLAGS, *arguments),
    )
    plane.programs.append(extender)
    return extender


def node_of(api: Api, pod: Object) -> str | None:
    about = pod["metadata"]
    return objects.node_of(api.get("pods", about["name"], about["namespace"]))


def wait_until_bound(api: Api, *pods: Object) -> None:
    def waiting() -> list[str]:
        return [pod["metadata"]["name"] for pod in pods if not node_of(api, pod)]

    wait_for(lambda: not waiting(), TIMEOUT_S, "exempt pods are bound", seeing=waiting)


def exempt_pods(namespace: str, pool: Pool) -> list[Object]:
    """Return pods of an exempt namespace (one names a gang), of kube-system, and a critical one."""
    about = {"scheduler": NAME, "node_selector": pool.selector, "cpu": "1"}
    tag = namespace.rpartition("-")[2]
    return [
        objects.pod(f"agent-{tag}", EXEMPT, **about),
        objects.pod(f"member-{tag}", EXEMPT, gang="never-written", **about),
        objects.pod(f"dns-{tag}", "kube-system", **about),
        objects.pod("proxy", namespace, priority=CRITICAL, **about),
    ]


def verdict(extender: Extender, namespace: str, gang: str) -> str:
    """Return the message of a gang if capacity is reserved for it."""
    status, page = extender.get(f"/api/v1/gangs/{namespace}/{gang}")
    message = str(json.loads(page).get("message", "")) if status == 200 else ""
    return message if "capacity is reserved for it" in message else ""


def refusal(api: Api, pod: Object) -> str:
    about = pod["metadata"]
    conditions = api.get("pods", about["name"], about["namespace"])["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions), "")


def test_exempt_pods_use_capacity_that_is_reserved_for_a_starving_gang(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Callable[..., list[Object]],
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{DEFAULT_TEXT}\nstarvation: {{after: 1s, hold: 10m}}\n")
    pool = nodes(2, cpu="4")
    about = {"scheduler": NAME, "node_selector": pool.selector}
    with (
        plane.extender(*FLAGS, f"--config={policy}") as extender,
        plane.scheduler(plane.scheduler_config(extender, f"--scheduler-name={NAME}")),
    ):
        wait_until_bound(api, *create(*(
            objects.pod(f"old-{n}", namespace, cpu="1", priority="system-cluster-critical", **about)
            for n in range(2)
        )))  # fmt: skip
        create(objects.pod_group("large", namespace, 2))
        create(*objects.pods(2, "large", namespace, gang="large", cpu="4", **about))
        wait_for(
            lambda: all(name in verdict(extender, namespace, "large") for name in pool.names),
            TIMEOUT_S,
            "capacity is reserved on both nodes",
        )
        (web,) = create(objects.pod("web", namespace, cpu="1", **about))
        wait_for(lambda: "BehindInOrder" in refusal(api, web), TIMEOUT_S, "an ordinary pod waits")

        wait_until_bound(api, *create(*exempt_pods(namespace, pool)))
        assert node_of(api, web) is None


def test_standby_admits_exempt_pods_alone(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Callable[..., list[Object]],
) -> None:
    lease = f"held-{namespace}"[:63].rstrip("-")
    create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease, "namespace": EXTENDER_NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600},
        },
        *may_read_lease(lease),
    )
    pool = nodes(2, cpu="8")
    standby = never_ready_extender(
        plane, "extender", "--lease=own", f"--lease-name={lease}",
        f"--lease-namespace={EXTENDER_NAMESPACE}",
    )  # fmt: skip
    with standby:
        wait_for(lambda: "another leads" in standby.page("/readyz"), TIMEOUT_S, "it stands by")
        with plane.scheduler(plane.scheduler_config(standby, f"--scheduler-name={NAME}")):
            (web,) = create(
                objects.pod("web", namespace, scheduler=NAME, node_selector=pool.selector)
            )
            wait_until_bound(api, *create(*exempt_pods(namespace, pool)))
            wait_for(
                lambda: "standby: another leads" in refusal(api, web),
                TIMEOUT_S,
                "others are refused",
            )
            assert node_of(api, web) is None


def test_extender_that_never_synced_admits_exempt_pods(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Callable[..., list[Object]],
) -> None:
    # Its user may bind and get pods, but not list: its cache never syncs.
    pool = nodes(1, cpu="16")
    (node,) = pool.names
    ours = {"scheduler": NAME, "node_selector": pool.selector}
    create(*may_bind_only())
    unsynced = never_ready_extender(plane, "bind-only-extender")
    with unsynced:
        assert "first list not complete" in unsynced.page("/readyz")
        with plane.scheduler(plane.scheduler_config(unsynced, f"--scheduler-name={NAME}")):
            (web,) = create(objects.pod("web", namespace, **ours))
            wait_until_bound(api, *create(*exempt_pods(namespace, pool)))
            wait_for(lambda: "first list not complete" in refusal(api, web), TIMEOUT_S, "refused")

        # These were not filtered: a bind call has only name, namespace and uid of the pod.
        critical, mine, foreign = create(
            objects.pod("late", namespace, priority=CRITICAL, **ours),
            objects.pod("later", namespace, **ours),
            objects.pod("foreign", namespace, priority=CRITICAL, scheduler="other"),
        )
        assert unsynced.bind(critical, node) == {"Error": ""}
        assert node_of(api, critical) == node
        for refused in (mine, foreign):
            assert "the extender is not ready" in unsynced.bind(refused, node)["Error"]
            assert node_of(api, refused) is None


def may_bind_only() -> list[Object]:
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]
    about = {"name": "binds-only"}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "binds-only"},
            "subjects": [{"kind": "User", "name": "bind-only-extender"}],
        },
    ]


def may_read_lease(lease: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]
    about = {"name": lease, "namespace": EXTENDER_NAMESPACE}
    account = {
        "kind": "ServiceAccount", "name": "gang-extender", "namespace": EXTENDER_NAMESPACE
    }  # fmt: skip
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": lease},
            "subjects": [account],
        },
    ]
