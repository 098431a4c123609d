"""Who is left alone for a while."""

from __future__ import annotations

from extender.evictions.reprieves import LONGEST_S, MEMORY_S, Mercy
from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from tests.evictions.scene import NOW, gang, pod, snapshot

OLD = GangKey("a/old")


def spared(mercy: Mercy, since: float | None, now: float = NOW) -> set[str]:
    seen = snapshot(gang("old", 2), now=now)
    return set(mercy.spared(seen, {OLD: since}.get))


def test_nobody_is_spared_without_a_reason() -> None:
    assert spared(Mercy(), since=NOW) == set()


def test_a_pod_is_spared_until_its_reprieve_ends() -> None:
    mercy = Mercy()
    mercy.spare(PodUid("uid-old-0"), "a budget forbids it", until=NOW + 10)

    seen = snapshot(gang("old", 2))
    assert mercy.spared(seen, {}.get) == {PodUid("uid-old-0"): "a budget forbids it"}
    assert spared(mercy, None, now=NOW + 10) == set()


def test_a_gang_may_run_for_the_minimum_time_before_it_can_be_a_victim() -> None:
    mercy = Mercy(min_run_s=30)

    assert spared(mercy, since=NOW - 29) == {"uid-old-0", "uid-old-1"}
    assert spared(mercy, since=NOW - 30) == set()
    assert spared(mercy, since=None) == set()


def test_only_members_on_a_node_are_spared() -> None:
    mercy = Mercy(min_run_s=30)
    seen = snapshot(gang("old", [pod("old-0"), pod("old-1", Status.PENDING)]))

    assert set(mercy.spared(seen, {OLD: NOW}.get)) == {"uid-old-0"}


def test_a_gang_that_had_to_leave_is_left_alone_longer_each_time() -> None:
    mercy = Mercy(rerun_s=60)
    allowed = []
    for _ in range(6):
        mercy.made_to_leave(OLD, NOW)
        allowed.append(mercy.undisturbed_s(OLD))

    assert allowed == [60, 120, 240, 480, LONGEST_S, LONGEST_S]
    assert spared(mercy, since=NOW - 599) == {"uid-old-0", "uid-old-1"}
    assert spared(mercy, since=NOW - 600) == set()


def test_what_happened_long_ago_is_forgotten() -> None:
    mercy = Mercy(rerun_s=60)
    mercy.made_to_leave(OLD, NOW)
    later = NOW + MEMORY_S + 1

    assert spared(mercy, since=later, now=later) == set()
    assert mercy.undisturbed_s(OLD) == 0
