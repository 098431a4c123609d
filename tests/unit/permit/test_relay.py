"""Binds that relay kube-scheduler's own decision are always sent."""

from __future__ import annotations

import pytest

from extender.model.pod import PodUid
from extender.permit.messages import Arrived, Bind, CallId, Cause, Closed, Instruction
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder, Whose

from .world import MachineDriver, a_gang_of, the

RELAYED = pytest.mark.parametrize("whose", [Whose.SCHEDULERS, Whose.UNKNOWN])


def relay(driver: MachineDriver, uid: str, whose: Whose) -> list[Instruction]:
    order = BindOrder(uid=PodUid(uid), namespace="team", name=uid, node="n-1", whose=whose)
    return driver.tell(Arrived(CallId(100), order))


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
    order = BindOrder(
        uid=PodUid("agent"), namespace="team", name="agent", node="n-1", whose=Whose.SCHEDULERS
    )

    assert the(Bind, list(driver.machine.react(Arrived(CallId(100), order), driver.now))).orders


def test_a_repeated_relayed_call_waits_for_the_outcome_of_the_first() -> None:
    driver = a_gang_of(2)
    relay(driver, "agent", Whose.SCHEDULERS)
    order = BindOrder(
        uid=PodUid("agent"), namespace="team", name="agent", node="n-1", whose=Whose.SCHEDULERS
    )

    assert driver.tell(Arrived(CallId(101), order)) == []
    driver.settled("agent")
    assert {driver.answers[CallId(number)].error for number in (100, 101)} == {""}
