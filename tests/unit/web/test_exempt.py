"""Exempt pods never wait: not on a standby, for an unknown pod, or without a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from extender.errors import InvalidConfiguration
from extender.ports import BindOrder, Whose
from extender.settings import Settings
from tests import objects
from tests.unit.leader.test_runtime import (
    LeaseDouble,
    call,
    clock,
    leases,
    page,
    standby,
    world,
)
from tests.unit.web import conftest
from tests.unit.web.conftest import World, bind_call, eventually, node_of

__all__ = ["clock", "leases", "standby", "world"]  # fixtures

EXEMPT = "monitoring"
NODES = ["node-0", "node-1"]

exempt_by = pytest.mark.parametrize(
    "about",
    [
        {"namespace": EXEMPT},
        {"namespace": "kube-system"},
        {"priority": "system-node-critical"},
        {"scheduler": "another"},
        {"namespace": EXEMPT, "gang": "train"},
    ],
    ids=["namespace", "kube-system", "critical", "another scheduler", "would-be member"],
)


@pytest.fixture(autouse=True)
def exempted(monkeypatch: pytest.MonkeyPatch, leases: LeaseDouble) -> None:
    made = conftest.Settings
    monkeypatch.setattr(
        conftest, "Settings", lambda **facts: made(**facts, exempt_namespace=(EXEMPT,))
    )


def a_pod(name: str, **about: Any) -> Any:
    return objects.pod(name, **{"namespace": "demo", **about})


@exempt_by
def test_a_standby_passes_kube_schedulers_own_decision_on(
    standby: World, about: dict[str, str]
) -> None:
    standby.node("node-0")
    pod = standby.manifests.create(a_pod("agent", **about))

    _, answer = call(standby, "filter", {"Pod": pod, "NodeNames": NODES})
    assert answer["NodeNames"] == NODES
    victims = {"node-0": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    _, answer = call(standby, "preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})
    assert answer["NodeNameToMetaVictims"]["node-0"]["Pods"] == [{"UID": "v"}]
    _, answer = call(standby, "bind", bind_call(pod))
    assert answer == {"Error": ""}
    assert node_of(standby, pod) == "node-0"


@exempt_by
def test_the_leader_binds_exempt_pods_at_once(world: World, about: dict[str, str]) -> None:
    world.node("node-0")
    pod = world.manifests.create(a_pod("agent", **about))

    if about.get("scheduler") == "another":  # pods of other schedulers are bound only after filter
        call(world, "filter", {"Pod": pod, "NodeNames": ["node-0"]})
    _, answer = call(world, "bind", bind_call(pod))
    assert answer == {"Error": ""}


def test_other_pods_are_still_refused(standby: World) -> None:
    pod = standby.manifests.create(a_pod("web"))

    # Until the watch shows the pod, it is read from the API server and refused with another error.
    refused = {"Error": "the extender is not ready: standby: there_1 leads"}
    eventually(lambda: call(standby, "bind", bind_call(pod))[1] == refused)
    assert not node_of(standby, pod)


def recorded_orders(world: World) -> list[BindOrder]:
    """Record the bind orders sent to the simulated API server from now on."""
    recorded: list[BindOrder] = []
    bind = world.api.bind

    def record(orders: Any, settle: Any, until: float) -> None:
        recorded.extend(orders)
        bind(orders, settle, until)

    world.api.bind = record  # type: ignore[method-assign]
    return recorded


def test_a_standby_reads_an_unknown_pod_and_refuses_it_unless_it_is_exempt(
    standby: World,
) -> None:
    orders = recorded_orders(standby)
    unseen = {"PodName": "p", "PodNamespace": "demo", "PodUID": "u", "Node": "n"}

    _, answer = call(standby, "bind", unseen)

    assert answer["Error"] == "the extender is not ready: standby: there_1 leads"
    assert [each.whose for each in orders] == [Whose.UNKNOWN]


@pytest.mark.parametrize("namespace", [EXEMPT, "kube-system"])
@pytest.mark.parametrize("where", ["standby", "world"])
def test_an_exempt_namespace_does_not_make_an_unknown_pod_managed(
    request: pytest.FixtureRequest, where: str, namespace: str
) -> None:
    asked = request.getfixturevalue(where)
    orders = recorded_orders(asked)
    unseen = {"PodName": "p", "PodNamespace": namespace, "PodUID": "u", "Node": "n"}

    call(asked, "bind", unseen)

    assert [each.whose for each in orders] == [Whose.UNKNOWN]


@pytest.fixture
def unplanned(leases: LeaseDouble) -> Iterator[World]:
    """A leader whose planner is blocked before its first plan."""
    made = World()
    may_plan = made.hold_planning()
    made.start()
    eventually(lambda: b"plan" in page(made, "/readyz").data)
    try:
        yield made
    finally:
        may_plan.set()
        made.__exit__()


@exempt_by
def test_without_a_plan_exempt_pods_pass_and_are_bound(
    unplanned: World, about: dict[str, str]
) -> None:
    unplanned.node("node-0")
    pod = unplanned.manifests.create(a_pod("agent", **about))

    _, answer = call(unplanned, "filter", {"Pod": pod, "NodeNames": NODES})
    assert answer["NodeNames"] == NODES
    _, answer = call(unplanned, "bind", bind_call(pod))
    assert answer == {"Error": ""}


def test_without_a_plan_other_pods_are_refused_as_not_ready(unplanned: World) -> None:
    _, answer = call(unplanned, "filter", {"Pod": a_pod("web"), "NodeNames": NODES})

    assert "the extender is not ready" in answer["Error"]


def test_names_of_exempt_namespaces_are_checked() -> None:
    for name in ("", "Monitoring", "a,b", "a/b", "-a", "a" * 64):
        with pytest.raises(InvalidConfiguration, match=r"--exempt-namespace .* is not the name"):
            Settings(exempt_namespace=(name,))
    assert Settings(exempt_namespace=("a", "a-1")).exempt_namespace == ("a", "a-1")
