"""Refusals are counted by namespace, and the namespaces with the most are logged."""

from __future__ import annotations

import logging

import pytest

from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.status.notes import LOUD, MINUTE_S, MOST_SHOWN, SHOWN, RefusedNamespaces


class NamespacesHarness:
    """Counted refusals with a clock that the test sets."""

    def __init__(self, **limits: int) -> None:
        self.metrics = Metrics()
        self.namespaces = RefusedNamespaces(self.metrics, **limits)
        self.now = 1000.0

    def refuse(self, namespace: str, times: int = 1) -> None:
        for _ in range(times):
            gang = GangKey(f"{namespace}/train")
            self.namespaces.refused(namespace, gang, "InsufficientCapacity", self.now)

    def value(self, namespace: str) -> float | None:
        name = "gang_extender_namespace_refusals_total"
        return self.metrics.registry.get_sample_value(name, {"namespace": namespace})


def test_a_namespace_has_a_series_after_many_refusals() -> None:
    harness = NamespacesHarness()
    harness.refuse("quiet", SHOWN - 1)
    harness.refuse("busy", SHOWN + 5)

    assert (harness.value("quiet"), harness.value("busy")) == (None, SHOWN + 5)


def test_the_number_of_namespaces_with_series_is_limited_and_includes_the_busiest() -> None:
    harness = NamespacesHarness()
    for number in range(MOST_SHOWN):
        harness.refuse(f"n{number}", SHOWN + number + 1)
    harness.refuse("one-more", SHOWN)
    assert harness.value("one-more") is None

    harness.refuse("one-more", 2)

    assert (harness.value("one-more"), harness.value("n0")) == (SHOWN + 2, None)


def test_unlimited_namespaces_are_forgotten_except_the_busiest() -> None:
    harness = NamespacesHarness(most_counted=20)
    harness.refuse("busy", SHOWN - 1)
    for number in range(1000):
        harness.refuse(f"made-up-{number}")
        assert len(harness.namespaces) <= 20
    harness.refuse("busy")

    assert harness.value("busy") == SHOWN


def test_the_namespaces_refused_most_often_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = NamespacesHarness()
    with caplog.at_level(logging.WARNING):
        harness.refuse("busy", LOUD)
        harness.refuse("quiet", LOUD - 1)
        assert caplog.records == []
        harness.now += MINUTE_S
        harness.refuse("quiet")

    (record,) = caplog.records
    assert getattr(record, "facts") == {  # noqa: B009 - set by our own logging
        "namespace": "busy",
        "refused": LOUD,
        "gang": "busy/train",
        "reason": "InsufficientCapacity",
    }


def test_a_minute_with_few_refusals_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    harness = NamespacesHarness()
    for _ in range(5):
        harness.refuse("quiet", LOUD - 1)
        harness.now += MINUTE_S

    assert caplog.records == []
