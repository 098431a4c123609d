"""What a host that takes the processors excuses: promises of seconds, and none of the others."""

from __future__ import annotations

from collections.abc import Iterable

from tests.nightly.faults import calls, waits, wholeness

NO_END = "no proper end"
SLOW = "slow to be ready again"
GIVEN_UP = "hold given up by kube-scheduler"
#: Nobody is late who did what must never be done.
WRONG_END = "wrong end"
NOT_JUDGED = "not judged"
TRACEBACK = "traceback"

#: By the word before the colon, as breaches are told.
TIMED = frozenset(
    (wholeness.RULE, wholeness.BY_US, waits.RULE, calls.UNANSWERED, GIVEN_UP, NO_END, SLOW)
)


def are_all_of_time(breaches: Iterable[str]) -> bool:
    """Ask whether a machine that had its processors might have shown none of them."""
    return all(words.partition(": ")[0] in TIMED for words in breaches)
