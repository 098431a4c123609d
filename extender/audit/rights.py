"""The rights we lack, among what else is wrong in the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from extender.audit.finding import ACCOUNT, RIGHT_MISSING, Finding, Flaw
from extender.ports import Refused

#: What the manual says of it.
REASONS = {
    RIGHT_MISSING: Flaw(
        "the account we act as was refused something in the last ten minutes for want of a"
        " [right](rights.md)",
        "what needs it is not done",
    )
}


def with_missing_rights(
    found: Sequence[Finding] | None, refused: Sequence[Refused]
) -> Sequence[Finding] | None:
    """Add the rights we lack, also before the first plan: without some of them none is made."""
    missing = [Finding(ACCOUNT, each.account, RIGHT_MISSING, each.why) for each in refused]
    return (*(found or ()), *missing) if missing else found
