"""Compute what-ifs and remedies in the background: each costs whole plans.

One computation runs at a time, in a thread of its own that then rests as long. It does not run in
the page worker, where all other pages would wait, and never on the loop of the hooks. While one
question is computed, others get a 503; there is no queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from extender.errors import InvalidInput
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner.explain.explain import remedies
from extender.planner.plan import Plan
from extender.planner.policy import Policy

log = logging.getLogger(__name__)
#: How long a request waits for the result; on a small cluster that is enough.
_WAIT_S = 0.3
#: How long a result is reused, at least and by its computation time: an open page asks again.
GOOD_S = 30.0
REUSE_FACTOR = 20.0
#: How long an invalid request is cached: a missing object may soon exist.
_INVALID_S = 2.0
#: How long an expired result is shown until there is a newer one.
_STALE_S = 120.0
_MAX_CACHED = 32
Answer = TypeVar("Answer")


class BackgroundReply(NamedTuple, Generic[Answer]):
    """The reply for now: the answer, a sentence why there is none, or neither yet."""

    status: int
    answer: Answer | None = None
    problem: str = ""


PENDING: BackgroundReply[Any] = BackgroundReply(202)
BUSY: BackgroundReply[Any] = BackgroundReply(
    503, problem="busy with another question; try again in a moment"
)
_FAILED: BackgroundReply[Any] = BackgroundReply(
    500, problem="the extender failed to answer; its log has the details"
)


@dataclass(slots=True)
class _Computation:
    question: Hashable
    work: Callable[[], Any]
    good_s: float
    done: threading.Event = field(default_factory=threading.Event)


class _Cached(NamedTuple):
    reply: BackgroundReply[Any]
    good_until: float


class BackgroundWorker:
    """Runs one computation at a time and caches results; called from any thread."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause
        self._lock = threading.Lock()
        self._current: _Computation | None = None
        self._cache: dict[Hashable, _Cached] = {}
        self._resume_at = 0.0

    def __len__(self) -> int:
        """Return the number of cached results."""
        return len(self._cache)

    def ask(
        self,
        question: Hashable,
        work: Callable[[], Answer],
        wait_s: float = _WAIT_S,
        *,
        good_s: float = GOOD_S,
    ) -> BackgroundReply[Answer]:
        """Return the answer if it is there within a moment; start *work* if necessary.

        The answer is reused for *good_s* at least.
        """
        with self._lock:
            cached = self._cached(question)
            if cached is not None and self._monotonic() < cached.good_until:
                return cached.reply
            if self._current is None:
                current = _Computation(question, work, good_s)
                # If no thread can start, nothing is in progress.
                threading.Thread(
                    target=self._run, args=(current,), name="what-if", daemon=True
                ).start()
                self._current = current
            current = self._current
        if current.question == question:
            current.done.wait(wait_s)
            with self._lock:
                cached = self._cached(question)
        if cached is not None:
            return cached.reply
        return PENDING if current.question == question else BUSY

    def _cached(self, question: Hashable) -> _Cached | None:
        now = self._monotonic()
        self._cache = {
            key: each for key, each in self._cache.items() if now < each.good_until + _STALE_S
        }
        return self._cache.get(question)

    def _run(self, current: _Computation) -> None:
        # At most half of one thread's time is spent here; the hooks need the CPU.
        self._pause(max(0.0, self._resume_at - self._monotonic()))
        began = self._monotonic()
        reply = _reply(current.work)
        now = self._monotonic()
        duration_s = now - began
        with self._lock:
            least_s = current.good_s if reply.answer is not None else _INVALID_S
            self._cache.pop(current.question, None)
            self._cache[current.question] = _Cached(
                reply, now + max(least_s, REUSE_FACTOR * duration_s)
            )
            while len(self._cache) > _MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._resume_at = now + duration_s
            self._current = None
        current.done.set()


def _reply(work: Callable[[], Any]) -> BackgroundReply[Any]:
    try:
        return BackgroundReply(200, work())
    except InvalidInput as error:
        return BackgroundReply(422, problem=str(error))
    except Exception:
        log.exception("what-if failed")
        return _FAILED


#: The text while the result is not known yet.
TRYING = ("still being computed, which takes long on this cluster; try again in a moment",)
#: How long a request waits for remedies, and the requests behind it.
_REMEDIES_S = 1.0


class CachedRemedies:
    """Returns the result of `remedies`, or that it is still being computed."""

    def __init__(self, worker: BackgroundWorker, wait_s: float = _REMEDIES_S) -> None:
        self._worker = worker
        self._wait_s = wait_s

    def __call__(
        self, snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey
    ) -> tuple[str, ...]:
        """Return what would let the gang start."""
        # Another reason has other remedies. A fast result is not reused but computed again.
        question = key, plan.verdicts[key].reason
        work = partial(remedies, snapshot, plan, policy, key)
        reply = self._worker.ask(question, work, self._wait_s, good_s=0.0)
        if reply in (PENDING, BUSY):
            return TRYING
        return reply.answer if reply.answer is not None else (reply.problem,)
