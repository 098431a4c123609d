"""Promises of room on the real kube-scheduler: nobody gets what is promised to somebody else.

Judged by what an outside observer saw bound, moment by moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tests import objects

from . import telling
from .api import Api, Object
from .control_plane import ControlPlane
from .observer import WHOLE_S, BindObserver, assert_started_whole
from .stage import OURS, SCHEDULER, GangScheduler, Pool, Stage, gang
from .telling import refusals, wait_until_refused
from .volumes import FarVolume, SlowVolume
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

GPU = "nvidia.com/gpu"
#: How long a ticket of `pair` lasts.
TICKET_S = 3


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """A pair whose tickets lapse soon; arriving gangs keep their places as long as a test needs."""
    with plane.extender(*OURS, f"--ticket-s={TICKET_S}") as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


def first_word(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name.partition("-")[0]


def assert_no_node_was_overfilled(binds: BindObserver, cpus: int) -> None:
    peaks = binds.peaks(lambda pod: str(objects.node_of(pod)))
    assert max(peaks.values()) <= cpus, peaks


def has_no_place(api: Api, namespace: str, pod: str) -> bool:
    """Whether kube-scheduler has looked for a node and said that it found none."""
    return any("nodes are available" in said for said in refusals(api, namespace, pod))


def wait_until_promised(api: Api, namespace: str) -> None:
    """Wait until every pod is nominated to a node, as is done for those who have a place."""

    def all_are_nominated() -> bool:
        pods = api.list("pods", namespace)
        return all(pod["status"].get("nominatedNodeName") for pod in pods)

    wait_for(all_are_nominated, 20, "every pod is promised a place")


# Queues


def test_a_queue_never_has_more_bound_than_its_ceiling_while_pods_and_gangs_of_it_stream_in(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(4, cpu="8"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "12"}))
    telling.wait_until_queue_is_known(gang_scheduler.extender, queue)
    sizes = [2, 5, 3, 6, 4, 2, 6, 3]
    pace = threading.Event()  # the arrival rate is part of the story, nothing is waited for

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
            pace.wait(0.08)

    def stream_gangs() -> None:
        for index, size in enumerate(sizes):
            gang(api, f"gang{index}", namespace, size, pool, queue=queue, run_seconds=1)
            pace.wait(0.5)

    with plane.binds(namespace) as binds, ThreadPoolExecutor(2) as sides:
        streams = [sides.submit(stream_pods), sides.submit(stream_gangs)]
        for stream in streams:
            stream.result()
        binds.wait_for(60 + sum(sizes), 60)

        assert binds.peaks(lambda pod: "bound") == {"bound": 12}


def test_a_pod_that_waits_for_its_volume_counts_against_the_ceiling_of_its_queue(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(1, cpu="8"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "2"}))
    telling.wait_until_queue_is_known(gang_scheduler.extender, queue)
    volumes = [SlowVolume(api, namespace, f"v{index}") for index in range(4)]
    create(*(volume.storage_class for volume in volumes))
    api.create(*(volume.claim for volume in volumes))

    def decide(index: int) -> None:
        name, volume = f"web-{index}", volumes[index]
        alike = {"queue": queue, "node_selector": pool.selector}
        api.create(objects.pod(name, namespace, volumes=[volume.in_a_pod], **alike))
        wait_for(
            lambda: volume.is_wanted() or has_no_place(api, namespace, name),
            15,
            f"kube-scheduler has decided about {name}",
        )

    with plane.binds(namespace) as binds:
        decide(0)
        decide(1)
        gang(api, "torso", namespace, 1, pool, min_member=2)
        telling.wait_until_waiting(
            gang_scheduler.extender, namespace, "torso", "NotEnoughMembers"
        )  # by a plan made since
        decide(2)
        decide(3)
        wanted = [volume for volume in volumes if volume.is_wanted()]
        create(*(volume.provisioned() for volume in wanted))
        for volume in wanted:
            volume.bind()
        binds.wait_for(len(wanted), 15)

        assert binds.peaks(lambda pod: "bound") == {"bound": 2}


def test_two_queues_that_flood_the_cluster_leave_a_third_what_it_is_guaranteed(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(4, cpu="5")
    one, two, third = (f"{name}-{namespace}" for name in ("one", "two", "third"))
    create(
        # Nothing can be taken back from them: what they take is gone.
        objects.queue(one, reclaimable=False),
        objects.queue(two, reclaimable=False),
        objects.queue(third, guarantee={"resource": {"cpu": "8"}}),
    )
    telling.wait_until_queue_is_known(gang_scheduler.extender, third)

    def flood(queue: str) -> None:
        word = queue.partition("-")[0]
        pods = objects.pods(12, word, namespace, queue=queue, node_selector=pool.selector)
        for index in range(3):
            api.create(*pods[4 * index : 4 * index + 4])
            gang(api, f"{word}-gang{index}", namespace, 3, pool, queue=queue)

    with plane.binds(namespace) as binds, ThreadPoolExecutor(2) as hands:
        list(hands.map(flood, (one, two)))
        binds.wait_for(12, 20)
        gang(api, "third", namespace, 8, pool, queue=third)
        binds.wait_for(8, 10, prefix="third")

        in_use = binds.peaks(lambda pod: "third" if first_word(pod) == "third" else "others")
        assert in_use == {"third": 8, "others": 12}


def test_with_all_gpus_taken_and_a_gang_waiting_for_more_a_pod_that_asks_for_none_starts_at_once(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(1, cpu="8", resources={GPU: "4"}), f"q-{namespace}"
    nodes(2, cpu="8")
    create(objects.queue(queue, capability={"cpu": "100", GPU: "0"}))
    telling.wait_until_queue_is_known(gang_scheduler.extender, queue)
    with plane.binds(namespace) as binds:
        gang(api, "train", namespace, 4, pool, resources={GPU: "1"})
        binds.wait_for(4, 15)
        gang(api, "next", namespace, 4, pool, resources={GPU: "1"})
        telling.wait_until_waiting(
            gang_scheduler.extender, namespace, "next", "InsufficientCapacity"
        )

        api.create(
            objects.pod("web", namespace, node_selector=pool.selector),
            objects.pod("plain", namespace, queue=queue, node_selector=pool.selector),
        )
        binds.wait_for(1, 5, prefix="web")
        binds.wait_for(1, 5, prefix="plain")

    assert refusals(api, namespace, "web") == []
    assert refusals(api, namespace, "plain") == []


# Places


def test_ordinary_pods_take_no_place_of_a_gang_that_is_still_arriving(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    stage = Stage(api, pair, namespace, nodes(3, cpu="4"))
    api.create(objects.pod_group("train", namespace, 8))
    telling.wait_until_known(pair.extender, namespace, "train")
    ordinary = objects.pods(
        28, "web", namespace, scheduler=SCHEDULER, node_selector=stage.pool.selector
    )
    with plane.binds(namespace) as binds, ThreadPoolExecutor(4) as creators:
        for index in range(4):
            stage.add(index)
            api.create(ordinary[index])
        list(creators.map(api.create, ordinary[4:24]))
        binds.wait_for(4, 15, prefix="web")
        wait_until_refused(api, namespace, "web-23", "nodes are available")
        assert binds.of("train") == []

        for index in range(4, 8):
            api.create(ordinary[20 + index])
            stage.add(index)
        binds.wait_for(8, 10, prefix="train")

        assert binds.spread_s("train") < WHOLE_S
        assert len(binds.of("web")) == 4
        assert_no_node_was_overfilled(binds, 4)


def test_ordinary_pods_that_wait_for_their_volumes_take_no_place_of_an_arriving_gang(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    stage = Stage(api, pair, namespace, nodes(1, cpu="4"))
    first, second = (SlowVolume(api, namespace, name) for name in ("first", "second"))
    create(first.storage_class, second.storage_class)
    api.create(first.claim, second.claim)
    alike = {"scheduler": SCHEDULER, "node_selector": stage.pool.selector}
    with plane.binds(namespace) as binds:
        stage.hold(1, minimum=3)
        api.create(objects.pod("web-0", namespace, volumes=[first.in_a_pod], **alike))
        wait_for(first.is_wanted, 20, "the free place beside the gang's is taken")
        api.create(objects.pod("web-1", namespace, volumes=[second.in_a_pod], **alike))
        wait_for(
            lambda: second.is_wanted() or has_no_place(api, namespace, "web-1"),
            20,
            "kube-scheduler has decided about the second pod",
        )
        stage.add(1, 2)
        binds.wait_for(3, 10, prefix="train")
        assert_no_node_was_overfilled(binds, 4)


def test_a_backlog_that_just_fits_starts_though_kube_scheduler_looks_at_a_sample_of_the_nodes(
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
            # Nobody had to pause, as a gang that loses its ticket does, for ten seconds at least.
            assert binds.spread_s() < 10
            assert len({bind.pod for bind in seen}) == 160
            assert_no_node_was_overfilled(binds, 1)


def test_a_member_whose_volume_takes_longer_than_a_ticket_lasts_keeps_its_place(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    stage = Stage(api, pair, namespace, nodes(1, cpu="3"))
    volume = SlowVolume(api, namespace)
    create(volume.storage_class)
    api.create(volume.claim)
    with plane.binds(namespace) as binds:
        stage.hold(2, minimum=3)
        stage.add(2, volumes=[volume.in_a_pod])
        wait_for(volume.is_wanted, 20, "kube-scheduler asks for the volume before it binds")
        alike = {"scheduler": SCHEDULER, "node_selector": stage.pool.selector}
        api.create(
            objects.pod_group("rival", namespace, 1),
            objects.pod("rival-0", namespace, gang="rival", **alike),
            objects.pod("hourglass", namespace, cpu="0", run_seconds=3 * TICKET_S, **alike),
        )
        wait_for(lambda: "hourglass" in binds.ended, 20, "a ticket would have lapsed by now")
        assert not api.get("pods", "rival-0", namespace)["status"].get("nominatedNodeName")
        assert binds.of("train") == []

        create(volume.provisioned())
        volume.bind()
        binds.wait_for(3, 8, prefix="train")

        assert binds.spread_s("train") < WHOLE_S
        assert binds.of("rival") == []


def taint(api: Api, node: str) -> None:
    leaving = {"key": "leaving", "effect": "NoSchedule"}
    api.patch("nodes", node, {"spec": {"taints": [leaving]}})


def shrink(api: Api, node: str) -> None:
    room = {"cpu": "0"}
    api.patch("nodes", node, {"status": {"allocatable": room}}, subresource="status")


@pytest.mark.parametrize("spoil", [taint, shrink])
def test_nobody_is_bound_to_a_node_that_was_spoilt_while_members_were_held_for_it(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    spoil: Callable[[Api, str], None],
) -> None:
    stage = Stage(api, pair, namespace, nodes(2))
    spoilt = tuple(stage.pool.names)
    with plane.binds(namespace) as binds:
        stage.hold(2, minimum=3)
        for name in spoilt:
            spoil(api, name)
        others = nodes(1, cpu="2").names[-1:]
        stage.add(2)
        wait_for(
            lambda: binds.binds or has_no_place(api, namespace, "train-0"), 20, "it is sent back"
        )
        assert binds.binds == []

        others += nodes(1, cpu="2").names[-1:]
        seen = binds.wait_for(3, 40)

        assert {bind.node for bind in seen} <= set(others)
        assert binds.spread_s() < WHOLE_S


# Refusals and wake-ups


def test_what_kube_scheduler_found_wrong_with_one_gang_bars_no_node_to_the_next_of_its_size(
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
    gang(api, "stuck", namespace, 2, pool, volumes=[far.in_a_pod], **alike)
    wait_until_promised(api, namespace)
    telling.wait_until_waiting(pair.extender, namespace, "stuck", "BackingOff")
    api.delete_all("pods", namespace, grace_seconds=0)
    with plane.binds(namespace) as binds:
        # Refused at first, so that it is planned: who only arrives is offered what there is.
        api.create(
            *objects.pods(2, "free", namespace, gang="free", node_selector=pool.selector, **alike)
        )
        for index in range(2):
            wait_until_refused(api, namespace, f"free-{index}", "PodGroupMissing")
        api.create(objects.pod_group("free", namespace, 2))

        binds.wait_for(2, 10)


def test_a_gang_that_kube_scheduler_refuses_for_its_volumes_bars_no_node_to_another_of_its_size(
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
        wait_until_promised(api, namespace)
        gang(api, "free", namespace, 2, pool, **alike)
        binds.wait_for(2, 30, prefix="free")

        assert binds.of("stuck") == []


def test_a_gang_is_woken_when_only_we_know_that_its_turn_has_come(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool, queue = nodes(2, cpu="4"), f"q-{namespace}"
    create(objects.queue(queue, capability={"cpu": "4"}))
    telling.wait_until_queue_is_known(gang_scheduler.extender, queue)
    gang(api, "large", namespace, 6, pool, queue=queue)
    telling.wait_until_waiting(gang_scheduler.extender, namespace, "large", "QueueAtCapability")
    for index in range(6):
        wait_until_refused(api, namespace, f"large-{index}", "nodes are available")
    with plane.binds(namespace) as binds:
        api.patch(objects.QUEUES, queue, {"spec": {"capability": {"cpu": "6"}}})

        binds.wait_for(6, 10)
        assert binds.spread_s() < WHOLE_S


def test_whoever_is_refused_while_room_for_its_gang_comes_free_is_woken(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool, rounds = nodes(2, cpu="4"), [f"r{index}" for index in range(16)]
    api.create(*(objects.pod_group(name, namespace, 8) for name in rounds))
    telling.wait_until_known(gang_scheduler.extender, namespace, rounds[-1])
    members = {
        name: objects.pods(8, name, namespace, gang=name, node_selector=pool.selector)
        for name in rounds
    }
    with plane.binds(namespace) as binds, ThreadPoolExecutor(4) as hands:
        api.create(*members[rounds[0]])
        binds.wait_for(8, 15)
        for old, new in pairwise(rounds):
            for index in range(8):
                hands.submit(api.create, members[new][index])
                hands.submit(api.delete, "pods", f"{old}-{index}", namespace, grace_seconds=0)
            # No other event comes: kube-scheduler would look again in some minutes.
            binds.wait_for(8, 10, prefix=f"{new}-")

        assert_started_whole(binds.binds, dict.fromkeys(rounds, 8))
        assert_no_node_was_overfilled(binds, 4)
