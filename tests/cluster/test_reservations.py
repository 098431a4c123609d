"""Reservations on the real kube-scheduler: no pod is bound to capacity reserved for another.

Checked by the binds that an external observer saw, at every moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from extender.planner.policy_parser import DEFAULT_TEXT
from tests import objects

from . import reported
from .api import Api, ApiError
from .control_plane import ControlPlane
from .observer import WHOLE_S, BindObserver, assert_started_whole
from .reported import refusals, wait_until_refused
from .train_gang import (
    SCHEDULER,
    Create,
    GangScheduler,
    Nodes,
    TrainGang,
    gang,
    running_pair,
    train_pair,
)
from .volumes import FarVolume, SlowVolume
from .waiting import wait_for

#: The --reservation-s of `pair`: how long a reservation lasts.
RESERVATION_S = 3


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """A pair with short reservations; those of arriving gangs last as long as a test needs."""
    with train_pair(plane, f"--reservation-s={RESERVATION_S}") as pair:
        yield pair


def assert_no_node_was_overfilled(binds: BindObserver, cpus: int) -> None:
    peaks = binds.peaks(lambda pod: str(objects.node_of(pod)))
    assert max(peaks.values()) <= cpus, peaks


def found_no_node(api: Api, namespace: str, pod: str) -> bool:
    """Return whether an event of kube-scheduler says that it found no node."""
    return any("nodes are available" in each for each in refusals(api, namespace, pod))


def wait_until_nominated(api: Api, namespace: str) -> None:
    """Wait until every pod has a nominated node, which the extender sets with a reservation."""

    def all_are_nominated() -> bool:
        pods = api.list("pods", namespace)
        return all(pod["status"].get("nominatedNodeName") for pod in pods)

    wait_for(all_are_nominated, 20, "every pod is nominated")


# Queues


def test_queue_stays_within_its_capability_while_pods_and_gangs_stream_in(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(4, cpu="8"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "12"}))
    reported.wait_until_queue_is_known(gang_scheduler.extender, queue)
    sizes = [2, 5, 3, 6, 4, 2, 6, 3]
    pause = threading.Event()  # the arrival rate of the test

    def stream_pods() -> None:
        for index in range(60):
            api.create(
                objects.pod(
                    f"web-{index}",
                    namespace,
                    queue=queue,
                    node_selector=pool.selector,
                    run_seconds=1,
                )
            )
            pause.wait(0.08)

    def stream_gangs() -> None:
        for index, size in enumerate(sizes):
            gang(api, f"gang{index}", namespace, size, pool, queue=queue, run_seconds=1)
            pause.wait(0.5)

    with plane.binds(namespace) as binds, ThreadPoolExecutor(2) as threads:
        streams = [threads.submit(stream_pods), threads.submit(stream_gangs)]
        for stream in streams:
            stream.result()
        binds.wait_for(60 + sum(sizes), 60)

        assert binds.peaks(lambda pod: "bound") == {"bound": 12}


def test_pod_that_waits_for_its_volume_counts_against_the_capability_of_its_queue(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(1, cpu="8"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "2"}))
    reported.wait_until_queue_is_known(gang_scheduler.extender, queue)
    volumes = [SlowVolume(api, namespace, f"v{index}") for index in range(4)]
    create(*(volume.storage_class for volume in volumes))
    api.create(*(volume.claim for volume in volumes))

    def decide(index: int) -> None:
        name, volume = f"web-{index}", volumes[index]
        alike = {"queue": queue, "node_selector": pool.selector}
        api.create(objects.pod(name, namespace, volumes=[volume.in_a_pod], **alike))
        wait_for(
            lambda: volume.is_wanted() or found_no_node(api, namespace, name),
            15,
            f"kube-scheduler has decided about {name}",
        )

    with plane.binds(namespace) as binds:
        decide(0)
        decide(1)
        gang(api, "partial", namespace, 1, pool, min_member=2)
        reported.wait_until_waiting(
            gang_scheduler.extender, namespace, "partial", "NotEnoughMembers"
        )  # in a plan made since then
        decide(2)
        decide(3)
        wanted = [volume for volume in volumes if volume.is_wanted()]
        create(*(volume.provisioned() for volume in wanted))
        for volume in wanted:
            volume.bind()
        binds.wait_for(len(wanted), 15)

        assert binds.peaks(lambda pod: "bound") == {"bound": 2}


# Reserved nodes


def test_ordinary_pods_use_no_capacity_reserved_for_an_arriving_gang(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    train = TrainGang(api, pair, namespace, nodes(3, cpu="4"))
    api.create(objects.pod_group("train", namespace, 8))
    reported.wait_until_known(pair.extender, namespace, "train")
    ordinary = objects.pods(
        28, "web", namespace, scheduler=SCHEDULER, node_selector=train.pool.selector
    )
    with plane.binds(namespace) as binds, ThreadPoolExecutor(4) as creators:
        for index in range(4):
            train.add(index)
            api.create(ordinary[index])
        list(creators.map(api.create, ordinary[4:24]))
        binds.wait_for(4, 15, prefix="web")
        wait_until_refused(api, namespace, "web-23", "nodes are available")
        assert binds.of("train") == []

        for index in range(4, 8):
            api.create(ordinary[20 + index])
            train.add(index)
        binds.wait_for(8, 10, prefix="train")

        assert binds.spread_s("train") < WHOLE_S
        assert len(binds.of("web")) == 4
        assert_no_node_was_overfilled(binds, 4)


def test_ordinary_pods_with_slow_volumes_use_no_capacity_reserved_for_an_arriving_gang(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    train = TrainGang(api, pair, namespace, nodes(1, cpu="4"))
    first, second = (SlowVolume(api, namespace, name) for name in ("first", "second"))
    create(first.storage_class, second.storage_class)
    api.create(first.claim, second.claim)
    alike = {"scheduler": SCHEDULER, "node_selector": train.pool.selector}
    with plane.binds(namespace) as binds:
        train.create_waiting(1, minimum=3)
        api.create(objects.pod("web-0", namespace, volumes=[first.in_a_pod], **alike))
        wait_for(first.is_wanted, 20, "the free capacity beside the gang is used")
        api.create(objects.pod("web-1", namespace, volumes=[second.in_a_pod], **alike))
        wait_for(
            lambda: second.is_wanted() or found_no_node(api, namespace, "web-1"),
            20,
            "kube-scheduler has decided about the second pod",
        )
        train.add(1, 2)
        binds.wait_for(3, 10, prefix="train")
        assert_no_node_was_overfilled(binds, 4)


def test_backlog_that_just_fits_starts_though_kube_scheduler_samples_nodes(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, name = nodes(160, cpu="1"), "backlog-scheduler"
    sizes = {f"gang{index}": 20 for index in range(8)}
    members = [
        each
        for gang_name, size in sizes.items()
        for each in objects.pods(
            size,
            gang_name,
            namespace,
            gang=gang_name,
            scheduler=name,
            node_selector=pool.selector,
        )
    ]
    api.create(*(objects.pod_group(each, namespace, size) for each, size in sizes.items()))
    with plane.extender(f"--scheduler-name={name}") as extender, ThreadPoolExecutor(4) as creators:
        list(creators.map(api.create, members))
        config = plane.scheduler_config(extender, f"--scheduler-name={name}")
        with plane.scheduler(config), plane.binds(namespace) as binds:
            seen = binds.wait_for(160, 40)

            assert_started_whole(seen, sizes)
            # No gang backed off: one that loses its reservation does so for ten seconds at least.
            assert binds.spread_s() < 10
            assert len({bind.pod for bind in seen}) == 160
            assert_no_node_was_overfilled(binds, 1)


def test_member_whose_volume_takes_longer_than_a_reservation_keeps_its_node(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    train = TrainGang(api, pair, namespace, nodes(1, cpu="3"))
    volume = SlowVolume(api, namespace)
    create(volume.storage_class)
    api.create(volume.claim)
    with plane.binds(namespace) as binds:
        train.create_waiting(2, minimum=3)
        train.add(2, volumes=[volume.in_a_pod])
        wait_for(volume.is_wanted, 20, "kube-scheduler asks for the volume before it binds")
        alike = {"scheduler": SCHEDULER, "node_selector": train.pool.selector}
        api.create(
            objects.pod_group("other", namespace, 1),
            objects.pod("other-0", namespace, gang="other", **alike),
            objects.pod("timer", namespace, cpu="0", run_seconds=3 * RESERVATION_S, **alike),
        )
        wait_for(lambda: "timer" in binds.ended, 20, "a reservation would have expired")
        assert not api.get("pods", "other-0", namespace)["status"].get("nominatedNodeName")
        assert binds.of("train") == []

        create(volume.provisioned())
        volume.bind()
        binds.wait_for(3, 8, prefix="train")

        assert binds.spread_s("train") < WHOLE_S
        assert binds.of("other") == []


# Refusals and wake-ups


def test_gang_refused_for_its_volumes_does_not_block_another_of_its_size(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, far = nodes(2, cpu="4"), FarVolume(namespace)
    create(far.volume, far.claim)
    alike = {"cpu": "4", "scheduler": SCHEDULER}
    with plane.binds(namespace) as binds:
        gang(api, "stuck", namespace, 2, pool, volumes=[far.in_a_pod], **alike)
        wait_until_nominated(api, namespace)
        gang(api, "free", namespace, 2, pool, **alike)
        binds.wait_for(2, 30, prefix="free")

        assert binds.of("stuck") == []


def test_gang_is_woken_when_its_queue_is_changed(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(2, cpu="4"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "4"}))
    reported.wait_until_queue_is_known(gang_scheduler.extender, queue)
    gang(api, "large", namespace, 6, pool, queue=queue)
    reported.wait_until_waiting(gang_scheduler.extender, namespace, "large", "QueueAtCapability")
    for index in range(6):
        wait_until_refused(api, namespace, f"large-{index}", "nodes are available")
    with plane.binds(namespace) as binds:
        api.patch(objects.QUEUES, queue, {"spec": {"capability": {"cpu": "6"}}})

        binds.wait_for(6, 10)
        assert binds.spread_s() < WHOLE_S


def test_pods_refused_while_capacity_frees_up_are_woken(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool, rounds = nodes(2, cpu="4"), [f"r{index}" for index in range(16)]
    api.create(*(objects.pod_group(name, namespace, 8) for name in rounds))
    reported.wait_until_known(gang_scheduler.extender, namespace, rounds[-1])
    members = {
        name: objects.pods(8, name, namespace, gang=name, node_selector=pool.selector)
        for name in rounds
    }
    with plane.binds(namespace) as binds, ThreadPoolExecutor(4) as threads:
        api.create(*members[rounds[0]])
        binds.wait_for(8, 15)
        for old, new in pairwise(rounds):
            for index in range(8):
                threads.submit(api.create, members[new][index])
                threads.submit(api.delete, "pods", f"{old}-{index}", namespace, grace_seconds=0)
            # Without a wake-up kube-scheduler would retry after minutes.
            binds.wait_for(8, 10, prefix=f"{new}-")

        assert_started_whole(binds.binds, dict.fromkeys(rounds, 8))
        assert_no_node_was_overfilled(binds, 4)


def test_capacity_reserved_for_a_starving_gang_is_open_to_pods_with_a_deadline_alone(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    policy, name = tmp_path / "policy.yaml", "backfill-scheduler"
    policy.write_text(f"{DEFAULT_TEXT}\nstarvation: {{after: 1s, hold: 10m}}\n")
    pool = nodes(2, cpu="4")
    alike = {"scheduler": name, "node_selector": pool.selector}
    lasts = {"gang-extender.io/duration": "2h"}
    with (
        running_pair(plane, f"--config={policy}", scheduler_name=name) as pair,
        plane.binds(namespace) as binds,
    ):

        def wait_until_told(gang_name: str, words: str) -> None:
            def message() -> str:
                return str(reported.explanation(pair.extender, namespace, gang_name)["message"])

            wait_for(lambda: words in message(), 60, f"{gang_name}: {words}", seeing=message)

        api.create(objects.pod("old", namespace, cpu="2", annotations=lasts, **alike))
        binds.wait_for(1, 60)
        gang(api, "large", namespace, 2, pool, cpu="4", scheduler=name)
        wait_until_told("large", "capacity is reserved for it")
        api.create(objects.pod("no-deadline", namespace, **alike))
        wait_until_told("pod:no-deadline", "only gangs that activeDeadline")

        api.create(objects.pod("brief", namespace, activeDeadlineSeconds=300, **alike))
        binds.wait_for(1, 60, prefix="brief")
        assert {bind.pod for bind in binds.binds} == {"old", "brief"}

        for longer in (301, None):
            with pytest.raises(ApiError) as refused:
                api.patch("pods", "brief", {"spec": {"activeDeadlineSeconds": longer}}, namespace)
            assert refused.value.status == 422
