"""Gangs of thousands start completely or are refused completely.

Fifty members at 2.5 binds a second are the same to the state machine as 5,000 at 250.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.permit.messages import BackOff, Bind, Cause
from extender.permit.timeouts import Timeouts

from .world import GANG, MachineDriver, World, a_gang_of, bound_uids, the


@pytest.mark.parametrize("members", [2_501, 10_000])
def test_a_gang_that_is_too_large_for_the_timeout_is_refused_at_its_first_call(members):
    driver = a_gang_of(1, min_member=members)
    out = driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.TOO_LARGE
    assert the(BackOff, out).gang == GANG
    assert driver.machine.waiting_binds == 0


@pytest.mark.parametrize(("members", "timeout_s"), [(25, 45), (50, 60), (100, 90)])
def test_a_large_gang_with_a_long_enough_timeout_is_sent_whole(members, timeout_s):
    limits = replace(Timeouts.within(hold_s=30, bind_timeout_s=timeout_s), binds_per_s=2.5)
    driver = a_gang_of(members, limits=limits)
    for index in range(members):
        driver.now = 100.0 + 30 * index / members  # the last one comes just before the deadline
        out = driver.arrives(f"w-{index}")
    bind = the(Bind, driver.commits(out))

    assert len(bind.orders) == members
    assert bind.until - driver.now >= limits.commit_needs_s(members)
    assert bind.until == pytest.approx(100.0 + timeout_s - limits.margin_s)


def test_a_gang_that_assembles_early_has_all_of_kube_schedulers_timeout():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.passes(1)
    bind = the(Bind, driver.commits(driver.arrives("w-1")))

    assert bind.until - driver.now == driver.limits.bind_timeout_s - driver.limits.margin_s - 1


def test_needed_members_are_sent_before_surplus_members():
    driver = a_gang_of(4, min_member=2)
    driver.world.add_group(3, roles={"chief": 1})
    driver.world.add_pod("chief", role="chief")
    for index in range(3):
        out = driver.arrives(f"w-{index}")
    assert not out[1:], "its chief is not here"
    verify = driver.arrives("chief")
    driver.arrives("w-3")
    assert bound_uids(driver.commits(verify)) == ["chief", "w-0", "w-1"]
    driver.settled("chief", "w-0")

    assert bound_uids(driver.settled("w-1")) == ["w-2", "w-3"]


def test_surplus_members_do_not_wait_for_members_that_already_run():
    world: World = a_gang_of(0).world
    world.add_group(1, roles={"chief": 1})
    driver = MachineDriver(world)
    for name in ("w-0", "w-1"):
        world.add_pod(name)
        driver.arrives(name)
    world.add_pod("chief", role="chief")
    assert bound_uids(driver.commits(driver.arrives("chief"))) == ["chief"]

    assert bound_uids(driver.settled("chief")) == ["w-0", "w-1"]


def test_a_waiting_bind_of_a_gang_that_already_runs_is_sent():
    driver = a_gang_of(3, min_member=2)
    verify = driver.arrives("w-0", "w-1")
    for name in ("w-3", "w-4"):
        driver.world.add_pod(name, node="n-2")

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]
