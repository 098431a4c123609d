"""A pod that filter did not admit was not sent by kube-scheduler, and is not bound."""

from __future__ import annotations

import pytest

from extender.model.gang import GangKey, Membership
from extender.model.pod import PodUid
from extender.permit.messages import Bind, Cause, MarkWaiting, Release
from extender.reservations.wakeups import FilterResults
from tests.doubles import Call

from .test_cache_facts import GANG, MEMBER, SINGLE, Scene, pod
from .world import a_gang_of


def test_a_reservation_of_the_plan_admits_no_member_that_filter_did_not_admit() -> None:
    driver = a_gang_of(2)
    driver.world.not_filtered.add(PodUid("w-0"))

    instructions = driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.NOT_FILTERED
    assert not any(isinstance(each, Bind | MarkWaiting) for each in instructions)


def test_a_call_does_not_end_the_reservation_of_a_gang() -> None:
    driver = a_gang_of(2)
    driver.world.not_filtered.add(PodUid("w-0"))

    assert not any(isinstance(each, Release) for each in driver.arrives("w-0"))
    driver.world.not_filtered.clear()
    driver.arrives("w-0")
    assert driver.machine.waiting_binds == 1


def test_filter_must_have_admitted_a_surplus_member_of_a_running_gang_too() -> None:
    driver = a_gang_of(2)
    for uid in ("w-0", "w-1"):
        driver.world.add_pod(uid, node="n-1")
    driver.world.add_pod("w-2")
    driver.world.not_filtered.add(PodUid("w-2"))
    driver.arrives("w-2")

    assert driver.cause_of(1) is Cause.NOT_FILTERED


@pytest.fixture
def scene() -> Scene:
    """A gang of two with reservations of the plan."""
    scene = Scene()
    scene.show_group(min_member=2)
    for uid in ("w-0", "w-1"):
        scene.show(pod(uid))
        scene.cluster.reservations.reserve(pod(uid), GANG, "n-1", scene.clock.monotonic())
    return scene


def test_a_refused_call_leaves_the_reservation_in_the_cache(scene: Scene) -> None:
    assert Call(scene.runner, "w-0").result(0) == Cause.NOT_FILTERED.text(GANG)
    assert scene.cluster.reservations.of(PodUid("w-0")) is not None


def test_an_admitted_pod_is_accepted_after_the_watch_showed_it(scene: Scene) -> None:
    scene.ledger.passed(pod("w-0"), MEMBER)
    scene.show(pod("w-0", nominated="n-1"))

    assert not Call(scene.runner, "w-0").done()


def test_a_pod_that_filter_refused_afterwards_must_be_admitted_again(scene: Scene) -> None:
    scene.ledger.passed(pod("w-0"), MEMBER)
    scene.ledger.refused(PodUid("w-0"))

    assert Call(scene.runner, "w-0").result(0) == Cause.NOT_FILTERED.text(GANG)


def test_filter_must_have_admitted_an_ordinary_pod_too(scene: Scene) -> None:
    scene.show(pod("other"), SINGLE)

    assert Call(scene.runner, "other").result(0).endswith(Cause.NOT_FILTERED.text())
    assert not scene.binder.batches


def test_a_gang_that_kube_scheduler_assembles_itself_is_accepted_by_a_new_leader(
    scene: Scene,
) -> None:
    native = Membership(key=GangKey("team/n-0"), named=False, native=True)
    scene.show(pod("n-0"), native)
    Call(scene.runner, "n-0")

    assert scene.binder.batches == [["n-0"]]


def test_the_filter_result_is_forgotten_with_the_pod(scene: Scene) -> None:
    answers = scene.ledger.filter_results
    answers.passed(pod("w-0"), MEMBER)
    answers.passed(pod("w-1"), MEMBER)
    answers.seen(PodUid("w-0"), None)
    answers.seen(PodUid("w-1"), pod("w-1", node="n-1"))

    assert not answers.has_passed(PodUid("w-0"))
    assert not answers.has_passed(PodUid("w-1"))


def test_of_many_filter_results_the_oldest_are_forgotten() -> None:
    answers = FilterResults(remembered=1)
    for number in range(12):
        answers.passed(pod(f"w-{number}"), MEMBER)

    assert [answers.has_passed(PodUid(f"w-{number}")) for number in (0, 1, 2, 11)] == [
        False,
        False,
        True,
        True,
    ]
