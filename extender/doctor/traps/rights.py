"""Traps of authorization: what an account of ours may not do."""

from __future__ import annotations

from collections.abc import Iterator

from extender.audit.finding import RIGHT_MISSING
from extender.doctor.seen import Lacking, Seen
from extender.doctor.trap import Caught, Trap

MISSING = Trap(
    RIGHT_MISSING,
    "the account that the extender acts as lacks a right: what needs it is not done",
    "the roles of our manifests, applied again",
)

TRAPS = (MISSING,)


def of_rights(seen: Seen) -> Iterator[Caught]:
    """Name every right that an account of ours lacks."""
    for each in seen.lacking:
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
