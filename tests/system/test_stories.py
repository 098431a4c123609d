"""Stories of the whole system: events that overlap, are stale or come late, and must not matter.

Each goes through the adapter, with kube-scheduler's behaviour. The referee checks after every step,
so a story may also fail by a breach of its rules before its last line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness
from extender.sim.kube_scheduler import SchedulerOptions

from .world import GPU, TREE, World, amounts, key, uid, worlds

MakeWorld = Callable[..., World]

FULL = SchedulerOptions()
#: Up to 1.31: nothing but a change of metadata wakes a refused pod, and deletions.
DEAF = SchedulerOptions(hints=False)


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    with worlds() as make:
        yield make


# ── undisturbed ───────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_fits_runs_at_once(make_world: MakeWorld) -> None:
    world = make_world(n1=4, n2=4)
    world.create_gang("train", 4, cpu=2)

    world.advance(1)

    assert len(world.running("train")) == 4


def test_a_gang_that_waits_for_capacity_runs_when_it_is_free(make_world: MakeWorld) -> None:
    world = make_world(DEAF, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    world.advance(5)
    assert not world.running("train")

    world.delete_pod("old")
    world.advance(3)

    assert len(world.running("train")) == 2


# ── wake-ups and planning cycles ──────────────────────────────────────────────────────────────


def test_a_member_that_is_refused_while_its_reservation_is_made_is_woken(
    make_world: MakeWorld,
) -> None:
    world = make_world(DEAF, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    world.deliver_to_extender()
    world.run_cycle()  # it has no capacity
    world.delete_pod("old")
    world.deliver()

    world.meanwhile = world.run_cycle  # in which it gets a reservation
    world.schedule_pod("train-0")
    world.deliver()
    world.advance(2, busy=False)

    assert world.places("train").keys() == {"train-0", "train-1"}
    assert "train-0" in world.woken() or world.answers[-1] != ("train-0", ())
    world.advance(2)
    assert len(world.running("train")) == 2


def test_a_member_whose_refusal_is_seen_after_its_reservation_was_made_is_woken(
    make_world: MakeWorld,
) -> None:
    world = make_world(DEAF, n1=4)
    world.create_gang("train", 2, cpu=2)
    world.scheduler.volumes["train-0"] = frozenset()  # its volume is still being made
    world.deliver()
    world.schedule_pod("train-0")
    assert not world.answers, "kube-scheduler had no node to ask us about"

    world.run_cycle()
    world.deliver_to_extender()
    world.scheduler.volumes.clear()
    world.advance(2, busy=False)

    assert "train-0" in world.woken()
    world.advance(2)
    assert len(world.running("train")) == 2


def test_an_ordinary_pod_that_fits_nowhere_does_not_block_its_queue(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_queue("q", capability=amounts(cpu=4))
    world.create_pod("stray", cpu=4, queue="q")
    world.scheduler.volumes["stray"] = frozenset()
    world.deliver()
    world.run_cycle()
    world.schedule_pod("stray")
    world.create_gang("train", 2, cpu=2, queue="q")
    world.deliver()

    world.advance(60)

    assert len(world.running("train")) == 2


def test_a_requested_cycle_runs(make_world: MakeWorld) -> None:
    world = make_world(n1=4)
    cycles = world.system.cycles

    world.request_cycle()
    world.advance(1)

    assert world.system.cycles > cycles


# ── offers without the reserved node ──────────────────────────────────────────────────────────


def test_a_stale_nomination_ends_no_reservation_of_a_gang(make_world: MakeWorld) -> None:
    world = make_world(SchedulerOptions(clears_nominations=False), n1=4, n2=4)
    world.create_gang("train", 2, cpu=4)
    world.deliver_to_extender()
    world.run_cycle()
    places = world.places("train")
    world.api.patch(uid("train-1"), nominated=places["train-0"])
    world.deliver_to_scheduler()

    world.schedule_pod("train-1")

    assert len(world.places("train")) == 2
    world.advance(3)
    assert len(world.running("train")) == 2


def test_offers_of_a_few_nodes_at_a_time_end_no_reservation_of_a_gang(
    make_world: MakeWorld,
) -> None:
    names = [f"n{number:02d}" for number in range(12)]
    world = make_world(SchedulerOptions(sample=3), **dict.fromkeys(names, 4))
    gangs = ("red", "green", "blue")
    for name in gangs:
        world.create_gang(name, 4, cpu=4)
    world.deliver_to_extender()
    world.run_cycle()
    assert all(len(world.places(name)) == 4 for name in gangs)
    world.deliver_to_scheduler()
    # Members of all gangs come mixed; none of them was ever nominated.
    for number in (3, 1, 0, 2):
        for name in gangs:
            world.schedule_pod(f"{name}-{number}")

    assert all(len(world.places(name)) == 4 for name in gangs)
    world.advance(5)
    assert all(len(world.running(name)) == 4 for name in gangs)


# ── ordinary pods beside gangs ────────────────────────────────────────────────────────────────


def test_two_ordinary_pods_being_bound_do_not_take_the_capacity_of_a_gang(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 3)
    world.deliver_to_extender()
    world.run_cycle()
    assert len(world.places("train")) == 3
    world.create_pod("a")
    world.create_pod("b")
    world.deliver()
    world.schedule_pod("a")
    world.schedule_pod("b")  # before the bind of the first has come

    world.send_binds()
    world.advance(5)

    assert len(world.running("train")) == 3
    assert len(world.running()) == 4


def test_a_plan_does_not_reserve_the_capacity_of_an_ordinary_pod_being_bound(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 4)
    world.time.advance(1)
    world.create_pod("web")
    world.deliver_to_scheduler()
    world.schedule_pod("web")  # the watch has not shown the gang yet
    world.deliver_to_extender()

    world.run_cycle()
    world.send_binds()
    world.advance(10)

    assert world.running() == {"web": "n1"} or len(world.running("train")) == 4


def test_ordinary_pods_are_admitted_while_a_gang_waits_for_gpus(
    make_world: MakeWorld,
) -> None:
    world = make_world(c1=8)
    world.create_node("g1", cpu=8, gpu=2)
    world.create_gang("old", 2, gpu=1)
    world.advance(2)
    world.create_gang("next", 2, gpu=1)
    world.advance(2)
    assert len(world.running("old")) == 2

    world.create_pod("web")
    world.deliver()
    world.schedule_pod("web")

    assert world.answers[-1][1], world.refusals["web"]


def test_ordinary_pods_are_admitted_in_a_queue_that_may_have_no_gpu(make_world: MakeWorld) -> None:
    world = make_world(c1=8)
    world.create_node("g1", cpu=8, gpu=2)
    world.create_queue("cpus", capability=amounts(cpu=8) + Resources({GPU: 0}))
    world.deliver()
    world.run_cycle()

    world.create_pod("web", queue="cpus")
    world.deliver()
    world.schedule_pod("web")

    assert world.answers[-1][1], world.refusals["web"]


# ── queues ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("only", ["n1", "n2"])
def test_filter_and_plan_do_not_use_the_same_remainder_of_a_ceiling(
    make_world: MakeWorld, only: str
) -> None:
    world = make_world(n1=4, n2=4)
    world.create_queue("q", capability=amounts(cpu=4))
    world.create_group("slow", 1, queue="q")
    world.create_group("quick", 1, queue="q")
    world.deliver()
    world.run_cycle()
    world.create_member("slow-0", "slow", cpu=4)
    world.deliver_to_extender()
    _take_a_snapshot(world)  # it sees only the slow one
    world.create_member("quick-0", "quick", cpu=4)
    world.scheduler.volumes["quick-0"] = frozenset({only})
    world.deliver_to_scheduler()

    world.schedule_pod("quick-0")
    world.finish_cycle()
    world.advance(5)

    assert len(world.running()) == 1


def test_filter_and_plan_do_not_use_the_same_remainder_of_a_parents_ceiling(
    make_world: MakeWorld,
) -> None:
    world = make_world(policy=TREE, n1=4, n2=4)
    world.create_queue("top", capability=amounts(cpu=4))
    world.create_queue("left", parent="top")
    world.create_queue("right", parent="top")
    world.deliver()
    world.run_cycle()
    world.create_gang("slow", 2, cpu=2, queue="left")
    world.deliver_to_extender()
    _take_a_snapshot(world)
    world.create_gang("quick", 2, cpu=2, queue="right")
    world.deliver()

    world.schedule_pod("quick-0")
    world.finish_cycle()
    world.advance(10)

    assert len(world.running()) == 2


def test_ordinary_pods_of_two_queues_leave_a_third_its_guarantee(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=10)
    _three_queues(world)
    for number in range(5):
        world.create_pod(f"x{number}", queue="q1")
        world.create_pod(f"y{number}", queue="q2")

    world.advance(5)

    assert len(world.running()) == 6


def test_gangs_of_two_queues_leave_a_third_its_guarantee(make_world: MakeWorld) -> None:
    world = make_world(n1=10)
    _three_queues(world)
    for number in range(5):
        world.create_gang(f"x{number}", 1, queue="q1")
        world.create_gang(f"y{number}", 1, queue="q2")
    world.deliver_to_extender()
    world.run_cycle()

    world.advance(5)

    assert len(world.running()) == 6


def test_a_gang_admitted_by_filter_leaves_another_queue_its_guarantee(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=10)
    _three_queues(world)
    world.create_gang("slow", 4, queue="q1")
    world.create_group("quick", 4, queue="q2")
    world.deliver_to_extender()
    _take_a_snapshot(world)
    for number in range(4):
        world.create_member(f"quick-{number}", "quick")
    world.deliver_to_scheduler()

    world.schedule_pod("quick-0")
    world.finish_cycle()
    world.advance(5)

    assert len(world.running()) == 4


def _take_a_snapshot(world: World) -> None:
    """Begin a cycle and stop after its snapshot. Its first stop is the step before."""
    world.begin_cycle()
    world.continue_cycle()


def _three_queues(world: World) -> None:
    world.create_queue("q1")
    world.create_queue("q2")
    world.create_queue("q3", guarantee=amounts(cpu=4))
    world.deliver()
    world.run_cycle()


# ── time ──────────────────────────────────────────────────────────────────────────────────────


def test_a_wall_clock_set_back_does_not_delay_a_gang_whose_reservation_expired(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 2)
    world.deliver_to_extender()
    world.run_cycle()
    world.advance(22, busy=False)  # kube-scheduler does not run, and the reservation expires
    assert not world.places("train")

    world.set_wall_clock(-3600)
    world.advance(30)

    assert len(world.running("train")) == 2


def test_a_wall_clock_set_back_does_not_delay_a_gang_that_did_not_assemble(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 2)
    world.scheduler.prebind_s["train-1"] = 40.0
    world.referee.ignored = frozenset({"place"})  # another test
    world.advance(38)  # the first bind was refused at its deadline
    assert not world.running("train")
    world.scheduler.prebind_s.clear()

    world.set_wall_clock(-3600)
    world.advance(40)

    assert len(world.running("train")) == 2


def test_a_member_busy_with_its_volumes_keeps_its_reservation_while_other_binds_wait(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 2)
    world.scheduler.prebind_s["train-1"] = 25.0

    world.advance(27)

    assert len(world.running("train")) == 2


def test_a_bind_after_its_reservation_expired_takes_no_reserved_capacity(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_queue("q", capability=amounts(cpu=1))
    world.deliver()
    world.run_cycle()
    world.create_gang("slow", 1, queue="q")
    world.scheduler.prebind_s["slow-0"] = 25.0
    world.advance(22)
    world.create_pod("quick", queue="q")

    world.advance(10)

    assert len(world.running()) == 1


def test_a_gang_that_is_deleted_while_it_is_planned_gets_no_reservation(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 2)
    world.deliver_to_extender()
    _take_a_snapshot(world)
    world.delete_gang("train")
    world.deliver_to_extender()

    world.finish_cycle()
    world.advance(6, busy=False)

    assert not world.places("train")


# ── what kube-scheduler finds wrong ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "clears", [True, False], ids=["cleared by kube-scheduler", "left to the extender"]
)
def test_a_gang_with_bad_volumes_excludes_no_node_for_others_of_its_size(
    make_world: MakeWorld, clears: bool
) -> None:
    # Where kube-scheduler leaves the nomination of a refused pod alone, it keeps the capacity free
    # for it from all others of its priority, until the nomination is removed.
    world = make_world(SchedulerOptions(clears_nominations=clears), n1=4, n2=4)
    _a_gang_that_fits_nowhere(world)
    world.advance(40)

    world.create_gang("good", 2, cpu=4)
    world.advance(60)

    assert len(world.running("good")) == 2


def test_the_rejected_nodes_of_a_gang_are_forgotten_with_it(make_world: MakeWorld) -> None:
    world = make_world(n1=4, n2=4)
    _a_gang_that_fits_nowhere(world)
    world.advance(40)
    world.delete_gang("bad")

    world.create_gang("good", 2, cpu=4)
    world.advance(10)

    assert len(world.running("good")) == 2


def _a_gang_that_fits_nowhere(world: World) -> None:
    world.referee.ignored = frozenset({"awake"})  # another test
    world.create_gang("bad", 2, cpu=4)
    for number in range(2):
        world.scheduler.volumes[f"bad-{number}"] = frozenset()


# ── nodes that change while binds wait ────────────────────────────────────────────────────────


def test_a_taint_is_noticed_before_the_bindings_are_sent(make_world: MakeWorld) -> None:
    world = make_world(n1=2, n2=2)
    node = _waiting_on(world)
    world.taint(node)
    world.deliver_to_extender()

    world.advance(10)

    assert node not in world.running("train").values()


def test_a_node_that_shrank_is_noticed_before_the_bindings_are_sent(make_world: MakeWorld) -> None:
    world = make_world(n1=2, n2=2)
    node = _waiting_on(world)
    world.shrink(node, cpu=1)
    world.deliver_to_extender()

    world.advance(10)

    assert node not in world.running("train").values()


def _waiting_on(world: World) -> str:
    """Let the first of two members wait and keep the second busy. Return the first's node."""
    world.create_gang("train", 2, cpu=2)
    world.scheduler.prebind_s["train-1"] = 5.0
    world.advance(1)
    (node,) = world.scheduler.calls.values()
    assert not world.running("train")
    return node


# ── found by the machine ──────────────────────────────────────────────────────────────────────


def test_a_cycle_counts_pods_known_only_from_filter(make_world: MakeWorld) -> None:
    world = make_world(n1=10)
    world.create_queue("q", capability=amounts(cpu=4))
    world.deliver()
    world.run_cycle()
    world.create_pod("a", queue="q", cpu=2)
    world.create_pod("b", queue="q", cpu=2)
    world.deliver_to_scheduler()
    world.schedule_pod("a")
    world.schedule_pod("b")

    world.run_cycle()  # the extender's watch has shown neither of them
    world.create_pod("c", queue="q", cpu=2)
    world.deliver_to_scheduler()
    world.schedule_pod("c")
    world.advance(5)

    assert len(world.running()) == 2


@pytest.mark.parametrize("ways", [FULL, DEAF])
def test_an_ordinary_pod_that_fits_nowhere_does_not_block_another(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=2)
    world.create_pod("bad")
    world.scheduler.volumes["bad"] = frozenset()
    world.time.advance(1)
    world.create_pod("a")
    world.create_pod("b")
    world.deliver_to_extender()
    world.run_cycle()  # which plans for the pods that come first
    world.deliver_to_scheduler()

    world.advance(60)

    assert world.running() == {"a": "n1", "b": "n1"}


def test_ordinary_pods_that_fit_the_plan_do_not_wait_for_the_periodic_cycle(
    make_world: MakeWorld,
) -> None:
    world = make_world(DEAF, n1=2)
    for name in ("a", "b", "c"):
        world.create_pod(name)
    world.deliver_to_extender()
    world.run_cycle()  # two of them fit, and nothing is left
    world.deliver_to_scheduler()

    world.advance(2)

    assert len(world.running()) == 2


def test_the_reservations_of_a_gang_whose_group_is_deleted_are_released(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 4)
    world.deliver()
    world.schedule_pod("train-0")  # reserves capacity for all
    world.delete_group("train")

    world.advance(35)

    assert not world.places("train")


def test_an_admitted_member_for_which_no_node_was_found_is_woken(
    make_world: MakeWorld,
) -> None:
    world = make_world(DEAF, n1=4)
    world.create_gang("train", 2)
    world.deliver()
    world.schedule_pod("train-0")
    world.restart_scheduler()
    world.scheduler.volumes["train-0"] = frozenset()  # not attached again yet
    world.schedule_pod("train-0")
    world.deliver_to_extender()
    world.scheduler.volumes.clear()

    world.advance(3, busy=False)
    world.advance(2)

    assert len(world.running("train")) == 2


def test_the_capacity_of_a_binding_without_an_answer_is_not_reserved_again(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=1)
    world.create_pod("a")
    world.create_pod("b")
    world.deliver()
    world.api.answers_at_once = False
    world.schedule_pod("a")
    world.send_binds()
    world.api_answers(mood="is silent")  # it is bound, and no watch has shown it
    world.schedule_pod("b")  # kube-scheduler got the failure of the bind

    world.send_binds()

    assert not world.api.bindings
    world.api.answers_at_once = True
    world.advance(5)
    assert world.running() == {"a": "n1"}


def test_a_bind_after_its_reservation_expired_counts_in_its_queue_at_once(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.create_queue("q", capability=amounts(cpu=2))
    world.deliver()
    world.run_cycle()
    world.create_pod("slow", queue="q")
    world.scheduler.prebind_s["slow"] = 25.0
    world.advance(24)
    world.time.advance(2)
    world.send_binds()
    world.create_pod("quick", queue="q", cpu=2)
    world.deliver_to_scheduler()

    world.schedule_pod("quick")
    world.advance(5)

    assert world.running() == {"slow": "n1"}


# ── exempt pods ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "exempt",
    [{"exempt": True}, {"priority_class": "system-node-critical"}],
    ids=["namespace", "critical"],
)
def test_an_exempt_pod_uses_the_backfill_reservation_of_a_starving_gang(
    make_world: MakeWorld, exempt: dict[str, object]
) -> None:
    world = make_world(n1=4, n2=4)
    world.create_pod("old", cpu=2)
    world.advance(1)
    world.create_gang("train", 2, cpu=4)
    world.advance(900)  # long enough for a backfill reservation
    world.create_pod("web", cpu=2)
    world.advance(5)
    assert not world.running("train")
    assert not world.running("web")

    world.create_pod("agent", cpu=2, **exempt)
    world.advance(5)

    assert world.running("agent")


# ── kube-scheduler that does not run ──────────────────────────────────────────────────────────


def kill_scheduler(world: World) -> None:
    """Let kube-scheduler process nothing any more."""
    world.scheduler.schedule = lambda choice=0: False  # type: ignore[method-assign]


def start_scheduler(world: World) -> None:
    del world.scheduler.schedule  # type: ignore[method-assign]
    world.restart_scheduler()


@pytest.mark.parametrize("ways", [FULL, DEAF, SchedulerOptions(clears_nominations=False)], ids=str)
def test_a_dead_scheduler_is_noticed_within_a_minute_while_gangs_wait(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    world.advance(30)
    assert (world.system.liveness, world.system.overdue) == (Liveness.HEARD, 0)

    kill_scheduler(world)
    world.advance(60)

    assert world.system.liveness is Liveness.SILENT
    assert world.system.overdue > 0


@pytest.mark.parametrize("ways", [FULL, DEAF, SchedulerOptions(clears_nominations=False)], ids=str)
def test_gangs_start_within_seconds_when_a_dead_scheduler_is_back(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=4, n2=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 4, cpu=2)
    world.advance(10)
    kill_scheduler(world)
    world.advance(120)
    world.delete_pod("old")
    world.advance(120)
    assert not world.places("train"), "no scheduler calls about it"
    assert world.system.reason(key("train")) is Reason.SCHEDULER_SILENT

    start_scheduler(world)
    world.advance(5)

    assert len(world.running("train")) == 4
    assert (world.system.liveness, world.system.overdue) == (Liveness.HEARD, 0)


@pytest.mark.parametrize("ways", [FULL, DEAF, SchedulerOptions(clears_nominations=False)], ids=str)
def test_a_full_and_quiet_cluster_is_not_taken_for_a_dead_scheduler(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    world.create_gang("large", 4, cpu=4)
    for _ in range(60):
        world.advance(10)
        assert (world.system.liveness, world.system.overdue) == (Liveness.HEARD, 0)


def test_an_idle_cluster_is_not_taken_for_a_dead_scheduler(make_world: MakeWorld) -> None:
    world = make_world(n1=4)
    world.create_gang("train", 2, cpu=2)
    world.advance(5)
    woken = len(world.api.wakes)
    world.advance(600)

    assert (world.system.liveness, world.system.overdue) == (Liveness.HEARD, 0)
    assert len(world.api.wakes) == woken, "no pod waits, so none is probed"


@pytest.mark.parametrize("ways", [FULL, DEAF, SchedulerOptions(clears_nominations=False)], ids=str)
def test_a_scheduler_without_calls_in_a_full_cluster_is_heard_when_it_is_probed(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    for _ in range(200):
        world.advance(1)
        assert (world.system.liveness, world.system.overdue) == (Liveness.HEARD, 0)

    assert world.api.wakes


@pytest.mark.parametrize("ways", [FULL, DEAF, SchedulerOptions(clears_nominations=False)], ids=str)
def test_waiting_gangs_start_at_once_after_a_restart_of_the_extender(
    make_world: MakeWorld, ways: SchedulerOptions
) -> None:
    world = make_world(ways, n1=4)
    world.create_pod("old", cpu=4)
    world.advance(1)
    world.create_gang("train", 2, cpu=2)
    world.advance(10)
    world.system.forget_scheduler()
    world.advance(1)
    world.delete_pod("old")

    world.advance(3)

    assert len(world.running("train")) == 2


def test_a_gang_of_a_scheduler_that_does_not_exist_takes_no_capacity_from_others(
    make_world: MakeWorld,
) -> None:
    world = make_world(n1=4)
    world.system.forget_scheduler()
    kill_scheduler(world)
    world.create_gang("stray", 2, cpu=2)
    for _ in range(120):
        world.advance(1)
        assert not world.places("stray")

    assert world.system.reason(key("stray")) is Reason.SCHEDULER_SILENT
    assert not world.system.reservations()


# ── partial gangs ─────────────────────────────────────────────────────────────────────────────


def test_a_partial_gang_of_an_earlier_term_is_completed_before_waiting_gangs(
    make_world: MakeWorld,
) -> None:
    """The leader died between two bindings. The next one finds one member of three on a node."""
    world = make_world()
    world.create_gang("older", 2, cpu=1)
    world.create_group("torn", 3)
    world.create_member("torn-0", "torn", cpu=2, node="n1", status=Status.RUNNING)
    world.create_member("torn-1", "torn")
    world.create_member("torn-2", "torn")
    world.create_node("n1", cpu=4)
    world.deliver_to_extender()
    world.run_cycle()  # no call is answered before the first plan

    world.advance(3)

    assert len(world.running("torn")) == 3
    assert not world.running("older")


def test_the_first_pod_to_ask_a_new_leader_takes_no_capacity_of_a_partial_gang(
    make_world: MakeWorld,
) -> None:
    """No call came yet, so a gang that asks would be admitted as an arriving gang."""
    world = make_world(n1=4)
    world.create_group("torn", 3)
    world.create_member("torn-0", "torn", cpu=2, node="n1", status=Status.RUNNING)
    world.create_member("torn-1", "torn")
    world.create_member("torn-2", "torn")
    world.create_gang("other", 2)
    world.system.forget_scheduler()
    world.deliver()
    world.run_cycle()

    world.schedule_pod("other-0")
    assert not world.places("other")
    world.advance(3)

    assert len(world.running("torn")) == 3
    assert not world.running("other")


@pytest.mark.parametrize("when", ["before filter", "after filter"])
def test_a_deleted_member_that_kube_scheduler_still_sees_completes_no_gang(
    make_world: MakeWorld, when: str
) -> None:
    """It was deleted, and the extender's watch showed that first. Its binding would find no pod."""
    world = make_world(n1=4, n2=4)
    world.create_gang("g", 2, cpu=1)
    world.deliver_to_scheduler()
    world.deliver_to_extender()
    if when == "after filter":
        world.schedule_pod("g-0")
    world.delete_pod("g-0")
    world.deliver_to_extender()

    if when == "before filter":
        world.schedule_pod("g-0")
        assert world.answers[-1] == ("g-0", ())
    world.schedule_pod("g-1")
    world.send_binds()
    world.advance(60)

    assert not world.running("g")
