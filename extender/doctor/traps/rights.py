"""Traps of authorization: what an account of ours may not do."""

from __future__ import annotations

from collections.abc import Iterator

from extender.audit.finding import RIGHT_MISSING
from extender.doctor.needs import ASKS_WHO
from extender.doctor.seen import Lacking, Seen
from extender.doctor.trap import Caught, Trap

MISSING = Trap(
    RIGHT_MISSING,
    "the account that the extender acts as lacks a right: what needs it is not done",
    "the roles of our manifests, applied again",
)

CLOSED = Trap(
    "OperationsClosed",
    "with `--ops-auth tokenreview` the account must ask the API server who reads, and may not:"
    " metrics and pages are answered with 503, to everybody",
    "`kubectl apply -k manifests/ops-auth`, or `operationsAuth` of the chart",
)

TRAPS = (MISSING, CLOSED)

_ASKS_WHO = frozenset(right.what for right in ASKS_WHO)


def of_rights(seen: Seen) -> Iterator[Caught]:
    """Name every right that an account of ours lacks."""
    for each in seen.lacking:
        if each.resource in _ASKS_WHO:
            yield CLOSED.at(
                f"serviceaccount {each.user}",
                f"it may not {each.verb} {each.resource}, so nobody can read metrics or pages",
                f"apply manifests/ops-auth; then `{_can_i(each)}` says yes",
            )
            continue
        where = f" in {each.namespace}" if each.namespace else ""
        yield MISSING.at(
            f"serviceaccount {each.user}",
            f"it may not {each.verb} {each.resource}{where}",
            f"apply our roles again; then `{_can_i(each)}` says yes",
        )


def _can_i(each: Lacking) -> str:
    resource, _, part = each.resource.partition("/")
    words = ["kubectl auth can-i", each.verb, resource]
    words += [f"--subresource={part}"] * bool(part)
    words += [f"-n {each.namespace}"] * bool(each.namespace)
    return " ".join([*words, f"--as={each.user}"])
