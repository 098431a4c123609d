"""The FlowSchemas: the extender's requests have priority levels of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3
import yaml

from .control_plane import MANIFESTS, ControlPlane
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

FOLDER = MANIFESTS / "flow-control"
SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io/v1"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{EXTENDER_NAMESPACE}/leases/gang-scheduler"


@pytest.fixture(autouse=True, scope="module")
def flow_schemas(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("apply", "-k", FOLDER)
    yield
    plane.kubectl("delete", "-k", FOLDER)


def schema_of(plane: ControlPlane, role: str, path: str) -> str:
    """Return the name of the FlowSchema of a request."""
    token = yaml.safe_load(plane.kubeconfig(role).read_text())["users"][0]["user"]["token"]
    ca = str(plane.apiserver.certificate)
    with urllib3.PoolManager(retries=False, timeout=10, ca_certs=ca) as http:
        headers = {"Authorization": f"Bearer {token}"}
        answer = http.request("GET", f"{plane.apiserver.url}{path}", headers=headers)
    uid = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
    (name,) = (
        each["metadata"]["name"]
        for each in plane.api.list(SCHEMAS)
        if each["metadata"]["uid"] == uid
    )
    return str(name)


SCHEMA_BY_PATH = {
    LEASES: "gang-extender-leases",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/x": "gang-extender",
    "/api/v1/namespaces/default/pods/x": "gang-extender",
    "/api/v1/pods?limit=1": "gang-extender",
    "/api/v1/nodes?limit=1": "gang-extender",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups?limit=1": "gang-extender",
}


def test_requests_of_the_extender_use_its_flow_schemas(plane: ControlPlane) -> None:
    def schemas() -> dict[str, str]:
        return {path: schema_of(plane, "extender", path) for path in SCHEMA_BY_PATH}

    # The API server applies new schemas after a moment.
    wait_for(
        lambda: schemas() == SCHEMA_BY_PATH, 30, "each has its schema", every_s=0.5, seeing=schemas
    )


def test_requests_of_other_accounts_do_not(plane: ControlPlane) -> None:
    assert schema_of(plane, "bind-only-extender", LEASES) not in (
        "gang-extender",
        "gang-extender-leases",
    )
