"""What the extender says of itself: not ready, notes, and findings about queues and namespaces."""

from __future__ import annotations

from collections.abc import Iterator

from extender.audit.finding import RIGHT_MISSING
from extender.doctor.seen import FindingSeen, Seen
from extender.doctor.trap import Caught, Trap
from extender.doctor.traps.certificates import unprotected
from extender.ports import UNPROTECTED

NOT_READY = Trap(
    "NotReady",
    "the extender decides nothing: pods of its schedulers wait",
    "what it says",
)
NOTED = Trap(
    "Noted",
    "the extender goes on, but for what it says here",
    "what it says",
)
#: Of every reason that a finding has: its name is the reason, and its message has the mend.
_ELSEWHERE = "its message says"

TRAPS = (NOT_READY, NOTED)


def of_findings(seen: Seen) -> Iterator[Caught]:
    """Pass on what the extender says, but for what was seen already."""
    yield from _of_readiness(seen)
    lacks = [f"may not {each.verb} {each.resource};" for each in seen.lacking]
    for each in seen.findings:
        if each.reason == RIGHT_MISSING and any(lack in each.message for lack in lacks):
            continue
        yield of_finding(each)


def of_finding(finding: FindingSeen) -> Caught:
    """Make one a trap; its sentence ends with the mend."""
    wrong, semicolon, mend = finding.message.rpartition("; ")
    trap = Trap(finding.reason, "something is written that makes no sense", _ELSEWHERE)
    where = f"{finding.kind}/{finding.name}"
    return trap.at(where, wrong if semicolon else finding.message, mend if semicolon else "")


def _of_readiness(seen: Seen) -> Iterator[Caught]:
    said = seen.said
    if said is None:
        return
    told = [finding.message for finding in seen.findings]
    news = [line for line in said.lines if not any(each in line or line in each for each in told)]
    for line in news:
        if line.startswith(UNPROTECTED):
            yield unprotected(said.where, line.removeprefix(UNPROTECTED))
            continue
        wrong, semicolon, mend = line.rpartition("; ")
        trap = NOTED if said.is_ready else NOT_READY
        yield trap.at(said.where, wrong if semicolon else line, mend if semicolon else "")
