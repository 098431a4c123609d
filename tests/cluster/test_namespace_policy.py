"""Namespace policy on the real control plane: annotations apply within seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests import objects

from . import reported
from .api import Api, Object
from .components import http_json
from .control_plane import ControlPlane
from .train_gang import Create, GangScheduler, Nodes, Pool, gang, running_pair
from .waiting import wait_for

Tenant = Callable[..., str]

SCHEDULER = "tenants-scheduler"
HOME = "scheduling.volcano.sh/queue-name"
QUEUES = "gang-extender.io/queues"
AT_MOST = "gang-extender.io/at-most"
#: Timeout for starts after the last change.
SOON_S = 10
wait_until_waiting = partial(reported.wait_until_waiting, seconds=SOON_S)


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    with running_pair(plane, scheduler_name=SCHEDULER) as made:
        yield made


@pytest.fixture
def queues(pair: GangScheduler, namespace: str, create: Create) -> tuple[str, str]:
    """Two queues that the extender knows."""
    ours, other = f"ours-{namespace}", f"other-{namespace}"
    create(objects.queue(ours), objects.queue(other))
    for name in (ours, other):
        reported.wait_until_queue_is_known(pair.extender, name)
    return ours, other


def cpus(queue: str, number: int) -> str:
    """Return an annotation value for the cpus of one queue."""
    return json.dumps({queue: {"cpu": number}})


def write(api: Api, namespace: str, **annotations: str | None) -> None:
    """Change the policy of a namespace; None removes an annotation."""
    api.patch("namespaces", namespace, {"metadata": {"annotations": annotations}})


def small(
    api: Api, namespace: str, count: int, pool: Pool, *, name: str = "small", **rest: str
) -> None:
    """Create gangs of one pod."""
    for number in range(count):
        gang(api, f"{name}{number}", namespace, 1, pool, scheduler=SCHEDULER, **rest)


def explanation(pair: GangScheduler, namespace: str, name: str) -> Object:
    return reported.explanation(pair.extender, namespace, name)


def namespace_of(pod: Object) -> str:
    return str(pod["metadata"]["namespace"])


def test_namespace_uses_only_the_queues_of_its_list(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    queues: tuple[str, str],
    nodes: Nodes,
    tenant: Tenant,
    namespace: str,
) -> None:
    pool, (ours, other) = nodes(1, cpu="8"), queues
    team = tenant("team", {QUEUES: f"{ours}, further-{namespace}"})
    api.create(objects.queue(f"further-{namespace}"))
    with plane.binds(team) as binds:
        gang(api, "named", team, 2, pool, scheduler=SCHEDULER, queue=ours)
        gang(api, "foreign", team, 2, pool, scheduler=SCHEDULER, queue=other)
        gang(api, "silent", team, 2, pool, scheduler=SCHEDULER)
        lone = objects.pod("lone", team, scheduler=SCHEDULER, node_selector=pool.selector)
        api.create(lone)
        binds.wait_for(2, SOON_S, prefix="named")

        answer = reported.wait_until_reported(api, pair.extender, team, "silent", "QueueNotAllowed")
        assert f"name one of further-{namespace}, {ours}" in answer["message"]
        wait_until_waiting(pair.extender, team, "foreign", "QueueNotAllowed")
        wait_until_waiting(pair.extender, team, "pod:lone", "QueueNotAllowed")
        assert len(binds.binds) == 2

        write(api, team, **{HOME: ours})
        binds.wait_for(2, SOON_S, prefix="silent")
        binds.wait_for(1, SOON_S, prefix="lone")

        assert binds.of("foreign") == []
    started = api.get("pods", "silent-0", team)["metadata"]["annotations"][objects.STARTED_IN]
    assert started == ours
    api.delete(objects.QUEUES, f"further-{namespace}")


def test_backlog_of_a_namespace_starts_up_to_its_limit(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    queues: tuple[str, str],
    nodes: Nodes,
    tenant: Tenant,
) -> None:
    pool, (ours, _) = nodes(2, cpu="4"), queues
    greedy = tenant("greedy", {HOME: ours, AT_MOST: cpus(ours, 3)})
    other = tenant("other", {HOME: ours})
    with plane.binds() as binds:
        gang(api, "before", other, 8, pool, scheduler=SCHEDULER)
        binds.wait_for(8, 20, prefix="before")
        small(api, greedy, 10, pool)
        small(api, other, 4, pool, name="rest")
        for name in ("rest0", "rest3"):
            wait_until_waiting(pair.extender, other, name, "InsufficientCapacity")
        # Some wait for free capacity, some for the limit; all wait.
        wait_for(
            lambda: explanation(pair, greedy, "small9")["verdict"] == "waiting",
            SOON_S,
            "all of them wait",
        )

        for index in range(8):
            api.delete("pods", f"before-{index}", other, grace_seconds=0)
        binds.wait_for(3, SOON_S, prefix="small")
        binds.wait_for(4, SOON_S, prefix="rest")

        def waiting() -> list[str]:
            answer = [explanation(pair, greedy, f"small{number}") for number in range(10)]
            return [str(each["name"]) for each in answer if each["verdict"] == "waiting"]

        # Verdicts follow binds by up to one cycle.
        wait_for(lambda: len(waiting()) == 7, SOON_S, "seven still wait", seeing=waiting)
        name = waiting()[0]
        answer = reported.wait_until_reported(
            api, pair.extender, greedy, name, "NamespaceOverLimit"
        )
        assert answer["message"] == (
            f"namespace {greedy} uses 3 of at most 3 cpu in queue {ours}; 1 more would exceed it"
        )
        assert answer["would_start_with"][0] == (
            f"a limit 1 cpu higher for namespace {greedy} in queue {ours}"
        )
        assert binds.peaks(namespace_of)[greedy] == 3

        write(api, greedy, **{AT_MOST: cpus(ours, 4)})
        binds.wait_for(4, SOON_S, prefix="small")
    assert binds.peaks(namespace_of)[greedy] == 4


def test_tenant_cannot_exceed_the_limit_of_its_namespace(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    queues: tuple[str, str],
    nodes: Nodes,
    tenant: Tenant,
) -> None:
    pool, (ours, other) = nodes(2, cpu="4"), queues
    team = tenant("team", {HOME: ours, QUEUES: ours, AT_MOST: cpus(ours, 2)})
    with plane.binds(team) as binds:
        gang(api, "first", team, 2, pool, scheduler=SCHEDULER)
        binds.wait_for(2, SOON_S, prefix="first")
        gang(api, "second", team, 2, pool, scheduler=SCHEDULER)
        wait_until_waiting(pair.extender, team, "second", "NamespaceOverLimit")

        # Claims another queue for its running pods, moves their PodGroup, and deletes it.
        for index in range(2):
            elsewhere = {"metadata": {"annotations": {objects.STARTED_IN: other}}}
            api.patch("pods", f"first-{index}", elsewhere, team)
        api.patch(objects.POD_GROUPS, "first", {"spec": {"queue": other}}, team)
        api.delete(objects.POD_GROUPS, "first", team)
        wait_for(
            lambda: explanation(pair, team, "first")["verdict"] == "invalid",
            SOON_S,
            "the PodGroup is missing",
        )
        assert shares(pair)[f"{ours}/{team}"]["allocated"]["cpu"] == "2"
        wait_until_waiting(pair.extender, team, "second", "NamespaceOverLimit")

        # Names another queue while it waits, and creates pods without a PodGroup.
        api.patch(objects.POD_GROUPS, "second", {"spec": {"queue": other}}, team)
        wait_until_waiting(pair.extender, team, "second", "QueueNotAllowed")
        api.create(
            objects.pod("lone", team, scheduler=SCHEDULER, node_selector=pool.selector),
            objects.pod(
                "other-queue", team, scheduler=SCHEDULER, node_selector=pool.selector, queue=other
            ),
        )
        wait_until_waiting(pair.extender, team, "pod:lone", "NamespaceOverLimit")
        wait_until_waiting(pair.extender, team, "pod:other-queue", "QueueNotAllowed")
        small(api, team, 4, pool, name="part")
        for number in range(4):
            wait_until_waiting(pair.extender, team, f"part{number}", "NamespaceOverLimit")
        assert len(binds.binds) == 2

        for index in range(2):
            api.delete("pods", f"first-{index}", team, grace_seconds=0)
        binds.wait_for(4, SOON_S)
    assert binds.peaks(namespace_of) == {team: 2}


def test_gang_created_right_after_its_namespace_is_held_to_the_policy(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    queues: tuple[str, str],
    nodes: Nodes,
    tenant: Tenant,
) -> None:
    pool, (ours, _) = nodes(2, cpu="4"), queues
    with plane.binds() as binds:
        for number in range(5):
            hasty = tenant(f"hasty{number}", {QUEUES: "", AT_MOST: cpus(ours, 0)})
            api.create(objects.pod("lone", hasty, scheduler=SCHEDULER, node_selector=pool.selector))
            gang(api, "gang", hasty, 2, pool, scheduler=SCHEDULER)
            wait_until_waiting(pair.extender, hasty, "gang", "QueueNotAllowed")
            wait_until_waiting(pair.extender, hasty, "pod:lone", "QueueNotAllowed")
        honest = tenant("honest", {HOME: ours})
        gang(api, "work", honest, 2, pool, scheduler=SCHEDULER)
        binds.wait_for(2, SOON_S, prefix="work")
    assert len(binds.binds) == 2


def test_unreadable_annotation_admits_no_gang_and_is_reported(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    queues: tuple[str, str],
    nodes: Nodes,
    tenant: Tenant,
) -> None:
    pool, (ours, _) = nodes(1, cpu="4"), queues
    team = tenant("team", {QUEUES: f"{ours}, {ours}x", HOME: ours, AT_MOST: f"{{{ours}: 4}}"})
    with plane.binds(team) as binds:
        gang(api, "work", team, 2, pool, scheduler=SCHEDULER)
        why = reported.wait_until_reported(api, pair.extender, team, "work", "QueueNotAllowed")
        assert f"the annotation {AT_MOST} of namespace {team} cannot be read" in why["message"]
        # Every extender checks every namespace, so another one may write the events too.
        events = wait_for(
            lambda: (
                answer if len(answer := set(reported.events(api, "default", team))) == 2 else None
            ),
            2 * SOON_S,
            "the Namespace has the events",
            seeing=lambda: reported.events(api, "default", team),
        )
        assert {event.reason for event in events} == {"Unreadable", "QueueUnknown"}
        assert any(event.message.endswith(f"did you mean {ours}?") for event in events)
        assert found(pair, team) == {"Unreadable", "QueueUnknown"}
        assert binds.binds == []

        write(api, team, **{AT_MOST: cpus(ours, 2), QUEUES: ours})
        binds.wait_for(2, SOON_S, prefix="work")
    wait_for(lambda: not found(pair, team), SOON_S, "the findings are gone")


def found(pair: GangScheduler, name: str) -> set[str]:
    """Return the reasons of all findings about one object."""
    answer = http_json("GET", f"{pair.extender.ops_url}/api/v1/findings") or ()
    return {each["reason"] for each in answer if each["name"] == name}


def shares(pair: GangScheduler) -> dict[str, Object]:
    """Return the namespace shares by the extender's API."""
    answer = http_json("GET", f"{pair.extender.ops_url}/api/v1/plan") or {}
    return {f"{each['queue']}/{each['namespace']}": each for each in answer.get("shares", ())}
