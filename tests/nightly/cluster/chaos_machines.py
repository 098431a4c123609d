"""The turns of machines in a chaos run: programs are killed, frozen, disconnected; clocks step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Timer

from tests.cluster.candidates import Candidate, Candidates
from tests.cluster.components import Scheduler
from tests.cluster.processes import NeverReady, Program
from tests.cluster.replicas import Replica
from tests.cluster.waiting import wait_for
from tests.nightly.faults.record import LEADERS_LINK, Away, Back, Killed, Ready, Record

from .chaos_script import Facts

#: Shorter than the default of 15 s, so that more takeovers fit in a minute.
_LEASE_S = 6.0
_SHORT_LEASE = (f"--lease-duration-s={_LEASE_S:g}", "--lease-renew-s=4", "--lease-retry-s=1")


class SteppedReplica(Replica):
    """An extender whose wall clock can be stepped while it runs."""

    @property
    def offset(self) -> Path:
        return self.log_file.with_suffix(".offset")

    def command(self) -> list[str | Path]:
        python, _, _, *rest = super().command()
        return [
            python,
            "-m",
            "tests.nightly.faults.stepped_clock",
            self.offset,
            *rest,
            *_SHORT_LEASE,
        ]


class Machines:
    """Carries out the turns of machines."""

    def __init__(self, candidates: Candidates, record: Record) -> None:
        self._candidates = candidates
        self._record = record
        self._plane = candidates.plane
        self._scheduler = next(p for p in self._plane.programs if isinstance(p, Scheduler))
        #: The times of takeovers, and failures.
        self.takeovers_s: list[float] = []
        self.complaints: list[str] = []
        self.acts: dict[str, Callable[[Facts], None]] = {
            "leader killed": lambda facts: self._kill(self._leader()),
            "standby killed": lambda facts: self._kill(self._candidates.other(self._leader())),
            "leader ended": self._end_leader,
            "leader frozen": self._freeze_leader,
            "leader cut off": self._cut_off_leader,
            "both killed": lambda facts: self._kill(*self._candidates.members),
            "kube-scheduler killed": self._kill_scheduler,
            "API server restarted": lambda facts: self._plane.apiserver.restart(),
            "API server killed": self._kill_api_server,
            "API server frozen": self._freeze_api_server,
            "clock stepped": self._step,
        }

    def restore(self) -> None:
        """Start everything, with correct clocks."""
        self._check_running(*self._candidates.members)
        for side in self._candidates.members:
            self._set_clock(side, 0)
            if side.extender.is_running:
                side.send_signal(signal.SIGCONT)
        for program in (self._plane.apiserver, self._scheduler):
            if not program.is_running:
                program.start()
        for side in self._candidates.members:
            if not side.extender.is_running:
                self._start(side.extender)
        self._leader()

    def _check_running(self, *sides: Candidate) -> None:
        """Record extenders that ended by themselves: every turn restarts what it has stopped."""
        self.complaints += [
            f"{side.extender.name} had ended by itself"
            for side in sides
            if side.extender.has_crashed
        ]

    def _leader(self) -> Candidate:
        try:
            return self._candidates.leader()
        except AssertionError:
            self.complaints.append("no extender led for a minute")
            return self._candidates.members[0]

    def _kill(self, *sides: Candidate) -> None:
        self._check_running(*sides)
        was_leading = [side for side in sides if side.leads]
        if was_leading:
            self._record_absence(_LEASE_S)
        for side in sides:
            self._record.note(Killed(at=self._record.now(), who=side.pod))
            side.kill()
        killed_at = self._record.now()
        for side in sides:
            # Two that start at once share the machine, so only a single start is timed.
            if self._start(side.extender) and len(sides) == 1:
                self._record.note(Ready(at=self._record.now(), who=side.pod))
        if was_leading:
            self._time_takeover(killed_at)

    def _start(self, program: Program) -> bool:
        try:
            program.start()
        except NeverReady as why:
            self.complaints.append(f"not ready again: {str(why).splitlines()[0]}")
            return False
        return True

    def _time_takeover(self, since: float) -> None:
        self._leader()
        self.takeovers_s.append(self._record.now() - since)

    def _end_leader(self, facts: Facts) -> None:
        leader, began_at = self._leader(), self._record.now()
        leader.extender.terminate()
        self._time_takeover(began_at)
        self._start(leader.extender)

    def _freeze_leader(self, facts: Facts) -> None:
        leader = self._leader()
        self._record_absence(min(facts["for_s"], _LEASE_S))
        leader.send_signal(signal.SIGSTOP)
        try:
            Event().wait(facts["for_s"])
        finally:
            leader.send_signal(signal.SIGCONT)

    def _cut_off_leader(self, facts: Facts) -> None:
        leader = self._leader()
        self._record_absence(min(facts["for_s"], _LEASE_S))
        leader.link.cut()
        try:
            Event().wait(facts["for_s"])
        finally:
            leader.link.restore()

    def _record_absence(self, for_s: float) -> None:
        """Record that the leader reaches no server for *for_s*.

        At most for its lease: then another may lead, and gangs count again.
        """
        record = self._record
        record.note(Away(at=record.now(), who=LEADERS_LINK))
        back = Timer(for_s, lambda: record.note(Back(at=record.now(), who=LEADERS_LINK)))
        back.daemon = True
        back.start()

    def _kill_scheduler(self, facts: Facts) -> None:
        self._scheduler.kill()
        self._scheduler.start()

    def _kill_api_server(self, facts: Facts) -> None:
        self._plane.apiserver.kill()
        self._plane.apiserver.start()

    def _freeze_api_server(self, facts: Facts) -> None:
        os.killpg(self._plane.apiserver.pid, signal.SIGSTOP)
        since = datetime.now(UTC)
        try:
            Event().wait(facts["for_s"])
        finally:
            os.killpg(self._plane.apiserver.pid, signal.SIGCONT)
            # On a busy machine it takes a while until it answers again.
            with suppress(AssertionError):
                wait_for(self._plane.apiserver.is_ready, 20, "the API server goes on")
            self._candidates.audit.server_paused(since, datetime.now(UTC))

    def _step(self, facts: Facts) -> None:
        self._set_clock(self._candidates.members[facts["side"]], facts["by_s"])

    def _set_clock(self, side: Candidate, by_s: float) -> None:
        assert isinstance(side.extender, SteppedReplica)
        side.extender.offset.write_text(str(by_s))
