"""Exempt and critical pods are bound whatever the extender promised, knows or is."""

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
from .stage import Pool
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

Nodes = Callable[..., Pool]

NAME = "exempt-scheduler"
EXEMPT = "exempt-tests"
FLAGS = (f"--scheduler-name={NAME}", f"--exempt-namespace={EXEMPT}")
CRITICAL = "system-node-critical"
LONG_S = 60


class Deaf(Extender):
    """One that never becomes ready: it has started when it answers at all."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/healthz")

    def bind(self, pod: Object, node: str) -> Object:
        """Ask for a bind as kube-scheduler does."""
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


def deaf(plane: ControlPlane, user: str, *arguments: str) -> Deaf:
    extender = Deaf(
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

    wait_for(lambda: not waiting(), LONG_S, "exempt pods are bound", seeing=waiting)


def privileged(namespace: str, pool: Pool) -> list[Object]:
    """One of an exempt namespace, one of a would-be gang there, one of kube-system, a critical."""
    about = {"scheduler": NAME, "node_selector": pool.selector, "cpu": "1"}
    tag = namespace.rpartition("-")[2]
    return [
        objects.pod(f"agent-{tag}", EXEMPT, **about),
        objects.pod(f"member-{tag}", EXEMPT, gang="never-written", **about),
        objects.pod(f"dns-{tag}", "kube-system", **about),
        objects.pod("proxy", namespace, priority=CRITICAL, **about),
    ]


def verdict(extender: Extender, namespace: str, gang: str) -> str:
    """What the plan says of a gang, while room is kept for it."""
    status, page = extender.ask(f"/api/v1/gangs/{namespace}/{gang}")
    told = str(json.loads(page).get("message", "")) if status == 200 else ""
    return told if "capacity is reserved for it" in told else ""


def refusal(api: Api, pod: Object) -> str:
    about = pod["metadata"]
    conditions = api.get("pods", about["name"], about["namespace"])["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions), "")


def test_they_take_room_that_is_kept_on_all_nodes_for_a_gang_that_has_waited_long(
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
            LONG_S,
            "room is kept on both nodes",
        )
        (web,) = create(objects.pod("web", namespace, cpu="1", **about))
        wait_for(lambda: "BehindInOrder" in refusal(api, web), LONG_S, "an ordinary pod waits")

        wait_until_bound(api, *create(*privileged(namespace, pool)))
        assert node_of(api, web) is None


def test_a_standby_passes_them_on_and_nobody_else(
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
            "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600},
        },
        *may_read_lease(lease),
    )
    pool = nodes(2, cpu="8")
    standby = deaf(
        plane, "extender", "--lease=own", f"--lease-name={lease}",
        f"--lease-namespace={EXTENDER_NAMESPACE}",
    )  # fmt: skip
    with standby:
        wait_for(lambda: "somebody leads" in standby.page("/readyz"), LONG_S, "it stands by")
        with plane.scheduler(plane.scheduler_config(standby, f"--scheduler-name={NAME}")):
            (web,) = create(
                objects.pod("web", namespace, scheduler=NAME, node_selector=pool.selector)
            )
            wait_until_bound(api, *create(*privileged(namespace, pool)))
            wait_for(
                lambda: "standby: somebody leads" in refusal(api, web), LONG_S, "others are refused"
            )
            assert node_of(api, web) is None


def test_an_extender_that_has_never_heard_of_anything_passes_them_on(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Callable[..., list[Object]],
) -> None:
    # Its user may bind and read single pods, and list nothing: its cache is never synced.
    pool = nodes(1, cpu="16")
    (node,) = pool.names
    ours = {"scheduler": NAME, "node_selector": pool.selector}
    create(*may_bind_only())
    unsynced = deaf(plane, "deaf-extender")
    with unsynced:
        assert "first list not complete" in unsynced.page("/readyz")
        with plane.scheduler(plane.scheduler_config(unsynced, f"--scheduler-name={NAME}")):
            (web,) = create(objects.pod("web", namespace, **ours))
            wait_until_bound(api, *create(*privileged(namespace, pool)))
            wait_for(lambda: "first list not complete" in refusal(api, web), LONG_S, "refused")

        # These were never filtered: of a bind only the name, the namespace and the uid are known.
        critical, mine, strange = create(
            objects.pod("late", namespace, priority=CRITICAL, **ours),
            objects.pod("later", namespace, **ours),
            objects.pod("strange", namespace, priority=CRITICAL, scheduler="anothers"),
        )
        assert unsynced.bind(critical, node) == {"Error": ""}
        assert node_of(api, critical) == node
        for refused in (mine, strange):
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
            "subjects": [{"kind": "User", "name": "deaf-extender"}],
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
