"""A few attacks of some seconds on the real control plane, and the checks of a siege.

`python -m tests.nightly.cluster siege` measures how slow gangs become.
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
from tests.nightly.cluster.installed_pair import InstalledPair, memory_limit_mb
from tests.nightly.cluster.siege import QUIET, Minute, Siege, broken
from tests.nightly.cluster.siege_attacks import Attack, AttackedCluster, OnPort, on_ports
from tests.nightly.cluster.stream import PODS_PER_S, SIZE, Started, Stream

POOLS = {"gangs": 10, "tenants": 2}
SECONDS = 5.0
#: One on each port, one by a tenant, one by the policy file.
SOME = (
    "hooks: binds from a browser",
    "operations: unread answers",
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
    with siege.siege_on(tmp_path_factory.mktemp("siege") / "cluster", POOLS) as made:
        yield made


@pytest.mark.parametrize("name", SOME)
def test_all_gangs_start_under_attack_and_the_extender_stays_up(besieged: Siege, name: str) -> None:
    (attack,) = (each for each in siege.attacks() if each.name == name)

    minute = besieged.minute(attack, SECONDS)

    assert broken(minute, math.inf, memory_limit_mb()) == []
    assert minute.observed


class Kills(Attack):
    """Kills the worker process."""

    name = "a kill"

    @contextmanager
    def running(self, stage: AttackedCluster) -> Iterator[None]:
        assert isinstance(stage.pair, InstalledPair)
        os.kill(stage.pair.worker, signal.SIGKILL)
        yield


def test_crash_slowness_and_memory_are_detected(
    besieged: Siege,
) -> None:
    minute = besieged.minute(Kills(), SECONDS)

    ended, large, slow = broken(minute, 1e-6, 1.0)
    assert ended == "the worker of extender ended"
    assert "times the quiet" in slow
    assert "over the limit" in large


def test_extended_stream_has_no_pause(besieged: Siege) -> None:
    besieged.plane.api.create(objects.namespace("extended"))
    asked: list[Started] = []

    def more_s(so_far: Started) -> float:
        asked.append(so_far)
        return 1.0 if len(asked) < 3 else 0.0

    all_of_them = Stream(besieged.plane, "extended", {}).run(1.0, more_s)

    assert [each.created for each in asked] == [5, 10, 15]
    assert all(len(each.seconds) < each.created for each in asked), "extended when all had started"
    assert all_of_them.created == len(all_of_them.seconds) == 15


def test_attack_on_kube_scheduler_alone_is_measured(
    control_plane_binaries: None, tmp_path: Path
) -> None:
    (attack,) = (each for each in siege.attacks() if each.name == "tenant: deep groups")

    with siege.siege_on(tmp_path / "cluster", POOLS, without_us=True) as alone:
        minute = alone.minute(attack, SECONDS)

    assert broken(minute, math.inf, memory_limit_mb()) == []
    assert minute.gangs.created == SECONDS * PODS_PER_S / SIZE
    assert not [program for program in alone.plane.programs if isinstance(program, Extender)]


# The checks


def test_minute_within_all_limits_passes() -> None:
    assert broken(GOOD, 0.1, LIMIT_MB) == []


def test_slow_minute_is_reported() -> None:
    slow = replace(GOOD, gangs=Started([0.1] * 97 + [0.21] * 3, 100))

    assert broken(slow, 0.1, LIMIT_MB) == ["p99 0.21 s is 2.1 times the quiet 0.10 s"]


def test_minute_above_the_memory_limit_is_reported() -> None:
    large = replace(GOOD, peak_mb=1001.0)

    assert broken(large, 0.1, LIMIT_MB) == ["1001 MB are over the limit of 1000 MB"]


def test_restart_is_reported() -> None:
    ended = replace(GOOD, restarts=("extender ended",))

    assert broken(ended, 0.1, LIMIT_MB) == ["extender ended"]


def test_gangs_that_do_not_start_are_reported() -> None:
    late = replace(GOOD, gangs=Started([0.1] * 99, 100))
    none = replace(GOOD, gangs=Started([], 100))

    assert broken(late, 0.1, LIMIT_MB) == ["1 of 100 gangs did not start"]
    assert len(broken(none, 0.1, LIMIT_MB)) == 2


def test_attack_is_compared_with_the_median_quiet_minute() -> None:
    first = replace(GOOD, attack=QUIET.name)
    stalled = replace(first, gangs=Started([9.0] * 100, 100))
    last = replace(first, gangs=Started([0.3] * 100, 100))
    busy = replace(GOOD, gangs=Started([0.5] * 100, 100))

    assert siege.quiet_p99_s([first, stalled, busy, last], busy) == 0.3
    assert siege.complaints([first, stalled, busy, last]) == []
    assert siege.complaints([first, busy]) == ["any: p99 0.50 s is 5.0 times the quiet 0.10 s"]


def test_slow_minute_is_repeated_and_counts_if_always_slow() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    large = replace(GOOD, peak_mb=2000.0)

    assert siege.is_worth_another([quiet, slow])
    assert not siege.is_worth_another([quiet, slow, GOOD])
    assert not siege.is_worth_another([quiet, replace(slow, attack=QUIET.name)])
    assert siege.complaints([quiet, slow, GOOD]) == []
    assert len(siege.complaints([quiet, slow, slow, slow])) == 1
    assert siege.complaints([quiet, large, GOOD]) == ["any: 2000 MB are over the limit of 1074 MB"]


def test_disturbed_minute_is_compared_with_disturbed_quiet_ones() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    stalled = replace(quiet, gangs=Started([0.4] * 100, 100), stolen=0.3)
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    excused = replace(slow, stolen=0.2)

    assert not siege.is_worth_another([quiet, stalled, excused])
    assert siege.is_worth_another([quiet, stalled, slow]), "the minute was not disturbed"
    assert siege.is_worth_another([quiet, excused]), "no quiet minute was disturbed"


class ScriptedSiege(Siege):
    """A siege with given minutes."""

    def __init__(self, minutes: Sequence[Minute], retry_time: RetryTime) -> None:
        self._retry_time = retry_time
        self._written = iter(minutes)

    def minute(self, attack: Attack, seconds: float) -> Minute:
        quiet = replace(GOOD, attack=QUIET.name)
        return quiet if attack is QUIET else next(self._written)


@pytest.mark.parametrize(("retry_time_s", "tries"), [(0.0, 4), (119.0, 6), (6000.0, 7)])
def test_disturbed_minute_is_no_try_while_time_is_left(retry_time_s: float, tries: int) -> None:
    slow = replace(GOOD, gangs=Started([0.5] * 100, 100))
    disturbed = replace(slow, stolen=0.3)
    minutes = [replace(GOOD, attack=QUIET.name)]
    scripted = ScriptedSiege([disturbed] * 3 + [slow] * 4, RetryTime(retry_time_s))

    tried = [each for each in scripted.tried(Attack(), 60, minutes) if not each.is_quiet]

    assert len(tried) == tries


def a_minute() -> StealMonitor:
    """A second has a hundred moments of two processors; from 20 to 30 the host takes a tenth."""
    clock = [0.0]
    calm = StealMonitor(lambda: (_taken_until(clock[0]), int(200 * clock[0])), lambda: clock[0])
    while clock[0] < 60:
        calm.sample()
        clock[0] += 0.5
    return calm


def test_gang_is_timed_if_the_host_took_little_at_its_creation() -> None:
    calm = a_minute()
    gangs = Started([0.1, 40.0, 0.1, 0.1, 0.1], 5, 4, [10.0, 12.0, 18.5, 25.0, 33.0])

    assert gangs.only(calm.was_calm).seconds == [0.1, 40.0, 0.1]
    assert gangs.only(calm.was_calm).created_at == [10.0, 12.0, 33.0]


def test_steal_time_is_subtracted() -> None:
    calm = a_minute()

    assert calm.without_steal_s(5, 15) == pytest.approx(10.0)
    assert calm.without_steal_s(20, 30) == pytest.approx(9.0)


def _taken_until(at: float) -> int:
    return int(20 * min(10.0, max(0.0, at - 20.0)))


def test_undisturbed_part_of_a_minute_counts() -> None:
    all_of_them = Started([0.1] * 100 + [5.0] * 20, 120)
    minute = replace(GOOD, gangs=all_of_them, timed=Started([0.1] * 95, 95), stolen=0.3)

    assert minute.p99_s == 0.1
    assert not minute.is_disturbed
    assert replace(minute, timed=None).is_disturbed


def test_memory_limit_is_that_of_the_manifest() -> None:
    assert memory_limit_mb() == pytest.approx(1073.74, abs=0.01)


def test_table_has_a_row_for_every_minute() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    told = replace(GOOD, scheduler_s=1.2, cpu_s=(3.0, 6.0), stolen=0.03, observed="head 7")
    rows = siege.table([quiet, told]).splitlines()

    assert rows[-1] == (
        "| any | 400 of 400 | 0.10 / 0.10 s | 1.00 | 3% | 2% / 5% / 10% | 200 MB | 0 | head 7 |"
    )
    assert len(rows) == 4


def refusing(*before_and_after: dict[str, float]) -> Any:
    """Return a cluster whose pair reports these refusals, one after the other."""
    asked = iter(before_and_after)
    return SimpleNamespace(pair=SimpleNamespace(refused=lambda: next(asked)))


@pytest.mark.parametrize("port", ["hooks", "operations"])
def test_slow_bytes_must_be_refused_as_slow(
    port: str,
) -> None:
    (slow_bytes,) = (each for each in on_ports() if each.name == f"{port}: a byte now and then")

    assert slow_bytes.missing_refusal(refusing({f"{port}: slow": 1.0})) == ""
    many = {f"{port}: full": 59728.0, "other: slow": 1.0}
    assert slow_bytes.missing_refusal(refusing(many)) == "no call was refused as slow"
    assert slow_bytes.observed(refusing(many)) == "full 59,728"


def test_slow_bytes_have_a_single_attacker() -> None:
    """With more attackers their connections would be refused before they are slow."""
    for each in on_ports():
        assert isinstance(each, OnPort)
        assert (each.times == 1) == each.name.endswith("a byte now and then"), each.name


def test_times_are_not_judged_where_kube_scheduler_alone_is_as_slow() -> None:
    slow = replace(GOOD, gangs=Started([9.0] * 99, 100), slows_scheduler=True)

    assert broken(slow, 0.1, LIMIT_MB) == []
    assert broken(replace(slow, slows_scheduler=False), 0.1, LIMIT_MB) != []
    assert broken(replace(slow, restarts=("one",), peak_mb=2000.0), 0.1, LIMIT_MB) == [
        "one",
        "2000 MB are over the limit of 1000 MB",
    ]


def test_missing_refusal_is_reported_after_enough_time() -> None:
    idle = replace(GOOD, observed="full 7", missing_refusal="no call was refused as slow")

    assert broken(idle, 0.1, LIMIT_MB) == ["no call was refused as slow"]
    assert broken(replace(idle, seconds=5.0), 0.1, LIMIT_MB) == []
    assert "| full 7; no call was refused as slow |" in siege.table([idle])


def test_quiet_minutes_are_first_last_and_between() -> None:
    names = [attack.name for attack in siege.in_order(siege.attacks()[:7])]

    assert [number for number, name in enumerate(names) if name == QUIET.name] == [0, 6, 9]
    assert len(names) == 10


def test_attack_with_ordinary_pods_is_between_quiet_minutes_of_such_pods() -> None:
    beside_pods = next(each for each in siege.attacks() if each.beside_pods)

    names = [attack.name for attack in siege.in_order([beside_pods])]

    pods = siege.QUIET_PODS.name
    assert names == [QUIET.name, pods, beside_pods.name, pods, QUIET.name]


def test_ordinary_pods_have_their_own_quiet_minutes_and_limit() -> None:
    quiet = replace(GOOD, attack=QUIET.name)
    pods = replace(GOOD, attack=siege.QUIET_PODS.name, gangs=Started([0.01] * 100, 100, 1))
    beside_pods = next(each for each in siege.attacks() if each.beside_pods)
    slow = replace(GOOD, gangs=Started([0.016] * 100, 100, 1), slower=beside_pods.slower)

    assert siege.complaints([quiet, pods, slow]) == [
        "any: p99 0.02 s is 1.6 times the quiet 0.01 s"
    ]


def test_limit_in_seconds_replaces_the_comparison() -> None:
    slow = replace(GOOD, gangs=Started([4.0] * 100, 100), at_most_s=5.0)
    slower = replace(slow, gangs=Started([5.5] * 100, 100))

    assert broken(slow, 0.1, LIMIT_MB) == []
    assert broken(slower, 0.1, LIMIT_MB) == ["p99 5.50 s is over 5 s"]


def test_load_selects_a_group_and_other_words_select_by_name() -> None:
    load = {attack.name for attack in siege.chosen(["load"])}

    assert {name.partition(":")[0] for name in load} == {"hooks", "operations", "tenant", "load"}
    assert [each.name for each in siege.chosen(["60,000"])] == ["tenant: 60,000 labels"]
    assert len(siege.chosen([])) == len(siege.attacks())


def test_names_of_attacks_are_unique() -> None:
    names = [attack.name for attack in siege.attacks()]

    assert len(names) == len(set(names)) > 25
    assert set(SOME) <= set(names)
