"""Two extenders and one lease: whatever happens to the leader, the other goes on, and only it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from . import takeovers
from .api import Api
from .control_plane import ControlPlane
from .rivals import LABEL, Rivals, Side, behind_a_service, in_pairs
from .stage import Pool
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

Nodes = Callable[..., Pool]
Play = Callable[[Rivals, str], takeovers.Round]


@pytest.fixture(scope="module")
def rivals(plane: ControlPlane) -> Iterator[Rivals]:
    with behind_a_service(plane) as made:
        yield made


@pytest.fixture
def pool(nodes: Nodes) -> Pool:
    return nodes(2, cpu="1000", memory="1Ti", pods=1000)


@pytest.fixture
def play(namespace: str, pool: Pool) -> Play:
    def one(rivals: Rivals, kind: str) -> takeovers.Round:
        played = takeovers.play(rivals, kind, namespace, pool.selector)
        print(played)
        assert played.acts > 0
        return played

    return one


def test_a_killed_leader_is_followed_within_twenty_seconds(rivals: Rivals, play: Play) -> None:
    assert play(rivals, "SIGKILL").broken == []


def test_a_leader_that_ends_in_order_is_followed_within_three_seconds(
    rivals: Rivals, play: Play
) -> None:
    assert play(rivals, "SIGTERM").broken == []


def test_a_frozen_leader_acts_no_more_when_it_goes_on(rivals: Rivals, play: Play) -> None:
    assert play(rivals, "SIGSTOP").broken == []


def test_a_leader_cut_off_from_the_api_server_stops_before_the_other_begins(
    rivals: Rivals, play: Play
) -> None:
    played = play(rivals, "cut off")

    assert played.broken == []
    assert played.stopped_s is not None
    assert played.stopped_s < played.takeover_s


@pytest.fixture
def leader(rivals: Rivals) -> Side:
    rivals.restore()
    found = rivals.leader()
    wait_for(lambda: rivals.labelled() == [found.pod], 20, "the leader is labelled")
    return found


def label(api: Api, pod: str, value: str | None) -> None:
    change = {"metadata": {"labels": {"gang-extender.io/leader": value}}}
    api.patch("pods", pod, change, EXTENDER_NAMESPACE)


def test_a_label_put_on_a_standby_by_hand_is_taken_off(
    rivals: Rivals, leader: Side, api: Api
) -> None:
    label(api, rivals.other(leader).pod, "true")

    wait_for(lambda: rivals.labelled() == [leader.pod], 30, "the leader alone is labelled")


@pytest.mark.parametrize("value", [None, "false"])
def test_a_label_taken_off_the_leader_by_hand_is_put_on_again(
    rivals: Rivals, leader: Side, api: Api, value: str | None
) -> None:
    label(api, leader.pod, value)

    wait_for(lambda: rivals.labelled() == [leader.pod], 30, "the leader is labelled")


def test_the_leader_of_another_lease_keeps_its_label(
    rivals: Rivals, leader: Side, api: Api
) -> None:
    pod = api.get("pods", leader.pod, EXTENDER_NAMESPACE)
    theirs = {"gang-extender.io/leads-by": f"{EXTENDER_NAMESPACE}/another"}
    about = {"labels": {"gang-extender.io/leader": "true"}, "annotations": theirs}
    stranger = {"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"]}
    stranger["metadata"] = {"name": "stranger", "namespace": EXTENDER_NAMESPACE, **about}
    api.create(stranger)
    standby = rivals.other(leader).pod
    try:
        label(api, standby, "true")
        wait_for(lambda: standby not in rivals.labelled(), 30, "the leader has looked")

        found = api.list("pods", EXTENDER_NAMESPACE, labels=LABEL)
        assert {"stranger", leader.pod} <= {pod["metadata"]["name"] for pod in found}
    finally:
        api.delete("pods", "stranger", EXTENDER_NAMESPACE, grace_seconds=0)


@pytest.fixture(scope="module")
def pairs(plane: ControlPlane) -> Iterator[Rivals]:
    with in_pairs(plane) as made:
        yield made


def test_a_pair_that_ends_in_order_is_followed_within_three_seconds(
    pairs: Rivals, play: Play
) -> None:
    assert play(pairs, "SIGTERM").broken == []


def test_the_extender_leads_while_the_kube_scheduler_beside_it_does(
    pairs: Rivals, namespace: str, pool: Pool
) -> None:
    pairs.restore()
    leader, scheduler_name = pairs.leader(), pairs.scheduler_name
    assert leader.scheduler is not None
    leader.scheduler.kill()
    wait_for(lambda: leader.extender.stands_by, 30, "it stands by, though it is well")
    wait_for(lambda: pairs.other(leader).leads, 30, "the other pair leads")

    pods = objects.pods(
        2, "one", namespace, gang="one", scheduler=scheduler_name, node_selector=pool.selector
    )
    with pairs.plane.binds(namespace) as binds:
        pairs.plane.api.create(objects.pod_group("one", namespace, 2), *pods)
        binds.wait_for(2, 60)
