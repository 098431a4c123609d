"""Reading and writing a Lease at the API server."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from extender.errors import ApiError
from extender.kube.client import ApiClient
from extender.kube.write.leader import ApiLeases
from extender.ports import Lease
from extender.settings import Settings
from tests.unit.kube.api_double import Answer, ApiDouble

ALL = "/apis/coordination.k8s.io/v1/namespaces/gang-system/leases"
ONE = f"{ALL}/gang-extender"
SPEC = {
    "holderIdentity": "pod-a_1",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-11-15T00:00:00.000000Z",
    "renewTime": "2026-11-15T00:00:02.000000Z",
    "leaseTransitions": 3,
}
STORED = {"metadata": {"name": "gang-extender", "resourceVersion": "7"}, "spec": SPEC}
LEASE = Lease(
    holder="pod-a_1",
    duration_s=15,
    acquired="2026-11-15T00:00:00.000000Z",
    renewed="2026-11-15T00:00:02.000000Z",
    transitions=3,
    version="7",
)


def leases(answers: dict[str, list[Answer]], **settings: Any) -> tuple[ApiLeases, ApiDouble]:
    api = ApiDouble(answers)
    settings = {"lease": "own", "lease_namespace": "gang-system", **settings}
    return ApiLeases(cast(ApiClient, api), Settings(**settings)), api


def test_a_lease_is_read() -> None:
    made, _ = leases({f"GET {ONE}": [(200, STORED)]})

    assert made.read() == LEASE


def test_a_missing_lease_is_none() -> None:
    made, _ = leases({f"GET {ONE}": [(404, {"message": "not found"})]})

    assert made.read() is None


def test_a_lease_with_an_empty_spec_is_free() -> None:
    made, _ = leases({f"GET {ONE}": [(200, {"metadata": {"resourceVersion": "1"}})]})

    assert made.read() == Lease(version="1")


def test_a_missing_lease_is_created() -> None:
    made, api = leases({f"POST {ALL}": [(201, STORED)]})
    new = Lease(holder="pod-a_1", duration_s=15, acquired="then", renewed="now")

    assert made.write(new) == LEASE
    (asked,) = api.asked
    assert asked.body["metadata"] == {"name": "gang-extender", "namespace": "gang-system"}
    assert asked.body["spec"] == {
        "holderIdentity": "pod-a_1",
        "leaseDurationSeconds": 15,
        "acquireTime": "then",
        "renewTime": "now",
        "leaseTransitions": 0,
    }


def test_an_existing_lease_is_updated_only_at_the_version_that_was_read() -> None:
    made, api = leases({f"PATCH {ONE}": [(200, STORED)]})

    assert made.write(LEASE) == LEASE
    (asked,) = api.asked
    assert asked.body == {"metadata": {"resourceVersion": "7"}, "spec": SPEC}


def test_the_written_lease_duration_is_never_shorter_than_the_one_we_act_on() -> None:
    made, api = leases(
        {f"PATCH {ONE}": [(200, STORED)]},
        lease_duration_s=15.4,
        lease_renew_s=15.2,
    )

    made.write(msgspec.structs.replace(LEASE, duration_s=15.4))

    (asked,) = api.asked
    assert asked.body["spec"]["leaseDurationSeconds"] == 16


def test_a_lease_written_by_another_client_meanwhile_is_a_conflict() -> None:
    made, _ = leases({f"PATCH {ONE}": [(409, {"message": "the object has been modified"})]})

    with pytest.raises(ApiError) as caught:
        made.write(LEASE)
    assert caught.value.status == 409


def test_the_name_and_namespace_of_the_lease_can_be_set() -> None:
    made, api = leases({}, lease="scheduler", lease_name="sched", lease_namespace="kube-system")

    with pytest.raises(ApiError, match="not a Lease"):
        made.read()
    assert api.asked[0].path.endswith("/namespaces/kube-system/leases/sched")
