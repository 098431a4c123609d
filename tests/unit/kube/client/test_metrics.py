"""Calls to the API server are counted by closed lists of label values."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from extender.errors import NoResponse
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.connection import Reply
from extender.kube.metrics import CALLS, CODES, PROBE, PrometheusApiMetrics, call_of
from extender.metrics import Metrics
from tests.api_server import connected, loopback_server, scene
from tests.series import value

MANIFESTS = Path(__file__).parents[4] / "manifests"
POD = "/api/v1/namespaces/a/pods/w-0"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1"


@pytest.mark.parametrize(
    ("method", "path", "query", "call"),
    [
        ("GET", "/api/v1/pods", {"limit": "250"}, ("list", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, ("watch", "pods")),
        ("GET", "/api/v1/namespaces", {"watch": "1"}, ("watch", "namespaces")),
        ("GET", POD, None, ("get", "pods")),
        ("PATCH", f"{POD}/status?fieldManager=x", None, ("patch", "pods/status")),
        ("POST", f"{POD}/binding", None, ("create", "pods/binding")),
        ("POST", f"{POD}/eviction", None, ("create", "pods/eviction")),
        ("POST", "/api/v1/namespaces/a/events", None, ("create", "events")),
        ("GET", f"{GROUPS}/namespaces/a/podgroups/g", None, ("get", "podgroups")),
        ("PATCH", f"{GROUPS}/queues/q/status", None, ("patch", "queues/status")),
        (
            "PATCH",
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
            None,
            ("patch", "leases"),
        ),
        ("GET", "/version", None, ("list", "other")),
        ("BREW", f"{POD}/coffee", None, ("other", "other")),
        ("GET", "/", None, ("list", "other")),
        ("GET", "/readyz", None, ("get", "readyz")),
    ],
)
def test_a_call_is_named_as_kubernetes_names_it(
    method: str, path: str, query: dict[str, str] | None, call: tuple[str, str]
) -> None:
    assert call_of(method, path, query) == call
    assert call in CALLS or "other" in call


def counted(metrics: Metrics, verb: str, resource: str, code: str) -> float | None:
    labels = {"verb": verb, "resource": resource, "code": code}
    return metrics.registry.get_sample_value("gang_extender_api_requests_total", labels)


def test_the_expected_calls_are_those_that_our_roles_grant() -> None:
    granted = {
        (verb, resource)
        for file in MANIFESTS.glob("**/*rbac.yaml")
        if "chart" not in file.parts and "scheduler-rbac" not in file.name
        for role in yaml.safe_load_all(file.read_text())
        for rule in role.get("rules", ())
        # Rules without resources allow our pages to readers, and are no calls of ours.
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }

    assert set(CALLS) - {PROBE} == granted


def test_each_expected_call_is_exported_as_zero() -> None:
    metrics = Metrics()
    PrometheusApiMetrics(metrics)

    assert [counted(metrics, *call, code) for call in CALLS for code in CODES] == [0.0] * (
        len(CALLS) * len(CODES)
    )


def test_a_call_without_a_response_is_counted_without_a_duration() -> None:
    metrics = Metrics()
    server = ApiServer(host="127.0.0.1", port=1)
    access = ApiClient(server, metrics=PrometheusApiMetrics(metrics))

    with pytest.raises(NoResponse):
        access.request("GET", POD)
    assert counted(metrics, "get", "pods", "none") == 1
    assert "api_seconds_count" not in str(list(metrics.api_seconds.collect()))


@scene()
async def test_requests_of_the_pipeline_are_counted_behind_a_prefix_too() -> None:
    metrics = Metrics()
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        server.access.prefix = "/k8s/clusters/api/7"
        server.access.metrics = PrometheusApiMetrics(metrics)
        server.script.extend([201, 503])
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        pipeline.request(pipeline.frame(b"POST", f"{POD}/binding", b"{}"), lambda reply: None)
        pipeline.request(pipeline.frame(b"GET", POD), replied.set_result)
        assert (await replied).status == 503

    assert counted(metrics, "create", "pods/binding", "2xx") == 1
    assert counted(metrics, "get", "pods", "5xx") == 1
    assert value(metrics, "api_seconds_count", verb="create", resource="pods/binding") == 1


def test_slow_responses_are_logged_once_in_a_while_with_their_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api_metrics = PrometheusApiMetrics(Metrics())
    for took_s in (0.9, 2.04, 2.1):
        api_metrics.request_done("create", "pods/binding", 201, took_s)
    api_metrics.request_done("list", "pods", 200, 9.0)  # there may be much to list

    (record,) = caplog.records
    assert record.getMessage() == "the API server is slow"
    facts = {"verb": "create", "resource": "pods/binding", "took_s": 2.0}
    assert vars(record)["facts"] == facts
