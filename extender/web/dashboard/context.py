"""What pages are made of: everything they may look at, and nothing they could change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from extender.findings.finding import Finding
from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.policy_file import PolicyFile
from extender.status.history import CycleResult, GangHistory
from extender.web.background import BackgroundWorker
from extender.web.dashboard.gangs import Promises
from extender.whatif.page import RunWhatIf, no_whatif

#: A plan is made every five seconds at least, whatever happens; an older one is worth a word.
STALE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """Asked in the thread that writes pages, but for `pulse`, which any thread may ask."""

    journal: GangHistory
    policies: PolicyFile
    metrics: Metrics
    findings: Callable[[], Sequence[Finding] | None]
    readiness: Callable[[], list[str]]
    standby: Callable[[], list[str]]
    notes: Callable[[], list[str]]
    silence: Callable[[], Mapping[str, float]]
    forecaster: Forecaster
    promises: Promises = lambda _: ((), 0.0)
    suppose: RunWhatIf = no_whatif
    #: Where all work out what costs whole plans: together they take half of a thread.
    bench: BackgroundWorker = field(default_factory=BackgroundWorker)
    now: Callable[[], float] = time.time

    @property
    def last(self) -> CycleResult | None:
        """Give the last pass; None before the first, and while another one leads."""
        return None if self.standby() else self.journal.last

    def age_s(self) -> float:
        """Say how old the last plan is."""
        last = self.journal.last
        return max(0.0, self.now() - last.snapshot.now) if last is not None else 0.0

    def troubles(self) -> list[str]:
        """Say why what is shown may not be what is, in sentences; mostly nothing."""
        standing_by = self.standby()
        if standing_by:
            return [f"{each}; nothing is planned here" for each in standing_by]
        found = self.readiness()
        age_s = self.age_s()
        if age_s > STALE_S:
            found = [f"the last plan is {age_s:.0f} s old", *found]
        return found

    def heartbeat(self) -> bytes:
        """Say in an event how far we are: whoever sees another cycle than before looks anew."""
        last = self.journal.last
        told = {
            "cycle": last.plan.generation if last is not None else 0,
            "at": last.snapshot.now if last is not None else 0,
            "troubled": bool(self.troubles()),
        }
        return b"data: " + msgspec.json.encode(told) + b"\n\n"
