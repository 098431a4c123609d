"""What stands in for a kubelet or a kube-proxy looks on, and does not fail in silence."""

from __future__ import annotations

import threading

import pytest

from .api import ApiError
from .lookout import Lookout
from .waiting import wait_for


def test_it_looks_until_the_block_is_left() -> None:
    seen: list[int] = []
    with Lookout(lambda: seen.append(len(seen)), 0.001) as lookout:
        wait_for(lambda: len(seen) > 3, 30, "it looks")
        assert not lookout.is_over

    count = len(seen)
    assert lookout.is_over
    assert "lookout" not in {thread.name for thread in threading.enumerate()}
    assert len(seen) == count


def test_an_api_server_that_is_away_is_looked_at_again() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(1)
        raise ApiError(503, "GET /", "away")

    with Lookout(look, 0.001):
        wait_for(lambda: len(seen) > 3, 30, "it looks again")


def test_another_error_fails_the_block_when_it_is_left() -> None:
    looked = threading.Event()

    def look() -> None:
        looked.set()
        raise KeyError("podIP")

    with pytest.raises(KeyError, match="podIP"), Lookout(look, 0.001):
        assert looked.wait(30)


def test_what_went_wrong_in_the_block_comes_before_what_went_wrong_in_looking() -> None:
    looked = threading.Event()

    def look() -> None:
        looked.set()
        raise KeyError("podIP")

    with pytest.raises(AssertionError, match="of the test"), Lookout(look, 0.001):
        assert not looked.wait(30), "of the test"
