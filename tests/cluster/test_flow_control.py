"""Where the API server has too much to do, what we ask waits in lines of our own."""

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
def lines(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("apply", "-k", FOLDER)
    yield
    plane.kubectl("delete", "-k", FOLDER)


def schema_of(plane: ControlPlane, role: str, path: str) -> str:
    """Name the FlowSchema by which the API server let a request in."""
    token = yaml.safe_load(plane.kubeconfig(role).read_text())["users"][0]["user"]["token"]
    ca = str(plane.apiserver.certificate)
    with urllib3.PoolManager(retries=False, timeout=10, ca_certs=ca) as http:
        who = {"Authorization": f"Bearer {token}"}
        answer = http.request("GET", f"{plane.apiserver.url}{path}", headers=who)
    uid = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
    (name,) = (
        each["metadata"]["name"]
        for each in plane.api.list(SCHEMAS)
        if each["metadata"]["uid"] == uid
    )
    return str(name)


LINES = {
    LEASES: "gang-extender-leases",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/x": "gang-extender",
    "/api/v1/namespaces/default/pods/x": "gang-extender",
    "/api/v1/pods?limit=1": "gang-extender",
    "/api/v1/nodes?limit=1": "gang-extender",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups?limit=1": "gang-extender",
}


def test_what_our_account_asks_has_lines_of_its_own(plane: ControlPlane) -> None:
    def lines() -> dict[str, str]:
        return {path: schema_of(plane, "extender", path) for path in LINES}

    # The API server takes a moment to go by what is new.
    wait_for(lambda: lines() == LINES, 30, "each goes by its line", every_s=0.5, seeing=lines)


def test_what_another_account_asks_has_not(plane: ControlPlane) -> None:
    assert schema_of(plane, "deaf-extender", LEASES) not in (
        "gang-extender",
        "gang-extender-leases",
    )
