"""Where what-ifs are worked out, and what would help a gang: questions that cost whole plans.

One at a time, in a thread of its own, and then it rests as long. Not where pages are written,
because everybody else's would wait; and never in the loop of the hooks. Who asks while another
question is worked out is told so: there is no line to stand in.
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
#: Who asks waits so long for the answer; on a small cluster that is enough.
_MOMENT_S = 0.3
#: An answer is good for so long, and for so many times as long as it took: an open page asks again.
GOOD_S = 30.0
_GOOD_FOR = 20.0
#: A name that was not there may be there soon.
_REFUSED_S = 2.0
#: One that is no longer good is shown for so long, until there is a newer one.
_SHOWN_S = 120.0
_MOST_KEPT = 32
Answer = TypeVar("Answer")


class BackgroundReply(NamedTuple, Generic[Answer]):
    """What is to be said now: the answer, or in a sentence why there is none; or neither yet."""

    status: int
    answer: Answer | None = None
    problem: str = ""


PENDING: BackgroundReply[Any] = BackgroundReply(202)
BUSY: BackgroundReply[Any] = BackgroundReply(
    503, problem="busy with the question of somebody else; ask again in a moment"
)
_FAILED: BackgroundReply[Any] = BackgroundReply(
    500, problem="the extender failed to answer; its log has the details"
)


@dataclass(slots=True)
class _Underway:
    question: Hashable
    work: Callable[[], Any]
    good_s: float
    done: threading.Event = field(default_factory=threading.Event)


class _Kept(NamedTuple):
    reply: BackgroundReply[Any]
    good_until: float


class BackgroundWorker:
    """May be asked from any thread."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._pause = pause
        self._lock = threading.Lock()
        self._current: _Underway | None = None
        self._kept: dict[Hashable, _Kept] = {}
        self._rested_at = 0.0

    def ask(
        self,
        question: Hashable,
        work: Callable[[], Answer],
        moment_s: float = _MOMENT_S,
        *,
        good_s: float = GOOD_S,
    ) -> BackgroundReply[Answer]:
        """Give the answer if it is there within a moment; *work* is done only if need be.

        An answer is good for *good_s* at least.
        """
        with self._lock:
            kept = self._known(question)
            if kept is not None and self._monotonic() < kept.good_until:
                return kept.reply
            if self._current is None:
                begun = _Underway(question, work, good_s)
                # There may be no thread to be had; then nothing is under way.
                threading.Thread(
                    target=self._run, args=(begun,), name="what-if", daemon=True
                ).start()
                self._current = begun
            current = self._current
        if current.question == question:
            current.done.wait(moment_s)
            with self._lock:
                kept = self._known(question)
        if kept is not None:
            return kept.reply
        return PENDING if current.question == question else BUSY

    def _known(self, question: Hashable) -> _Kept | None:
        now = self._monotonic()
        self._kept = {
            key: each for key, each in self._kept.items() if now < each.good_until + _SHOWN_S
        }
        return self._kept.get(question)

    def _run(self, current: _Underway) -> None:
        # Others need the processor too: half of the time at most is spent here.
        self._pause(max(0.0, self._rested_at - self._monotonic()))
        began = self._monotonic()
        reply = _reply(current.work)
        now = self._monotonic()
        took = now - began
        with self._lock:
            least_s = current.good_s if reply.answer is not None else _REFUSED_S
            self._kept.pop(current.question, None)
            self._kept[current.question] = _Kept(reply, now + max(least_s, _GOOD_FOR * took))
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._rested_at = now + took
            self._current = None
        current.done.set()


def _reply(work: Callable[[], Any]) -> BackgroundReply[Any]:
    try:
        return BackgroundReply(200, work())
    except InvalidInput as error:
        return BackgroundReply(422, problem=str(error))
    except Exception:
        log.exception("a question about what would be failed")
        return _FAILED


#: Said while it is not known yet.
TRYING = ("being worked out, which takes long here; ask again in a moment",)
#: Up to here whoever asks waits for it, and those behind him.
_REMEDIES_S = 1.0


class CachedRemedies:
    """Says what `remedies` says, or that it is being worked out."""

    def __init__(self, bench: BackgroundWorker) -> None:
        self._bench = bench

    def __call__(
        self, snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey
    ) -> tuple[str, ...]:
        """Say what would let the gang start."""
        # Against another reason something else helps; and what is quickly known is asked anew.
        question = key, plan.verdicts[key].reason
        work = partial(remedies, snapshot, plan, policy, key)
        reply = self._bench.ask(question, work, _REMEDIES_S, good_s=0.0)
        if reply in (PENDING, BUSY):
            return TRYING
        return reply.answer if reply.answer is not None else (reply.problem,)
