"""A member that kube-scheduler may evict does not count until the result of the eviction is seen.

It evicts in the background. A gang that started with such a member would lose it at once, and stand
below its minimum.
"""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind
from extender.evictions.preemption import SHOWN_S
from extender.model.gang import GangKey, Membership
from extender.model.pod import PodUid, Status
from extender.permit.messages import Cause
from extender.ports import BindOutcome, BindResult
from tests.doubles import Call

from .test_cache_facts import GANG, Scene, gang_of_two, pod
from .world import a_gang_of, a_gang_with_a_surplus_member, bound_uids

BOSS = Membership(key=GangKey("team/boss"), named=False)


def may_evict(scene: Scene, **victims: str) -> None:
    """Let an urgent pod ask for the *victims* on nodes, and allow their eviction."""
    chosen = {node.replace("_", "-"): [uid] for node, uid in victims.items()}
    assert scene.gate.preempt(pod("boss", priority=10), BOSS, chosen) == chosen


@pytest.fixture
def scene() -> Scene:
    return gang_of_two()


@pytest.mark.parametrize("waiting_binds", [0, 1, 2])
def test_a_gang_does_not_start_with_a_member_that_may_be_evicted(
    scene: Scene, waiting_binds: int
) -> None:
    """It may be evicted before its bind, before the last one comes, or since the live read."""
    calls = []
    for number in range(3):
        if number == waiting_binds:
            may_evict(scene, n_1="w-0")
        if number < 2:
            calls.append(Call(scene.runner, f"w-{number}"))
    if scene.reader.reads:
        scene.reader.confirm()

    assert scene.binder.batches == []
    assert calls[0].result(0) == Cause.POD_PREEMPTED.text(GANG)
    assert not calls[1].done(), "the other waits for a replacement"


@pytest.mark.parametrize("is_elsewhere", [True, False], ids=["elsewhere", "not seen for long"])
def test_a_gang_starts_when_the_allowed_eviction_does_not_affect_it(
    scene: Scene, is_elsewhere: bool
) -> None:
    scene.show(pod("other", node="n-2", status=Status.RUNNING), BOSS)
    may_evict(scene, n_1="w-0", n_2="other")
    if is_elsewhere:
        scene.show(pod("boss", nominated="n-2"), BOSS)
    else:
        scene.clock.advance(SHOWN_S + 0.1)
    scene.send_gang("w-0", "w-1")

    assert scene.binder.batches == [["w-0", "w-1"]]


def test_a_surplus_member_does_not_follow_members_that_may_all_be_evicted() -> None:
    """The watch showed them first. The surplus member would run alone."""
    driver = a_gang_with_a_surplus_member()
    driver.settled("w-0")
    for uid in ("w-0", "w-1"):
        driver.world.change_pod(uid, node="n-1", status=Status.RUNNING)
        driver.world.flight.pop(PodUid(uid))
        driver.world.may_be_evicted.add(PodUid(uid))

    assert bound_uids(driver.settled("w-1")) == []
    assert driver.cause_of(3) is Cause.GANG_PREEMPTED


def test_a_late_member_of_a_running_gang_that_may_be_evicted_is_not_bound() -> None:
    driver = a_gang_of(3, min_member=2)
    driver.commits(driver.arrives("w-0", "w-1"))
    for uid in ("w-0", "w-1"):
        driver.settled(uid)
    driver.world.may_be_evicted.add(PodUid("w-2"))

    assert bound_uids(driver.arrives("w-2")) == []
    assert driver.cause_of(3) is Cause.POD_PREEMPTED


@pytest.fixture
def runs(scene: Scene) -> Scene:
    """A gang that runs completely, and a surplus member that filter has admitted."""
    for uid in ("w-0", "w-1"):
        scene.show(pod(uid, node="n-1", status=Status.RUNNING))
    scene.show(pod("w-2"))
    scene.reserve("w-2")
    return scene


def test_no_member_joins_a_gang_that_may_be_evicted_as_a_whole(runs: Scene) -> None:
    chosen = {"n-1": ["w-0", "w-1"]}
    assert runs.gate.preempt(pod("boss", priority=10), BOSS, chosen) == chosen

    assert Call(runs.runner, "w-2").result(0) == Cause.GANG_PREEMPTED.text(GANG)
    assert runs.binder.batches == []


def test_a_gang_whose_running_members_may_be_evicted_since_the_live_read_is_not_completed(
    runs: Scene,
) -> None:
    runs.show_group(min_member=3)
    last = Call(runs.runner, "w-2")
    runs.gate.preempt(pod("boss", priority=10), BOSS, {"n-1": ["w-0", "w-1"]})
    runs.reader.confirm()

    assert last.result(0) == Cause.GANG_PREEMPTED.text(GANG)
    assert runs.binder.batches == []


def test_a_failed_member_does_not_complete_a_partial_gang_that_may_be_evicted(
    scene: Scene,
) -> None:
    scene.show_group(min_member=3)
    scene.show(pod("w-2"))
    scene.reserve("w-2")
    scene.send_gang("w-0", "w-1", "w-2")
    for uid in ("w-0", "w-1"):
        scene.binder.say(uid)
        scene.show(pod(uid, node="n-1", status=Status.RUNNING))
    scene.binder.say("w-2", BindOutcome(BindResult.FAILED, "refused"))
    chosen = {"n-1": ["w-0", "w-1"]}
    assert scene.gate.preempt(pod("boss", priority=10), BOSS, chosen) == chosen

    assert Call(scene.runner, "w-2").result(0) == Cause.GANG_PREEMPTED.text(GANG)
    assert scene.binder.batches == [["w-0", "w-1", "w-2"]]


@pytest.mark.parametrize("nodes", [("n-1",), ("n-1", "n-2")])
def test_a_gang_without_running_members_starts_over_whatever_may_be_evicted(
    runs: Scene, nodes: tuple[str, ...]
) -> None:
    runs.show(pod("other", node="n-2", status=Status.RUNNING), BOSS)
    chosen = {"n-1": ["w-0", "w-1"], "n-2": ["other"]}
    runs.gate.preempt(pod("boss", priority=10), BOSS, {node: chosen[node] for node in nodes})
    for uid in ("w-0", "w-1"):
        runs.cluster.apply(Delete(Kind.POD, uid))
    runs.show(pod("w-3"))
    runs.reserve("w-3")
    runs.send_gang("w-2", "w-3")

    assert runs.binder.batches == [["w-2", "w-3"]]


def test_a_member_joins_a_gang_when_the_allowed_eviction_was_not_seen_for_long(
    runs: Scene,
) -> None:
    runs.gate.preempt(pod("boss", priority=10), BOSS, {"n-1": ["w-0", "w-1"]})
    runs.clock.advance(SHOWN_S + 0.1)
    Call(runs.runner, "w-2")

    assert runs.binder.batches == [["w-2"]]


def test_no_member_joins_a_gang_with_pending_evictions(runs: Scene) -> None:
    runs.cluster.pending_evictions.replace({PodUid("w-0"): GANG, PodUid("w-1"): GANG})
    Call(runs.runner, "w-2")

    assert runs.binder.batches == []


def test_a_gang_does_not_start_over_with_a_pending_eviction(runs: Scene) -> None:
    runs.show(pod("w-0", node="n-1", status=Status.RELEASING))
    runs.cluster.pending_evictions.replace({PodUid("w-1"): GANG})
    Call(runs.runner, "w-2")

    assert (runs.reader.reads, runs.binder.batches) == ([], [])


def test_a_member_joins_a_gang_of_which_enough_members_stay(runs: Scene) -> None:
    runs.show(pod("w-3", node="n-1", status=Status.RUNNING))
    runs.cluster.pending_evictions.replace({PodUid("w-0"): GANG})
    Call(runs.runner, "w-2")

    assert runs.binder.batches == [["w-2"]]


def test_an_allowed_eviction_is_counted_for_as_long_as_kube_scheduler_may_use_it(
    runs: Scene,
) -> None:
    runs.show(pod("w-3", node="n-1", status=Status.RUNNING))
    may_evict(runs, n_1="w-0")
    granted = runs.cluster.pending_evictions.granted

    assert granted(GANG, None, frozenset()) == 1
    assert granted(GANG, "driver", frozenset()) == 0
    assert granted(GANG, None, {PodUid("w-0")}) == 0, "a pod evicted for both counts once"
    runs.clock.advance(SHOWN_S + 0.1)
    assert granted(GANG, None, frozenset()) == 0


@pytest.mark.parametrize(("nominated", "leaving"), [("n-1", 1), ("n-2", 0)])
def test_of_several_nodes_only_allowed_evictions_on_the_nominated_one_are_counted(
    runs: Scene, nominated: str, leaving: int
) -> None:
    runs.show(pod("w-3", node="n-1", status=Status.RUNNING))
    runs.show(pod("other", node="n-2", status=Status.RUNNING), BOSS)
    may_evict(runs, n_1="w-0", n_2="other")
    runs.show(pod("boss", nominated=nominated), BOSS)
    runs.clock.advance(SHOWN_S + 0.1)

    assert runs.cluster.pending_evictions.granted(GANG, None, frozenset()) == leaving
