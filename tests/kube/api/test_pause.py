from __future__ import annotations

import pytest

from extender.kube.api.pause import Pause


def test_each_failure_doubles_the_wait_up_to_a_limit() -> None:
    pause = Pause(lambda: 0.5)

    assert [pause.next_s() for _ in range(10)] == [
        pytest.approx(seconds) for seconds in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15)
    ]


def test_a_success_begins_anew() -> None:
    pause = Pause(lambda: 0.5)
    for _ in range(5):
        pause.next_s()
    pause.reset()

    assert pause.next_s() == pytest.approx(0.1)


def test_waits_differ_by_half_either_way() -> None:
    assert Pause(lambda: 0.0).spread(10) == 5
    assert Pause(lambda: 1.0).spread(10) == 15


def test_many_failures_do_not_overflow() -> None:
    pause = Pause(lambda: 1.0)

    assert max(pause.next_s() for _ in range(5000)) == pytest.approx(22.5)
