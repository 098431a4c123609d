"""Which breaches steal time may cause: those of time limits, and no others."""

from __future__ import annotations

from collections.abc import Iterable

from tests.nightly.faults import calls, partial_gangs, waits

NO_END = "no proper end"
SLOW = "slow to be ready again"
GIVEN_UP = "hold given up by kube-scheduler"
#: A pod started that must not: never a matter of time.
WRONG_END = "wrong end"
NOT_JUDGED = "not judged"
TRACEBACK = "traceback"

#: The rules before the colon of a breach.
TIMED = frozenset(
    (partial_gangs.RULE, partial_gangs.BY_US, waits.RULE, calls.UNANSWERED, GIVEN_UP, NO_END, SLOW)
)


def are_all_of_time(breaches: Iterable[str]) -> bool:
    """Return whether all of them may be caused by steal time."""
    return all(words.partition(": ")[0] in TIMED for words in breaches)
