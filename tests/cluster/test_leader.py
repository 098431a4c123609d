"""Two extenders and one lease: the other takes over if the leader fails; only one leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from . import takeovers
from .api import Api
from .candidates import LABEL, Candidate, Candidates, behind_a_service, in_pairs
from .control_plane import ControlPlane
from .train_gang import Nodes, Pool
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

Play = Callable[[Candidates, str], takeovers.Round]


@pytest.fixture(scope="module")
def candidates(plane: ControlPlane) -> Iterator[Candidates]:
    with behind_a_service(plane) as made:
        yield made


@pytest.fixture
def pool(nodes: Nodes) -> Pool:
    return nodes(2, cpu="1000", memory="1Ti", pods=1000)


@pytest.fixture
def play(namespace: str, pool: Pool) -> Play:
    def one(candidates: Candidates, kind: str) -> takeovers.Round:
        played = takeovers.run_round(candidates, kind, namespace, pool.selector)
        print(played)
        assert played.writes > 0
        return played

    return one


def test_takeover_from_a_killed_leader_takes_less_than_twenty_seconds(
    candidates: Candidates, play: Play
) -> None:
    assert play(candidates, "SIGKILL").broken == []


def test_takeover_from_a_terminated_leader_takes_less_than_three_seconds(
    candidates: Candidates, play: Play
) -> None:
    assert play(candidates, "SIGTERM").broken == []


def test_frozen_leader_writes_nothing_after_it_resumes(candidates: Candidates, play: Play) -> None:
    assert play(candidates, "SIGSTOP").broken == []


def test_disconnected_leader_stops_before_the_other_leads(
    candidates: Candidates, play: Play
) -> None:
    played = play(candidates, "cut off")

    assert played.broken == []
    assert played.stopped_s is not None
    assert played.stopped_s < played.takeover_s


@pytest.fixture
def leader(candidates: Candidates) -> Candidate:
    candidates.start_all()
    found = candidates.leader()
    wait_for(lambda: candidates.labelled() == [found.pod], 20, "the leader is labelled")
    return found


def label(api: Api, pod: str, value: str | None) -> None:
    change = {"metadata": {"labels": {"gang-extender.io/leader": value}}}
    api.patch("pods", pod, change, EXTENDER_NAMESPACE)


def test_leader_label_on_a_standby_is_removed(
    candidates: Candidates, leader: Candidate, api: Api
) -> None:
    label(api, candidates.other(leader).pod, "true")

    wait_for(lambda: candidates.labelled() == [leader.pod], 30, "the leader alone is labelled")


@pytest.mark.parametrize("value", [None, "false"])
def test_leader_label_is_restored(
    candidates: Candidates, leader: Candidate, api: Api, value: str | None
) -> None:
    label(api, leader.pod, value)

    wait_for(lambda: candidates.labelled() == [leader.pod], 30, "the leader is labelled")


def test_leader_of_another_lease_keeps_its_label(
    candidates: Candidates, leader: Candidate, api: Api
) -> None:
    pod = api.get("pods", leader.pod, EXTENDER_NAMESPACE)
    annotations = {"gang-extender.io/leads-by": f"{EXTENDER_NAMESPACE}/another"}
    about = {"labels": {"gang-extender.io/leader": "true"}, "annotations": annotations}
    foreign = {"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"]}
    foreign["metadata"] = {"name": "foreign", "namespace": EXTENDER_NAMESPACE, **about}
    api.create(foreign)
    standby = candidates.other(leader).pod
    try:
        label(api, standby, "true")
        wait_for(
            lambda: standby not in candidates.labelled(), 30, "the leader has checked the labels"
        )

        found = api.list("pods", EXTENDER_NAMESPACE, labels=LABEL)
        assert {"foreign", leader.pod} <= {pod["metadata"]["name"] for pod in found}
    finally:
        api.delete("pods", "foreign", EXTENDER_NAMESPACE, grace_seconds=0)


@pytest.fixture(scope="module")
def pairs(plane: ControlPlane) -> Iterator[Candidates]:
    with in_pairs(plane) as made:
        yield made


def test_takeover_from_a_terminated_pair_takes_less_than_three_seconds(
    pairs: Candidates, play: Play
) -> None:
    assert play(pairs, "SIGTERM").broken == []


def test_extender_leads_while_its_kube_scheduler_leads(
    pairs: Candidates, namespace: str, pool: Pool
) -> None:
    pairs.start_all()
    leader, scheduler_name = pairs.leader(), pairs.scheduler_name
    assert leader.scheduler is not None
    leader.scheduler.kill()
    wait_for(lambda: leader.extender.is_standby, 30, "it stands by")
    wait_for(lambda: pairs.other(leader).leads, 30, "the other pair leads")

    pods = objects.pods(
        2, "one", namespace, gang="one", scheduler=scheduler_name, node_selector=pool.selector
    )
    with pairs.plane.binds(namespace) as binds:
        pairs.plane.api.create(objects.pod_group("one", namespace, 2), *pods)
        binds.wait_for(2, 60)
