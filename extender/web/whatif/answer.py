"""What would be, in words: small enough to be kept for whoever asks the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from extender.errors import BadInput
from extender.plan.policy.options import Policy
from extender.recording.differences import Differing
from extender.reporting.journal import Pass
from extender.web.whatif.question import Supposition


class AskedGang(NamedTuple):
    """What would become of the gang that is asked about."""

    gang: str
    standing: str
    #: Whether it would start, in words.
    starts: str
    reason: str
    message: str
    #: Where its members would go, empty if nowhere now.
    places: str
    #: When it would start if it waits, and on what ground.
    estimate: str
    #: Who is ahead of it, who would leave for it, what would let it start: titles and lines.
    lists: tuple[tuple[str, tuple[str, ...]], ...]


class Foreseen(NamedTuple):
    """What would be, were it as supposed."""

    #: Of the plan whose cluster is asked about.
    cycle: int
    at: float
    asked: tuple[AskedGang, ...]
    changes: tuple[Differing, ...]
    #: With those that are not named.
    change_count: int
    remarks: tuple[str, ...]


#: Plans the cluster of a pass once as it is and once as supposed; costs as much as two passes.
Suppose: TypeAlias = Callable[[Pass, Policy, Supposition], Foreseen]


def nothing_supposed(last: Pass, policy: Policy, asked: Supposition) -> Foreseen:
    """Say that nobody here works anything out."""
    raise BadInput("nothing can be supposed here; ask with gang-extender plan --live")
