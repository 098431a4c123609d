"""Whose pods are refused again and again is counted by namespace, and told."""

from __future__ import annotations

import logging

import pytest

from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.status import notes
from extender.status.notes import LOUD, MINUTE_S, MOST_SHOWN, SHOWN, RefusedNamespaces


class Told:
    """Burdens with a clock of their own."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.burdens = RefusedNamespaces(self.metrics)
        self.now = 1000.0

    def refuse(self, namespace: str, times: int = 1) -> None:
        for _ in range(times):
            gang = GangKey(f"{namespace}/train")
            self.burdens.refused(namespace, gang, "InsufficientCapacity", self.now)

    def value(self, namespace: str) -> float | None:
        name = "gang_extender_namespace_refusals_total"
        return self.metrics.registry.get_sample_value(name, {"namespace": namespace})


def test_a_namespace_has_a_series_after_many_refusals() -> None:
    told = Told()
    told.refuse("quiet", SHOWN - 1)
    told.refuse("busy", SHOWN + 5)

    assert (told.value("quiet"), told.value("busy")) == (None, SHOWN + 5)


def test_the_number_of_namespaces_with_series_is_limited_and_includes_the_busiest() -> None:
    told = Told()
    for number in range(MOST_SHOWN):
        told.refuse(f"n{number}", SHOWN + number + 1)
    told.refuse("one-more", SHOWN)
    assert told.value("one-more") is None

    told.refuse("one-more", 2)

    assert (told.value("one-more"), told.value("n0")) == (SHOWN + 2, None)


def test_unlimited_namespaces_are_forgotten_except_the_busiest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notes, "_MOST_COUNTED", 20)
    told = Told()
    told.refuse("busy", SHOWN - 1)
    for number in range(1000):
        told.refuse(f"made-up-{number}")
        assert len(told.burdens._counts) <= 20
        assert len(told.burdens._minute) <= 20
        assert len(told.burdens._examples) <= 20
    told.refuse("busy")

    assert told.value("busy") == SHOWN


def test_the_namespaces_refused_most_often_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    with caplog.at_level(logging.WARNING):
        told.refuse("busy", LOUD)
        told.refuse("quiet", LOUD - 1)
        assert caplog.records == []
        told.now += MINUTE_S
        told.refuse("quiet")

    (record,) = caplog.records
    assert getattr(record, "facts") == {  # noqa: B009 - set by our own logging
        "namespace": "busy",
        "refused": LOUD,
        "gang": "busy/train",
        "reason": "InsufficientCapacity",
    }


def test_a_minute_with_few_refusals_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    for _ in range(5):
        told.refuse("quiet", LOUD - 1)
        told.now += MINUTE_S

    assert caplog.records == []
