"""Several replicas for one lease, stopped between any two lines, and a referee over them.

Each replica is a thread, but only one runs at a time: it is traced, and after every line of the
package leader, and before and after each request to the API server, it stops. So a test, or
a random generator, decides which replica runs next, and how much time passes before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import extender.leader
from extender.errors import ApiError, NoResponse
from extender.leader.fencing import Term
from extender.leader.lease import LeaseTiming, LeaseTracker, OwnLease
from extender.metrics import Metrics
from extender.ports import Lease

_PACKAGE = str(Path(extender.leader.__file__).parent)
EPOCH = 1_000_000.0


class Overlap(AssertionError):
    """Two replicas lead at once."""


class Ended(BaseException):
    """Ends the thread of a replica at any line."""


class Server:
    """The API server: one lease, compared and swapped."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes: list[Lease] = []
        self._versions = count(1)

    def write(self, lease: Lease) -> Lease:
        if lease.version != (self.lease.version if self.lease else ""):
            raise ApiError("the lease was written since", status=409)
        self.lease = msgspec.structs.replace(lease, version=str(next(self._versions)))
        self.writes.append(self.lease)
        return self.lease


class Replica:
    """One extender: a lease keeper in a traced thread, and an event loop that a test runs.

    It is also the clock, the event loop and the API client of its lease keeper.
    """

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        *,
        lease_keeper: Callable[..., Any] = OwnLease,
        rate: float = 1.0,
    ) -> None:
        self.name = name
        self.simulation = simulation
        self._rate = rate
        self.wall_offset_s = 0.0
        self.is_warm = True
        #: What the API server will do to the next request: nothing, "lose" it, or its "answer".
        self.fault = ""
        #: How long a response takes.
        self.response_delay_s = 0.0
        self.term = Term(self.monotonic)
        self.metrics = Metrics()
        self.tracker = LeaseTracker(self.term, self, self.metrics)
        self.changes: list[str] = []
        self.tracker.on_change(
            begun=lambda: self.changes.append("begun"), ended=lambda: self.changes.append("ended")
        )
        self.sent: list[float] = []
        self._callbacks: list[Callable[[], object]] = []
        self._resumes_at = float("-inf")
        self._may_run = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._is_over = False
        self.crash: BaseException | None = None
        self.lease_keeper = lease_keeper(
            self, name, LeaseTiming(), self, self.tracker, is_warm=lambda: self.is_warm
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # What the lease keeper sees

    def monotonic(self) -> float:
        return 100.0 + self.simulation.seconds * self._rate

    def now(self) -> float:
        return EPOCH + self.simulation.seconds + self.wall_offset_s

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._callbacks.append(callback)

    def read(self) -> Lease | None:
        return self._ask(lambda: self.simulation.server.lease)

    def write(self, lease: Lease) -> Lease:
        written = self._ask(lambda: self.simulation.server.write(lease))
        assert written is not None
        return written

    def _ask(self, request: Callable[[], Lease | None]) -> Lease | None:
        self._pause()  # before the request arrives
        fault, self.fault = self.fault, ""
        if fault == "lose":
            raise NoResponse("lost on the way")
        answer = request()
        self._resumes_at = self.monotonic() + self.response_delay_s
        self._pause()  # before the response arrives
        if fault == "answer":
            raise NoResponse("the answer was lost")
        return answer

    # The simulation

    def run_line(self) -> None:
        """Run one more line of the lease keeper, unless it waits."""
        if self.monotonic() < self._resumes_at:
            return
        self._may_run.release()
        self._paused.acquire()
        if self.crash is not None:
            raise self.crash

    def run_callbacks(self) -> None:
        """Run the callbacks of the event loop."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self.tracker.check_term()

    def act(self) -> None:
        """Send something, if the lease is held; nothing can come between check and sending."""
        if self.term.current():
            self.sent.append(self.simulation.seconds)

    @property
    def leads(self) -> bool:
        return bool(self.term.current())

    def end(self) -> None:
        self._is_over = True
        self._may_run.release()
        self._thread.join()

    def _run(self) -> None:
        self._may_run.acquire()
        sys.settrace(self._trace)
        try:
            while not self._is_over:
                rest_s = self.lease_keeper.step()
                self._resumes_at = self.monotonic() + rest_s
                self._pause()
        except Ended:
            pass
        except BaseException as error:
            self.crash = error
        finally:
            sys.settrace(None)
            self._paused.release()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            self._pause()
        return self._trace

    def _pause(self) -> None:
        if self._is_over or threading.current_thread() is not self._thread:
            return  # the thread ends already, or the event loop calls
        self._paused.release()
        self._may_run.acquire()
        if self._is_over:
            raise Ended


class Simulation:
    """Time, the API server and the replicas; the referee looks after every step."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.server = Server()
        self.replicas: list[Replica] = []

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.replicas:
            each.end()

    def add(self, name: str, **facts: Any) -> Replica:
        replica = Replica(self, name, **facts)
        self.replicas.append(replica)
        return replica

    def step(self, replica: Replica, lines: int = 1) -> None:
        for _ in range(lines):
            replica.run_line()
            self.check()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.check()

    def run(self, seconds: float, *running: Replica, every_s: float = 0.1) -> None:
        """Run the replicas *running* without faults; the others are suspended."""
        until = self.seconds + seconds
        while self.seconds < until:
            for each in running:
                self.step(each, lines=100)
                each.run_callbacks()
                each.act()
                self.check()
            self.advance(every_s)

    def check(self) -> None:
        leading = [each.name for each in self.replicas if each.leads]
        if len(leading) > 1:
            raise Overlap(f"{leading} lead at {self.seconds}")
