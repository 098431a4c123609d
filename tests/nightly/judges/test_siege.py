"""Attacks beside arriving gangs on the real control plane, a few and for seconds; and their judge.

How slow gangs become is measured by `python -m tests.nightly.cluster siege`.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import objects
from tests.cluster.extender_process import Extender
from tests.cluster.steal_time import RetryTime, StealMonitor
from tests.nightly.cluster import siege
from tests.nightly.cluster.besiegers import Attack, OnPort, Stage, on_ports
from tests.nightly.cluster.garrison import Garrison, memory_limit_mb
from tests.nightly.cluster.siege import QUIET, Minute, Siege, broken
from tests.nightly.cluster.stream import PODS_PER_S, SIZE, Started, Stream

POOLS = {"gangs": 10, "tenants": 2}
SECONDS = 5.0
#: One on each port, one by a tenant, one by the policy file.
SOME = (
    "hooks: binds from a browser",
    "operations: answers nobody reads",
    "tenant: large affinities",
    "policy: no numbers, no end",
)
GOOD = Minute(attack="any", gangs=Started([0.1] * 99 + [0.2], 100), peak_mb=200.0)
LIMIT_MB = 1000.0


@pytest.fixture(scope="module")
def besieged(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Siege]:
    with siege.besieged(tmp_path_factory.mktemp("siege") / "cluster", POOLS) as made:
        yield made


@pytest.mark.parametrize("name", SOME)
def test_all_gangs_start_beside_it_and_the_extender_neither_ends_nor_grows(
    besieged: Siege, name: str
) -> None:
    (attack,) = (each for each in siege.attacks() if each.name == name)

    minute = besieged.minute(attack, SECONDS)

    assert broken(minute, math.inf, memory_limit_mb()) == []
    assert minute.told


class Kills(Attack):
    """Ends the process that does the work."""

    name = "a kill"

    @contextmanager
    def going_on(self, stage: Stage) -> Iterator[None]:
        assert isinstance(stage.garrison, Garrison)
        os.kill(stage.garrison.worker, signal.SIGKILL)
        yield


def test_an_extender_that_ends_is_noticed_and_so_is_all_that_is_too_slow_or_too_large(
    besieged: Siege,
) -> None:
    minute = besieged.minute(Kills(), SECONDS)

    ended, large, slow = broken(minute, 1e-6, 1.0)
    assert ended == "the worker of extender ended"
    assert "times the quiet" in slow
    assert "over the limit" in large


def test_a_stream_of_which_more_is_wanted_goes_on_without_a_pause(besieged: Siege) -> None:
    besieged.plane.api.create(objects.namespace("on-and-on"))
    asked: list[Started] = []

    def more_s(so_far: Started) -> float:
        asked.append(so_far)
        return 1.0 if len(asked) < 3 else 0.0

    all_of_them = Stream(besieged.plane, "on-and-on", {}).run(1.0, more_s)

    assert [each.arrived for each in asked] == [5, 10, 15]
    assert all(len(each.seconds) < each.arrived for each in asked), "asked when all had started"
    assert all_of_them.arrived == len(all_of_them.seconds) == 15


def test_what_an_attack_does_to_kube_scheduler_alone_is_measured_likewise(
    control_plane_binaries: None, tmp_path: Path
) -> None:
    (attack,) = (each for each in siege.attacks() if each.name == "tenant: deep groups")

    with siege.besieged(tmp_path / "cluster", POOLS, without_us=True) as alone:
        minute = alone.minute(attack, SECONDS)

    assert broken(minute, math.inf, memory_limit_mb()) == []
    assert minute.gangs.arrived == SECONDS * PODS_PER_S / SIZE
    assert not [program for program in alone.plane.programs if isinstance(program, Extender)]


# The judge alone


def test_what_is_within_all_bounds_is_not_objected_to() -> None:
    assert broken(GOOD, 0.1, LIMIT_MB) == []


def test_a_slow_minute_is_objected_to() -> None:
    slow = replace(GOOD, gangs=Started([0.1] * 97 + [0.21] * 3, 100))

    assert broken(slow, 0.1, LIMIT_MB) == ["p99 0.21 s is 2.1 times the quiet 0.10 s"]


def test_a_fat_minute_is_objected_to() -> None:
    fat = replace(GOOD, peak_mb=1001.0)

    assert broken(fat, 0.1, LIMIT_MB) == ["1001 MB are over the limit of 1000 MB"]


def test_a_restart_is_objected_to() -> None:
    ended = replace(GOOD, restarts=("extender ended",))

    assert broken(ended, 0.1, LIMIT_MB) == ["extender ended"]


def test_gangs_that_never_start_are_objected_to_and_so_is_a_minute_without_any() -> None:
    late = replace(GOOD, gangs=Started([0.1] * 99, 100))
    nobody = replace(GOOD, gangs=Started([], 100))

    assert broken(late, 0.1, LIMIT_MB) == ["1 of 100 gangs did not start"]
    assert len(broken(nobody, 0.1, LIMIT_MB)) == 2


def test_an_attack_is_judged_by_the_middle_one_of_the_quiet_minutes() -> None:
    first = replace(GOOD, attack=QUIET.name)
    stalled = replace(first, gangs=Started([9.0] * 100, 100))
    last = replace(first, gangs=Started([0.3] * 100, 100))
    busy = replace(GOOD, gangs=Started([0.5] * 100, 100))

    assert siege.quiet_p99_s([first, stalled, busy, last], busy) == 0.3
    assert siege.complaints([first, stalled, busy, last]) == []
    assert siege.complaints([first, busy]) == ["any: p99 0.50 s is 5.0 times the quiet 0.10 s"]


def test_a_slow_minute_is_repeated_and_counts_if_it_is_slow_every_time() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    fat = replace(GOOD, peak_mb=2000.0)

    assert siege.is_worth_another([quiet, slow])
    assert not siege.is_worth_another([quiet, slow, GOOD])
    assert not siege.is_worth_another([quiet, replace(slow, attack=QUIET.name)])
    assert siege.complaints([quiet, slow, GOOD]) == []
    assert len(siege.complaints([quiet, slow, slow, slow])) == 1
    assert siege.complaints([quiet, fat, GOOD]) == ["any: 2000 MB are over the limit of 1074 MB"]


def test_a_minute_that_the_host_disturbed_is_compared_with_quiet_ones_that_it_disturbed() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    stalled = replace(quiet, gangs=Started([0.4] * 100, 100), stolen=0.3)
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    excused = replace(slow, stolen=0.2)

    assert not siege.is_worth_another([quiet, stalled, excused])
    assert siege.is_worth_another([quiet, stalled, slow]), "the host had no part in it"
    assert siege.is_worth_another([quiet, excused]), "nobody knows yet how slow the host makes us"


class Laid(Siege):
    """Minutes that are written down beforehand."""

    def __init__(self, minutes: Sequence[Minute], patience: RetryTime) -> None:
        self._patience = patience
        self._written = iter(minutes)

    def minute(self, attack: Attack, seconds: float) -> Minute:
        quiet = replace(GOOD, attack=QUIET.name)
        return quiet if attack is QUIET else next(self._written)


@pytest.mark.parametrize(("patience_s", "tries"), [(0.0, 4), (119.0, 6), (6000.0, 7)])
def test_with_patience_a_slow_minute_in_which_the_host_took_much_is_no_try(
    patience_s: float, tries: int
) -> None:
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    disturbed = replace(slow, stolen=0.3)
    minutes = [replace(GOOD, attack=QUIET.name)]
    laid = Laid([disturbed] * 3 + [slow] * 4, RetryTime(patience_s))

    tried = [each for each in laid.tried(Attack(), 60, minutes) if not each.is_quiet]

    assert len(tried) == tries


def a_minute() -> StealMonitor:
    """A second has a hundred moments of two processors; from 20 to 30 the host takes a tenth."""
    clock = [0.0]
    calm = StealMonitor(lambda: (_taken_until(clock[0]), int(200 * clock[0])), lambda: clock[0])
    while clock[0] < 60:
        calm.sample()
        clock[0] += 0.5
    return calm


def test_a_gang_is_timed_if_the_host_took_little_when_it_came_however_long_it_took() -> None:
    calm = a_minute()
    gangs = Started([0.1, 40.0, 0.1, 0.1, 0.1], 5, 4, [10.0, 12.0, 18.5, 25.0, 33.0])

    assert gangs.those(calm.was_calm).seconds == [0.1, 40.0, 0.1]
    assert gangs.those(calm.was_calm).came_at == [10.0, 12.0, 33.0]


def test_time_that_the_host_took_is_not_ours() -> None:
    calm = a_minute()

    assert calm.without_steal_s(5, 15) == pytest.approx(10.0)
    assert calm.without_steal_s(20, 30) == pytest.approx(9.0)


def _taken_until(at: float) -> int:
    return int(20 * min(10.0, max(0.0, at - 20.0)))


def test_a_minute_of_which_enough_was_calm_is_judged_by_that() -> None:
    all_of_them = Started([0.1] * 100 + [5.0] * 20, 120)
    minute = replace(GOOD, gangs=all_of_them, timed=Started([0.1] * 95, 95), stolen=0.3)

    assert minute.p99_s == 0.1
    assert not minute.is_disturbed
    assert replace(minute, timed=None).is_disturbed


def test_the_limit_is_that_of_the_manifest() -> None:
    assert memory_limit_mb() == pytest.approx(1073.74, abs=0.01)


def test_the_table_has_a_row_for_every_minute_with_what_its_author_was_told() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    told = replace(GOOD, scheduler_s=1.2, cpu_s=(3.0, 6.0), stolen=0.03, told="head 7")
    rows = siege.table([quiet, told]).splitlines()

    assert rows[-1] == (
        "| any | 400 of 400 | 0.10 / 0.10 s | 1.00 | 3% | 2% / 5% / 10% | 200 MB | 0 | head 7 |"
    )
    assert len(rows) == 4


def refusing(*before_and_after: dict[str, float]) -> Any:
    """A stage whose garrison has refused so many when it is asked, one time after the other."""
    asked = iter(before_and_after)
    return SimpleNamespace(garrison=SimpleNamespace(refused=lambda: next(asked)))


@pytest.mark.parametrize("port", ["hooks", "operations"])
def test_whoever_sends_a_byte_now_and_then_has_struck_his_bound_only_if_he_was_too_slow(
    port: str,
) -> None:
    (drips,) = (each for each in on_ports() if each.name == f"{port}: a byte now and then")

    assert drips.lacks(refusing({f"{port}: slow": 1.0})) == ""
    crowd = {f"{port}: full": 59728.0, "other: slow": 1.0}
    assert drips.lacks(refusing(crowd)) == "nobody was refused as slow"
    assert drips.told(refusing(crowd)) == "full 59,728"


def test_those_who_drip_do_not_put_each_other_out() -> None:
    """More of their hundred connections each than a port takes, and none of them grows old."""
    for each in on_ports():
        assert isinstance(each, OnPort)
        assert (each.times == 1) == each.name.endswith("a byte now and then"), each.name


def test_a_minute_whose_attack_never_struck_its_bound_is_objected_to_if_it_had_the_time() -> None:
    idle = replace(GOOD, told="full 7", lacks="nobody was refused as slow")

    assert broken(idle, 0.1, LIMIT_MB) == ["nobody was refused as slow"]
    assert broken(replace(idle, seconds=5.0), 0.1, LIMIT_MB) == []
    assert "| full 7; nobody was refused as slow |" in siege.table([idle])


def test_quiet_minutes_come_first_and_last_and_between() -> None:
    names = [attack.name for attack in siege.in_order(siege.attacks()[:7])]

    assert [number for number, name in enumerate(names) if name == QUIET.name] == [0, 6, 9]
    assert len(names) == 10


def test_beside_ordinary_pods_a_quiet_minute_of_such_pods_comes_before_and_after() -> None:
    beside_pods = next(each for each in siege.attacks() if each.beside_pods)

    names = [attack.name for attack in siege.in_order([beside_pods])]

    pods = siege.QUIET_PODS.name
    assert names == [QUIET.name, pods, beside_pods.name, pods, QUIET.name]


def test_ordinary_pods_are_judged_by_quiet_minutes_of_ordinary_pods_and_more_strictly() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    pods = replace(GOOD, attack=siege.QUIET_PODS.name, gangs=Started([0.01] * 100, 100, 1))
    beside_pods = next(each for each in siege.attacks() if each.beside_pods)
    slow = replace(GOOD, gangs=Started([0.016] * 100, 100, 1), slower=beside_pods.slower)

    assert siege.complaints([quiet, pods, slow]) == [
        "any: p99 0.02 s is 1.6 times the quiet 0.01 s"
    ]


def test_who_may_take_some_seconds_is_not_compared_with_the_quiet() -> None:
    slow = replace(GOOD, gangs=Started([4.0] * 100, 100), at_most_s=5.0)
    slower = replace(slow, gangs=Started([5.5] * 100, 100))

    assert broken(slow, 0.1, LIMIT_MB) == []
    assert broken(slower, 0.1, LIMIT_MB) == ["p99 5.50 s is over 5 s"]


def test_load_is_the_name_of_many_and_any_other_word_of_those_that_contain_it() -> None:
    load = {attack.name for attack in siege.chosen(["load"])}

    assert {name.partition(":")[0] for name in load} == {"hooks", "operations", "tenant", "load"}
    assert [each.name for each in siege.chosen(["60,000"])] == ["tenant: 60,000 labels"]
    assert len(siege.chosen([])) == len(siege.attacks())


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in siege.attacks()]

    assert len(names) == len(set(names)) > 25
    assert set(SOME) <= set(names)
