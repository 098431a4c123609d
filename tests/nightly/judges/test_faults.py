"""The names of calls, and scripts of faults."""

from __future__ import annotations

import pytest

from extender.kube.reflector import WatchLimits
from extender.kube.watch import Watch
from tests.nightly.faults.fault_points import (
    Call,
    Fault,
    FaultPoint,
    Script,
    faults_of,
    hook_site,
    pod_in,
    site_of,
)
from tests.nightly.faults.planted import SHORT_SILENCE, SHORT_SILENCE_S, plant

GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gang-system/leases"


@pytest.mark.parametrize(
    ("method", "path", "query", "site"),
    [
        ("POST", "/api/v1/namespaces/a/pods/b/binding", {}, "bind"),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", {}, "eviction"),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", {}, "pod-status"),
        ("GET", "/api/v1/namespaces/a/pods/b", {}, "get-pods"),
        ("GET", "/api/v1/nodes", {"fieldSelector": "metadata.name=x"}, "get-nodes"),
        ("PATCH", f"{GROUPS}/namespaces/a/podgroups/b/status", {}, "podgroup-status"),
        ("PATCH", f"{GROUPS}/namespaces/a/podgroups/b", {}, "podgroup-patch"),
        ("GET", f"{GROUPS}/namespaces/a/podgroups/b", {}, "get-podgroups"),
        ("PATCH", f"{GROUPS}/queues/b/status", {}, "queue-status"),
        ("POST", "/api/v1/namespaces/a/events", {}, "event"),
        ("PATCH", "/api/v1/namespaces/a/events/b", {}, "event"),
        ("GET", "/api/v1/pods", {"watch": "1", "sendInitialEvents": "true"}, "list-pods"),
        ("GET", "/api/v1/pods", {"limit": "500"}, "list-pods"),
        ("GET", "/api/v1/namespaces", {"watch": "1"}, "watch-namespaces"),
        ("GET", f"{LEASES}/gang-extender", {}, "lease-read"),
        ("PATCH", f"{LEASES}/gang-extender", {}, "lease-write"),
        ("POST", LEASES, {}, "lease-write"),
        ("GET", "/readyz", {}, "health-probe"),
        ("DELETE", "/api/v1/namespaces/a/pods/b", {}, "delete-pods"),
    ],
)
def test_every_call_has_a_name(method: str, path: str, query: dict[str, str], site: str) -> None:
    assert site_of(method, path, query) == site


def test_hooks_and_pods_are_named_by_their_paths() -> None:
    assert hook_site("/filter") == "hook-filter"
    assert hook_site("/healthz") == "hook-other"
    assert pod_in("/api/v1/namespaces/a/pods/b/binding") == "b"
    assert pod_in("/api/v1/pods") == ""


def test_each_site_has_its_possible_faults() -> None:
    assert Fault.CONFLICT in faults_of("bind")
    assert Fault.REORDERED not in faults_of("bind")
    assert Fault.REORDERED in faults_of("event-pods")
    assert Fault.MISSING not in faults_of("hook-bind")
    assert all(Fault.KILL_BEFORE in faults_of(each) for each in ("bind", "event-pods", "hook-bind"))
    assert not any(Fault.REFUSED in faults_of(each) for each in ("bind", "event-pods", "hook-bind"))


def test_script_counts_each_site_and_records_faults() -> None:
    point = FaultPoint("bind", 2, Fault.LOST)
    script = Script([point])

    assert [script.take(each) for each in ("bind", "event", "bind", "bind")] == [
        (1, None),
        (1, None),
        (2, Fault.LOST),
        (3, None),
    ]
    script.record(Call("bind", 1, "", 0.0, 0.0, 201))
    assert script.reached == [point]
    assert script.counts() == {"bind": 3, "event": 1}
    assert str(point) == "bind#2 answer-lost"


def test_standing_fault_applies_to_one_pod_until_it_is_removed() -> None:
    script = Script([FaultPoint("bind", 1, Fault.UNAVAILABLE)])
    script.set_standing("bind", "train-2", Fault.REFUSED)

    assert script.take("bind", "train-2") == (1, Fault.UNAVAILABLE)
    assert script.take("bind", "train-2") == (2, Fault.REFUSED)
    assert script.take("bind", "train-1") == (3, None)
    script.set_standing("bind", "train-2", None)
    assert script.take("bind", "train-2") == (4, None)
    assert script.reached == [FaultPoint("bind", 1, Fault.UNAVAILABLE)]


def test_short_silence_shortens_the_timeout_of_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defaults = Watch.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "limits", WatchLimits(silence_s=75.0))

    plant(SHORT_SILENCE)

    assert defaults["limits"] == WatchLimits(silence_s=SHORT_SILENCE_S)
