"""All findings about one snapshot, computed again only when their inputs have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from extender.findings.finding import ACCOUNT, PERMISSION_MISSING, Finding, Problem
from extender.findings.namespaces import (
    of_crowded_budgets,
    of_exempt_groups,
    of_large_objects,
    of_namespaces,
)
from extender.findings.queues import of_queues
from extender.model.budgets import budgets_of
from extender.model.node import NodeTable
from extender.model.resources import LARGEST, Resources
from extender.model.snapshot import Snapshot
from extender.ports import Refused


class Audit:
    """Caches the last findings: snapshots come many times a second and are mostly alike."""

    def __init__(self, besides: Callable[[], Iterable[Finding]] = tuple) -> None:
        """*besides* returns findings that need no snapshot."""
        self._besides = besides
        self._seen: Snapshot | None = None
        self._found: tuple[Finding, ...] = ()

    def __call__(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Return the findings about *snapshot*."""
        if self._seen is None or not _are_alike(self._seen, snapshot):
            self._found = _audit(snapshot)
        self._seen = snapshot
        # Budgets change with every pod that starts, and the planner needs their index anyway.
        return self._found + tuple(_of_budgets(snapshot)) + tuple(self._besides())


def audit(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return the findings about *snapshot*."""
    return (*_audit(snapshot), *_of_budgets(snapshot))


def _of_budgets(snapshot: Snapshot) -> list[Finding]:
    return of_crowded_budgets(budgets_of(snapshot).crowded)


def _audit(snapshot: Snapshot) -> tuple[Finding, ...]:
    cluster = whole(snapshot.nodes)
    shares, classes = snapshot.shares, snapshot.classes
    found = of_namespaces(snapshot.namespaces, snapshot.queues, shares, classes, cluster)
    return (
        *of_queues(snapshot.queues, cluster),
        *found,
        *of_exempt_groups(snapshot.exempt_groups),
        *of_large_objects(snapshot.too_large),
    )


def whole(table: NodeTable) -> Resources:
    """Return the capacity of all nodes, ready or not: a reboot must not cause findings."""
    amounts = np.minimum(table.allocatable, LARGEST).sum(axis=0)
    return Resources(zip(table.dimensions, amounts.tolist(), strict=True)).positive()


def _are_alike(one: Snapshot, other: Snapshot) -> bool:
    return (
        one.queues is other.queues
        and one.namespaces is other.namespaces
        and one.classes is other.classes
        and one.exempt_groups is other.exempt_groups
        and one.too_large is other.too_large
        and one.nodes.facts is other.nodes.facts
    )


#: The meaning, for the manual.
REASONS = {
    PERMISSION_MISSING: Problem(
        "a request of the service account was refused in the last ten minutes because it lacks a"
        " [right](../security.md#permissions)",
        "what needs the right does not work",
    )
}


def with_missing_rights(
    found: Sequence[Finding] | None, refused: Sequence[Refused]
) -> Sequence[Finding] | None:
    """Add missing permissions, also before the first plan: without some of them none is made."""
    missing = [Finding(ACCOUNT, each.account, PERMISSION_MISSING, each.why) for each in refused]
    return (*(found or ()), *missing) if missing else found
