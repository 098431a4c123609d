"""The data that probes, metrics, API and pages read; nothing here can be changed by them."""

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
from extender.web.dashboard.gangs import Reservations
from extender.whatif.page import RunWhatIf, no_whatif

#: A plan is made every five seconds at least; an older one is reported.
STALE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """Read in the thread of the page worker; `heartbeat` is called from any thread."""

    history: GangHistory
    policies: PolicyFile
    metrics: Metrics
    #: Inconsistent objects; None before the first check.
    findings: Callable[[], Sequence[Finding] | None]
    #: What prevents decisions, and the same for the cache alone.
    why_not_ready: Callable[[], list[str]]
    warmth: Callable[[], list[str]]
    #: The leader, if it is another instance.
    standby: Callable[[], list[str]]
    #: What should be fixed although the extender works.
    notes: Callable[[], list[str]]
    #: For how many seconds each watch has been silent.
    silence: Callable[[], Mapping[str, float]]
    forecaster: Forecaster
    #: The unused reservations of a gang.
    reservations: Reservations = lambda _: ((), 0.0)
    #: Answers what-ifs.
    suppose: RunWhatIf = no_whatif
    #: Computes what costs whole plans; all users together take half of one thread.
    background: BackgroundWorker = field(default_factory=BackgroundWorker)
    now: Callable[[], float] = time.time

    @property
    def last(self) -> CycleResult | None:
        """Return the last cycle; None before the first, and on a standby."""
        return None if self.standby() else self.history.last

    def age_s(self) -> float:
        """Return the age of the last plan."""
        last = self.history.last
        return max(0.0, self.now() - last.snapshot.now) if last is not None else 0.0

    def troubles(self) -> list[str]:
        """Return why the pages may not show the current state, in sentences; mostly none."""
        leader = self.standby()
        if leader:
            return [f"{each}; nothing is planned here" for each in leader]
        problems = self.why_not_ready()
        age_s = self.age_s()
        if age_s > STALE_S:
            problems = [f"the last plan is {age_s:.0f} s old", *problems]
        return problems

    def heartbeat(self) -> bytes:
        """Return an event with the current cycle: a page reloads when it changes."""
        last = self.history.last
        state = {
            "cycle": last.plan.generation if last is not None else 0,
            "at": last.snapshot.now if last is not None else 0,
            "troubled": bool(self.troubles()),
        }
        return b"data: " + msgspec.json.encode(state) + b"\n\n"
