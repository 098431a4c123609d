"""Several contenders for one lease, stopped between any two lines, and a referee over them.

Each contender is a thread, but only one runs at a time: it is traced, and after every line of the
leadership room, and before and after everything the API server does for it, it gives the stage
back. So a test, or chance, decides who goes on, and how much time passes before.
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

_ROOM = str(Path(extender.leader.__file__).parent)
EPOCH = 1_000_000.0


class Overlap(AssertionError):
    """Two led at once."""


class Ended(BaseException):
    """The story is over; unwinds a contender wherever it stands."""


class Server:
    """The API server: one lease, compared and swapped."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes: list[Lease] = []
        self._versions = count(1)

    def write(self, lease: Lease) -> Lease:
        if lease.version != (self.lease.version if self.lease else ""):
            raise ApiError("somebody has written since", status=409)
        self.lease = msgspec.structs.replace(lease, version=str(next(self._versions)))
        self.writes.append(self.lease)
        return self.lease


class Contender:
    """One extender: a lease keeper in a traced thread, and a loop that works when told to.

    It is the clock, the event loop and the way to the API server of its keeper, too.
    """

    def __init__(
        self, stage: Stage, name: str, *, keeper: Callable[..., Any] = OwnLease, rate: float = 1.0
    ) -> None:
        self.name = name
        self._stage = stage
        self._rate = rate
        self.wall_is_off_by = 0.0
        self.is_warm = True
        #: What the API server will do to the next request: nothing, "lose" it, or its "answer".
        self.trouble = ""
        #: How long it takes over each.
        self.answers_in_s = 0.0
        self.term = Term(self.monotonic)
        self.metrics = Metrics()
        self.succession = LeaseTracker(self.term, self, self.metrics)
        self.told: list[str] = []
        self.succession.on_change(
            begun=lambda: self.told.append("begun"), ended=lambda: self.told.append("ended")
        )
        self.sent: list[float] = []
        self._soon: list[Callable[[], object]] = []
        self._due = float("-inf")
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._is_over = False
        self.crash: BaseException | None = None
        self.keeper = keeper(
            self, name, LeaseTiming(), self, self.succession, is_warm=lambda: self.is_warm
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # What the keeper sees

    def monotonic(self) -> float:
        return 100.0 + self._stage.seconds * self._rate

    def now(self) -> float:
        return EPOCH + self._stage.seconds + self.wall_is_off_by

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def read(self) -> Lease | None:
        return self._ask(lambda: self._stage.server.lease)

    def write(self, lease: Lease) -> Lease:
        written = self._ask(lambda: self._stage.server.write(lease))
        assert written is not None
        return written

    def _ask(self, request: Callable[[], Lease | None]) -> Lease | None:
        self._pause()  # on its way there
        trouble, self.trouble = self.trouble, ""
        if trouble == "lose":
            raise NoResponse("lost on the way")
        answer = request()
        self._due = self.monotonic() + self.answers_in_s
        self._pause()  # on its way back
        if trouble == "answer":
            raise NoResponse("the answer was lost")
        return answer

    # The stage

    def go_on(self) -> None:
        """Let the keeper do one more line, if it does not rest."""
        if self.monotonic() < self._due:
            return
        self._turn.release()
        self._back.acquire()
        if self.crash is not None:
            raise self.crash

    def work_off(self) -> None:
        """Let the event loop do what it was asked to."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()
        self.succession.check_term()

    def act(self) -> None:
        """Send something, if allowed: nothing can come between the look and the sending."""
        if self.term.current():
            self.sent.append(self._stage.seconds)

    @property
    def leads(self) -> bool:
        return bool(self.term.current())

    def end(self) -> None:
        self._is_over = True
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        self._turn.acquire()
        sys.settrace(self._trace)
        try:
            while not self._is_over:
                rest_s = self.keeper.step()
                self._due = self.monotonic() + rest_s
                self._pause()
        except Ended:
            pass
        except BaseException as error:
            self.crash = error
        finally:
            sys.settrace(None)
            self._back.release()

    def _trace(self, frame: FrameType, happens: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_ROOM):
            return None
        if happens == "line":
            self._pause()
        return self._trace

    def _pause(self) -> None:
        if self._is_over or threading.current_thread() is not self._thread:
            return  # it unwinds already, or is asked by the event loop
        self._back.release()
        self._turn.acquire()
        if self._is_over:
            raise Ended


class Stage:
    """Time, the API server and the contenders; the referee looks after every step."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.server = Server()
        self.contenders: list[Contender] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.contenders:
            each.end()

    def add(self, name: str, **facts: Any) -> Contender:
        contender = Contender(self, name, **facts)
        self.contenders.append(contender)
        return contender

    def let(self, contender: Contender, lines: int = 1) -> None:
        for _ in range(lines):
            contender.go_on()
            self.look()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.look()

    def run(self, seconds: float, *running: Contender, every_s: float = 0.1) -> None:
        """Let *running* go on as they do when nobody disturbs them; the others are frozen."""
        until = self.seconds + seconds
        while self.seconds < until:
            for each in running:
                self.let(each, lines=100)
                each.work_off()
                each.act()
                self.look()
            self.advance(every_s)

    def look(self) -> None:
        leading = [each.name for each in self.contenders if each.leads]
        if len(leading) > 1:
            raise Overlap(f"{leading} lead at {self.seconds}")
