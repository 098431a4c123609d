"""All findings about one snapshot, looked for again only when what they depend on has changed."""

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
    """Remembers the last answer: snapshots come many times a second, and are mostly alike."""

    def __init__(self, besides: Callable[[], Iterable[Finding]] = tuple) -> None:
        """*besides* gives what is known without any snapshot."""
        self._besides = besides
        self._seen: Snapshot | None = None
        self._found: tuple[Finding, ...] = ()

    def __call__(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Find what makes no sense in *snapshot*."""
        if self._seen is None or not _are_alike(self._seen, snapshot):
            self._found = _audit(snapshot)
        self._seen = snapshot
        # Budgets change with every pod that starts, and their index is there for the plan anyway.
        return self._found + tuple(_of_budgets(snapshot)) + tuple(self._besides())


def audit(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Find what makes no sense in *snapshot*."""
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
    """Add up what all nodes have; ready or not, for a reboot makes nothing senseless."""
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


#: What the manual says of it.
REASONS = {
    PERMISSION_MISSING: Problem(
        "the account we act as was refused something in the last ten minutes for want of a"
        " [right](rights.md)",
        "what needs it is not done",
    )
}


def with_missing_rights(
    found: Sequence[Finding] | None, refused: Sequence[Refused]
) -> Sequence[Finding] | None:
    """Add the rights we lack, also before the first plan: without some of them none is made."""
    missing = [Finding(ACCOUNT, each.account, PERMISSION_MISSING, each.why) for each in refused]
    return (*(found or ()), *missing) if missing else found
