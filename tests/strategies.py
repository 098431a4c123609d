"""Hypothesis profiles, and strategies for clusters small enough to reason about.

A normal run draws the same small sample every time, so a failure repeats. A nightly run
(`HYPOTHESIS_PROFILE=nightly`) draws many new cases and prints how to repeat a failing one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st

from extender.model.gang import Gang
from extender.model.memo import Memo
from extender.model.node import Node
from extender.model.pod import Status
from extender.model.queue import Queue
from extender.model.snapshot import Snapshot
from extender.planner.plugins.proportion import Bounds
from tests.builders import amounts, gang, node, pod, queue, shape, snapshot

#: Profile -> the factor for the number of cases that a test asks for.
SHARES = {"landing": 0.2, "nightly": 5.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "landing")
_common: dict[str, Any] = {
    "deadline": None,  # a busy machine is no fault
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("landing", max_examples=20, derandomize=True, database=None, **_common)
settings.register_profile("nightly", max_examples=500, **_common)
settings.load_profile(PROFILE)


def examples(full: int) -> int:
    """Scale a number of generated cases: 150 is 30 in a normal run and 750 in a nightly one."""
    return max(5, round(full * SHARES[PROFILE]))


QUEUES = ("default", "q1", "q2", "q3")


@st.composite
def bounds(draw: st.DrawFn, most: int = 6) -> list[Bounds]:
    """Draw the bounds of several queues on one resource."""
    count = draw(st.integers(1, most))
    return [
        Bounds(
            name=f"q{number}",
            weight=draw(st.integers(0, 5)),
            floor=draw(st.integers(0, 30)),
            ceiling=draw(st.integers(0, 200)),
        )
        for number in range(count)
    ]


@st.composite
def node_lists(draw: st.DrawFn, most: int = 5) -> list[Node]:
    """Draw a few nodes, some small, some tainted."""
    count = draw(st.integers(1, most))
    return [
        node(
            f"n{number}",
            cpu=draw(st.integers(1, 8)),
            memory=draw(st.integers(1, 16)),
            pods=draw(st.sampled_from([3, 10, 110])),
            taints=draw(st.sampled_from([(), (), (), ("dedicated=x",)])),
            unschedulable=draw(st.sampled_from([False, False, False, True])),
        )
        for number in range(count)
    ]


@st.composite
def queue_lists(draw: st.DrawFn) -> list[Queue]:
    """Draw up to three queues besides the default one."""
    count = draw(st.integers(0, 3))
    return [
        queue(
            f"q{number}",
            weight=draw(st.integers(1, 4)),
            priority=draw(st.sampled_from([0, 0, 0, 1])),
            capability=draw(st.sampled_from([amounts(), amounts(), amounts(cpu=6)])),
            guarantee=draw(st.sampled_from([amounts(), amounts(), amounts(cpu=2)])),
            reclaimable=draw(st.sampled_from([True, True, False])),
        )
        for number in range(1, count + 1)
    ]


@st.composite
def gangs(draw: st.DrawFn, name: str, members: list[Node], queues: list[str]) -> Gang:
    """Draw a gang; some members may name a node, and `settle` decides whether they run."""
    size = draw(st.integers(1, 5))
    kind = shape(cpu=draw(st.sampled_from([0, 0.5, 1, 2, 3])), memory=draw(st.integers(0, 4)))
    runs = draw(st.booleans())
    first = draw(st.integers(0, len(members) - 1))
    step = draw(st.integers(0, 2))
    stubborn = draw(st.integers(-12, size - 1))
    gated = draw(st.integers(-12, size - 1)) if not runs else -1
    roles = draw(st.sampled_from([("",), ("",), ("ps", "worker")]))
    about: dict[str, Any] = {
        "priority": draw(st.sampled_from([0, 0, 0, 5, 10])),
        "created": float(draw(st.integers(0, 3))),
    }
    pods = [
        pod(
            f"{name}-{number}",
            kind,
            on=members[(first + step * number) % len(members)].name if runs else "",
            preemptable=number != stubborn,
            gated=number == gated,
            role=roles[number % len(roles)],
            **about,
        )
        for number in range(size)
    ]
    return gang(
        f"a/{name}",
        pods=pods,
        on=["x"] if runs else [],
        min_member=draw(st.integers(1, size)),
        queue=draw(st.sampled_from(["default", *queues])),
        **about,
    )


@st.composite
def snapshots(draw: st.DrawFn, most_gangs: int = 6) -> Snapshot:
    """Draw a possible state of a cluster: no node is overcommitted, running gangs are complete.

    Half of the clusters are old, so that capacity is reserved for waiting gangs.
    """
    members = draw(node_lists())
    queues = draw(queue_lists())
    names = [each.name for each in queues]
    count = draw(st.integers(1, most_gangs))
    found = [draw(gangs(f"g{number}", members, names)) for number in range(count)]
    return settle(members, found, queues, now=draw(st.sampled_from([10.0, 1_000.0])))


def settle(
    members: list[Node], found: list[Gang], queues: list[Queue], *, now: float = 1_000.0
) -> Snapshot:
    """Run each gang on the nodes that it names if all of it fits; otherwise it waits."""
    room = {each.name: each.allocatable for each in members}
    standing: list[Gang] = []
    for each in found:
        after = dict(room)
        for one in each.pods:
            if one.node:
                after[one.node] = after[one.node] - one.requests
        if all(amount >= 0 for left in after.values() for amount in left.values()):
            room = after
            standing.append(each)
        else:
            pods = tuple(replace(one, status=Status.PENDING, node="") for one in each.pods)
            standing.append(replace(each, pods=pods, memo=Memo()))
    return snapshot(members, standing, queues, now=now)
