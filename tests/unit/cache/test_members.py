"""The counts of all pods of one gang, whatever each pod says."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from extender.cache.members import GangMembers
from extender.model.gang import Membership
from extender.model.pod import FINISHED_SET, Pod, Status
from tests.builders import member_of, pod

STATUSES = (Status.PENDING, Status.RUNNING, Status.SUCCEEDED, Status.RELEASING)


class ComparedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        ComparedName.compared += 1
        return str.__lt__(self, other)

    def __gt__(self, other: str) -> bool:
        ComparedName.compared += 1
        return str.__gt__(self, other)


def all_different(number: int) -> list[tuple[Pod, Membership]]:
    """Pods of one gang that agree on nothing."""
    return [
        (
            pod(f"p{each}", on="n1", started_in=ComparedName(f"s{each:05}")),
            member_of(min_member=each + 1, queue=ComparedName(f"q{each:05}")),
        )
        for each in range(number)
    ]


@pytest.mark.parametrize("order", [1, -1], ids=["the first leaves first", "the last leaves first"])
def test_a_member_of_a_gang_whose_pods_all_disagree_is_added_without_reading_all_members(
    order: int,
) -> None:
    """It happens under the lock of the cache: a list of eight thousand took seven seconds."""
    pods, counts = all_different(1000), GangMembers()
    ComparedName.compared = 0

    for each in pods:
        counts.put(*each)
    for each in pods[::order]:
        counts.drop(*each)

    assert ComparedName.compared < 100 * len(pods)


def expected(members: dict[str, tuple[Pod, Membership]]) -> tuple[Any, ...]:
    """The expected counts of *members*, computed from all of them."""
    pods, memberships = [each for each, _ in members.values()], [m for _, m in members.values()]
    size = max((each.min_member or 0 for each in memberships), default=0)
    named = any(each.named for each in memberships)
    native = any(each.native for each in memberships)
    queue = max((each.queue for each in memberships), default="")
    started = Counter(
        each.started_in for each in pods if each.started_in and each.status not in FINISHED_SET
    )
    made = (size or 1, queue) if memberships and (size or native or not named) else None
    return made, named, native, max(sorted(started), key=started.__getitem__, default="")


@pytest.mark.parametrize("seed", range(5))
def test_the_incremental_counts_equal_a_count_of_all_members(seed: int) -> None:
    random, counts = Random(seed), GangMembers()
    members: dict[str, tuple[Pod, Membership]] = {}

    def anything(name: str) -> Pod:
        started = random.choice(["", "a", "b", "c"])
        return pod(name, status=random.choice(STATUSES), started_in=started)

    for turn in range(600):
        kind = random.random()
        known = random.choice([*members]) if members else ""
        if not known or kind < 0.4:
            membership = member_of(
                named=random.random() < 0.5,
                native=random.random() < 0.05,
                min_member=random.choice([None, None, 1, 2, 3]),
                queue=random.choice(["", "x", "y", "z"]),
            )
            members[f"p{turn}"] = (anything(f"p{turn}"), membership)
            counts.put(*members[f"p{turn}"])
        elif kind < 0.6:
            old, membership = members[known]
            members[known] = (anything(known), membership)
            counts.update(old, members[known][0])
        else:
            counts.drop(*members.pop(known))
        made = counts.implicit and (counts.implicit.min_member, counts.implicit.queue)

        assert (made, counts.is_named, counts.is_native, counts.started_in) == expected(members)
