"""Work that stops at its checkpoints."""

from __future__ import annotations

import pytest

from .stepwise import Stepwise


def test_work_goes_from_checkpoint_to_checkpoint() -> None:
    done: list[str] = []

    def work() -> None:
        done.append("first")
        steps.checkpoint("half way")
        done.append("second")

    steps = Stepwise(work)
    assert done == []
    assert steps.go_on()
    assert (done, steps.at) == (["first"], "half way")
    assert not steps.go_on()
    assert done == ["first", "second"]
    assert not steps.go_on()


def test_other_threads_pass_a_checkpoint_without_stopping() -> None:
    steps = Stepwise(lambda: None)
    steps.checkpoint("not ours")
    steps.finish()
    assert steps.at == ""


def test_an_exception_of_the_work_is_raised_to_the_caller() -> None:
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Stepwise(work).go_on()


def test_abandoned_work_ends_at_its_checkpoint() -> None:
    done: list[str] = []

    def work() -> None:
        steps.checkpoint("half way")
        done.append("never")

    steps = Stepwise(work)
    steps.go_on()
    steps.abandon()
    assert steps.is_over
    assert not done
