"""What happens to a bind call the moment it comes in.

A call that only relays kube-scheduler's own decision is always sent.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.pod import PodUid, Status
from extender.permit.messages import (
    Answer,
    Arrived,
    Bind,
    CallId,
    Cause,
    Closed,
    Instruction,
    MarkWaiting,
    Opened,
    Release,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder, Whose

from .world import GANG, MachineDriver, World, a_gang_of, bound_uids, the


def test_a_pod_of_no_gang_is_bound_at_once():
    world = World()
    world.add_pod("single", gang=None, reserved=False)

    order = BindOrder(uid=PodUid("single"), namespace="team", name="single", node="n-1")
    driver = MachineDriver(world)
    assert driver.arrives("single") == [Bind((order,), until=driver.now + driver.limits.answer_s)]


def test_the_bind_of_an_early_member_waits():
    driver = a_gang_of(2)

    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_member_of_a_running_gang_is_bound_at_once():
    driver = a_gang_of(3, min_member=2)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.world.change_pod("w-1", status=Status.BOUND, node="n-2")

    assert bound_uids(driver.arrives("w-2")) == ["w-2"]


def test_a_replacement_counts_the_members_that_run():
    driver = a_gang_of(3)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.world.change_pod("w-1", status=Status.RUNNING, node="n-1")

    assert bound_uids(driver.commits(driver.arrives("w-2"))) == ["w-2"]


def test_a_bind_of_a_pod_that_is_already_on_its_node_succeeds():
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.arrives("w-0", node="n-1")

    assert driver.error_of(1) == ""


def test_a_planned_node_is_not_mistaken_for_a_real_one():
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", status=Status.BINDING, node="n-1")

    assert driver.arrives("w-0", node="n-1") == [MarkWaiting(PodUid("w-0"), "n-1")]


@pytest.mark.parametrize(
    ("cause", "change"),
    [
        (Cause.POD_ELSEWHERE, {"status": Status.RUNNING, "node": "n-2"}),
        (Cause.POD_GONE, {"status": Status.RELEASING, "node": ""}),
        (Cause.POD_GONE, {"status": Status.RELEASING, "node": "n-1"}),
    ],
    ids=["on another node", "being deleted", "being deleted on that very node"],
)
def test_a_pod_that_cannot_be_bound_is_refused(cause, change):
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", **change)
    driver.arrives("w-0", node="n-1")

    assert driver.cause_of(1) is cause


def test_an_unknown_pod_is_refused_and_its_capacity_released():
    driver = a_gang_of(2)
    driver.world.remove_pod("w-0")

    text = Cause.POD_GONE.text()
    assert driver.arrives("w-0") == [Answer(1, text, Cause.POD_GONE, 0.0), Release(PodUid("w-0"))]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda world: world.groups.clear(), Cause.GROUP_GONE),
        (
            lambda world: world.groups.update({GANG: replace(world.groups[GANG], problem="no")}),
            Cause.GROUP_UNUSABLE,
        ),
        (lambda world: world.flight.clear(), Cause.NO_RESERVATION),
    ],
    ids=["no PodGroup", "unusable PodGroup", "no reservation"],
)
def test_a_member_that_may_not_wait_is_refused(change, cause):
    driver = a_gang_of(2)
    change(driver.world)
    driver.arrives("w-0")

    assert driver.cause_of(1) is cause


def test_a_full_table_refuses_instead_of_growing():
    driver = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    driver.arrives("w-0", "w-1")

    assert driver.cause_of(2) is Cause.TABLE_FULL
    assert driver.machine.waiting_binds == 1


def test_a_full_table_accepts_a_repeated_call_of_a_waiting_pod():
    driver = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    driver.arrives("w-0")

    assert driver.arrives("w-0", node="n-2")[-1] == MarkWaiting(PodUid("w-0"), "n-2")


def test_a_closed_state_machine_refuses_until_it_opens():
    driver = a_gang_of(2)
    driver.tell(Closed(Cause.LEASE_LOST))
    driver.arrives("w-0")
    driver.tell(Opened())
    driver.world.add_pod("w-0")
    driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.LEASE_LOST
    assert driver.cause_of(2) is None


def test_every_cause_has_one_constant_sentence_for_kube_scheduler():
    texts = [cause.text(GANG) for cause in Cause]

    assert len(set(texts)) == len(texts)
    assert not any(character in "%0123456789" for text in texts for character in text)


RELAYED = pytest.mark.parametrize("whose", [Whose.SCHEDULERS, Whose.UNKNOWN])


def bind_order(uid: str, whose: Whose) -> BindOrder:
    return BindOrder(uid=PodUid(uid), namespace="team", name=uid, node="n-1", whose=whose)


def relay(driver: MachineDriver, uid: str, whose: Whose) -> list[Instruction]:
    return driver.tell(Arrived(CallId(100), bind_order(uid, whose)))


@RELAYED
@pytest.mark.parametrize("cause", [Cause.LEASE_LOST, Cause.SHUT_DOWN])
def test_relayed_binds_are_sent_while_the_state_machine_is_closed(
    whose: Whose, cause: Cause
) -> None:
    driver = a_gang_of(2)
    driver.tell(Closed(cause))

    (sent,) = the(Bind, relay(driver, "agent", whose)).orders
    assert (sent.name, sent.whose) == ("agent", whose)


@RELAYED
def test_relayed_binds_are_sent_for_unknown_pods(whose: Whose) -> None:
    assert the(Bind, relay(a_gang_of(2), "never-seen", whose)).orders


def test_relayed_binds_are_sent_while_the_table_is_full() -> None:
    driver = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    driver.arrives("w-0")

    order = bind_order("agent", Whose.SCHEDULERS)
    assert the(Bind, list(driver.machine.react(Arrived(CallId(100), order), driver.now))).orders


def test_a_repeated_relayed_call_waits_for_the_outcome_of_the_first() -> None:
    driver = a_gang_of(2)
    relay(driver, "agent", Whose.SCHEDULERS)

    assert driver.tell(Arrived(CallId(101), bind_order("agent", Whose.SCHEDULERS))) == []
    driver.settled("agent")
    assert {driver.answers[CallId(number)].error for number in (100, 101)} == {""}
