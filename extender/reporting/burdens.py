"""Whose pods are refused again and again, at the cost of kube-scheduler's one loop: everybody's.

kube-scheduler tries whom an extender refuses after every event of the cluster. A namespace with
thousands of pods that cannot start is no fault that one of its gangs shows, so it is named here.
"""

from __future__ import annotations

import logging
from collections import Counter
from heapq import nlargest
from typing import NamedTuple

from extender.logs import event
from extender.metrics import Metrics
from extender.model.gang import GangKey

log = logging.getLogger(__name__)

#: Refused so often, a namespace has a series; and so many namespaces have one, at most.
SHOWN = 100
MOST_SHOWN = 50
#: Namespaces that are counted; those of which less was refused are forgotten.
_MOST_COUNTED = 2000
#: Refused so often within a minute, it is told: ten times a second.
MINUTE_S = 60.0
LOUD = 600


class _Example(NamedTuple):
    gang: GangKey
    reason: str


class Burdens:
    """Counts refusals of filter by namespace; belongs to the event loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._series = metrics.refused_pods
        self._counts: Counter[str] = Counter()
        self._shown: set[str] = set()
        #: Of the minute that runs.
        self._since = float("-inf")
        self._minute: Counter[str] = Counter()
        self._examples: dict[str, _Example] = {}

    def refused(self, namespace: str, gang: GangKey, reason: str, now: float) -> None:
        """Count that a pod of *gang* was refused."""
        if now - self._since >= MINUTE_S:
            self._tell()
            self._since = now
        self._counts[namespace] += 1
        self._minute[namespace] += 1
        self._examples[namespace] = _Example(gang, reason)
        count = self._counts[namespace]
        if namespace in self._shown:
            self._series.labels(namespace).inc()
        elif count >= SHOWN:
            self._show(namespace, count)
        elif len(self._counts) > _MOST_COUNTED:
            self._counts = _busiest(self._counts)
            self._minute = _busiest(self._minute)
            self._examples = {each: self._examples[each] for each in self._minute}

    def _show(self, namespace: str, count: int) -> None:
        if len(self._shown) >= MOST_SHOWN:
            least = min(self._shown, key=lambda each: self._counts[each])
            if self._counts[least] >= count:
                return
            self._shown.discard(least)
            self._series.remove(least)
        self._shown.add(namespace)
        self._series.labels(namespace).inc(count)

    def _tell(self) -> None:
        """Say whose pods took most attempts in the minute that is over, if they were many."""
        for namespace, count in nlargest(1, self._minute.items(), key=lambda pair: pair[1]):
            if count >= LOUD:
                example = self._examples[namespace]
                event(
                    log,
                    logging.WARNING,
                    "kube-scheduler tries pods of a namespace again and again in vain",
                    namespace=namespace,
                    refused=count,
                    gang=example.gang,
                    reason=example.reason,
                )
        self._minute.clear()
        self._examples.clear()


def _busiest(counts: Counter[str]) -> Counter[str]:
    return Counter(dict(counts.most_common(_MOST_COUNTED // 2)))
