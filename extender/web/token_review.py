"""Who may read a page? The API server is asked who bears a token, and what that one may read.

What it said is good for a few seconds and no longer: whoever it does not know any more is out by
then. While it says nothing, nobody new is let in.

A crowd with made-up tokens must neither become a crowd at the API server's door nor keep others
from theirs. So whoever was let in lately has a lane of their own. All others wait in a row for each
address they come from; the rows take turns, and turns have a pace. Tokens are known by a keyed
digest and forgotten as soon as they were asked about.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from extender.clock import RateLimit, passing
from extender.errors import ApiError, Forbidden
from extender.hooks.limits import Refusal
from extender.logs import event
from extender.ports import Reviewed, Reviewer

log = logging.getLogger(__name__)
#: How long an answer of the API server is good, whatever it was.
GOOD_S = 10.0
#: Whoever was let in has the lane of friends for so long.
_FRIEND_S = 3600.0
_MOST_FRIENDS = 256
#: The pace keeps them far below.
_MOST_KEPT = 1024
#: Nobody waits longer to be let in.
PATIENCE_S = 10.0
#: After an answer that was none, nobody of that lane asks for so long.
SILENT_S = 1.0
_LOOK_S = 0.1
_MOST_ROWS = 64
_LONGEST_ROW = 4
#: Who wait for the same answer.
_MOST_TOGETHER = 32
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]+)")
NO_TOKEN = Refusal(
    401,
    "no_token",
    "this page is for those whom the API server knows: send a token, as Authorization: Bearer TOKEN"
    " (gang-extender and kubectl gang do with --token-from)",
)
BAD_TOKEN = Refusal(
    401,
    "bad_token",
    "the API server does not know this token, or it is for another audience, has expired or was"
    " revoked; `kubectl create token` makes one",
)
TOO_MANY = Refusal(
    429, "paced", "too many tokens that we do not know come from there; ask again in a moment"
)
UNANSWERED = Refusal(
    503,
    "unanswered",
    "the API server does not say who asks, and until it does nobody is told anything; probes are"
    " answered",
)
NO_RIGHT = Refusal(
    503,
    "unanswered",
    "the extender may not ask the API server who asks, so nobody is told anything: apply"
    " manifests/ops-auth, or set operationsAuth in the chart",
)
#: Hears why somebody is refused, or None; on the loop, once.
Answer: TypeAlias = Callable[[Refusal | None], None]
_Key: TypeAlias = tuple[bytes, str]


class _Waiting(NamedTuple):
    is_wanted: Callable[[], bool]
    answer: Answer


@dataclass(slots=True, eq=False)
class _PendingReview:
    """One question to the API server, and all who wait for the answer."""

    key: _Key
    token: str = field(repr=False)
    lane: _ReviewQueue
    since: float
    waiting: list[_Waiting]
    #: When the API server was asked; nothing it says is good for longer than from then.
    asked_at: float = 0.0

    @property
    def is_wanted(self) -> bool:
        return any(each.is_wanted() for each in self.waiting)


class _ReviewQueue:
    """Questions that have not been asked, in rows that take turns at a pace."""

    def __init__(self, name: str, pace: RateLimit, *, at_once: int) -> None:
        self.name = name
        self.running = 0
        #: Until then nobody asks here, and this is what they hear.
        self.silent_until = float("-inf")
        self.silence = UNANSWERED
        self._at_once = at_once
        self._pace = pace
        self._rows: dict[str, deque[_PendingReview]] = {}

    def put(self, case: _PendingReview, caller: str) -> bool:
        """Let *case* wait behind others of the same address; false when there are too many."""
        row = self._rows.get(caller)
        if row is None:
            if len(self._rows) >= _MOST_ROWS:
                return False
            row = self._rows[caller] = deque()
        if len(row) >= _LONGEST_ROW:
            return False
        row.append(case)
        return True

    def next(self) -> _PendingReview | None:
        """Give whose turn it is, if there is one now; the row goes behind all others."""
        while self._rows and self.running < self._at_once:
            caller = next(iter(self._rows))
            row = self._rows[caller]
            if row[0].is_wanted and not self._pace.try_acquire():
                return None
            case = row.popleft()
            del self._rows[caller]
            if row:
                self._rows[caller] = row
            # Even one whom nobody wants is given: somebody has to forget it.
            return case
        return None

    def clear(self) -> list[_PendingReview]:
        """Let nobody wait any more, and give who did."""
        waited = [case for row in self._rows.values() for case in row]
        self._rows.clear()
        return waited

    def drop(self, case: _PendingReview) -> None:
        """Let *case* wait no more."""
        for caller, row in [*self._rows.items()]:
            if case in row:
                row.remove(case)
            if not row:
                del self._rows[caller]


class TokenReviews:
    """Says who may read; everything but the asking itself happens on *loop*."""

    def __init__(
        self,
        reviewer: Reviewer,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float] = passing,
        *,
        most_kept: int = _MOST_KEPT,
        most_friends: int = _MOST_FRIENDS,
    ) -> None:
        self._most_kept = most_kept
        self._most_friends = most_friends
        self._reviewer = reviewer
        self._loop = loop
        self._monotonic = monotonic
        self._secret = secrets.token_bytes(32)
        self._known: dict[_Key, tuple[float, Refusal | None]] = {}
        self._friends_until: dict[bytes, float] = {}
        self._open: dict[_Key, _PendingReview] = {}
        self._friends = _ReviewQueue("known", RateLimit(20, 50, monotonic), at_once=2)
        self._strangers = _ReviewQueue("unknown", RateLimit(5, 20, monotonic), at_once=2)
        self._looking: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="reviews")

    def ask(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        page: str,
        caller: str,
        is_wanted: Callable[[], bool],
        answer: Answer,
    ) -> None:
        """Say whether whoever sent *headers* from *caller* may read *page*, now or later."""
        token = _token(headers)
        if token is None:
            answer(NO_TOKEN)
            return
        digest = hashlib.blake2b(token.encode("ascii"), key=self._secret, digest_size=16).digest()
        key, now = (digest, page), self._monotonic()
        until, verdict = self._known.get(key, (now, None))
        if now < until:
            answer(verdict)
        elif (case := self._open.get(key)) is not None:
            self._join(case, _Waiting(is_wanted, answer))
        else:
            lane = self._lane(digest, now)
            case = _PendingReview(key, token, lane, now, [_Waiting(is_wanted, answer)])
            if now < lane.silent_until:
                answer(lane.silence)
            elif lane.put(case, caller):
                self._open[key] = case
                self._go_on()
            else:
                answer(TOO_MANY)

    def stop(self) -> None:
        """Ask no more; called on the loop."""
        if self._looking is not None:
            self._looking.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _join(self, case: _PendingReview, waiting: _Waiting) -> None:
        if len(case.waiting) < _MOST_TOGETHER:
            case.waiting.append(waiting)
        else:
            waiting.answer(TOO_MANY)

    def _lane(self, digest: bytes, now: float) -> _ReviewQueue:
        is_friend = now < self._friends_until.get(digest, now)
        return self._friends if is_friend else self._strangers

    def _go_on(self) -> None:
        for lane in (self._friends, self._strangers):
            while (case := lane.next()) is not None:
                if not case.is_wanted:
                    self._open.pop(case.key, None)
                    continue
                lane.running += 1
                case.asked_at = self._monotonic()
                self._threads.submit(self._review, case)
        if self._open and self._looking is None:
            self._looking = self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Go on with those who wait for their turn, and send those away who waited too long."""
        self._looking = None
        late = self._monotonic() - PATIENCE_S
        for case in [each for each in self._open.values() if each.since < late]:
            case.lane.drop(case)
            self._settle(case, UNANSWERED)
        self._go_on()

    def _review(self, case: _PendingReview) -> None:
        """Ask, in a thread."""
        told: Reviewed | Exception
        try:
            told = self._reviewer.review(case.token, case.key[1])
        except Exception as error:
            told = error
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._heard, case, told)

    def _heard(self, case: _PendingReview, told: Reviewed | Exception) -> None:
        case.lane.running -= 1
        if isinstance(told, Exception):
            self._silence(case.lane, told)
            verdict: Refusal | None = case.lane.silence
        else:
            verdict = _verdict(told, case.key[1])
            self._keep(case.key, verdict, case.asked_at)
        self._settle(case, verdict)
        self._go_on()

    def _settle(self, case: _PendingReview, verdict: Refusal | None) -> None:
        if self._open.get(case.key) is case:
            del self._open[case.key]
        waiting, case.waiting = case.waiting, []
        for each in waiting:
            each.answer(verdict)

    def _keep(self, key: _Key, verdict: Refusal | None, asked_at: float) -> None:
        self._known.pop(key, None)
        self._known[key] = (asked_at + GOOD_S, verdict)
        if len(self._known) > self._most_kept:
            del self._known[next(iter(self._known))]
        if verdict is BAD_TOKEN:
            self._friends_until.pop(key[0], None)
        elif verdict is None:
            self._friends_until.pop(key[0], None)
            self._friends_until[key[0]] = asked_at + _FRIEND_S
            if len(self._friends_until) > self._most_friends:
                del self._friends_until[next(iter(self._friends_until))]

    def _silence(self, lane: _ReviewQueue, error: Exception) -> None:
        """Let the lane rest, for whoever asked next would hear no more.

        Not the other one: a token may be such that nobody can tell whose it is.
        """
        if not isinstance(error, ApiError):
            # Only of which kind it is, for its words might have the token in them.
            event(log, logging.ERROR, "a review failed", error=type(error).__name__)
        lane.silence = NO_RIGHT if isinstance(error, Forbidden) else UNANSWERED
        lane.silent_until = self._monotonic() + SILENT_S
        for case in lane.clear():
            self._settle(case, lane.silence)


def _token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Give the one token that was sent; None when there is none, or more than one."""
    told = [value for name, value in headers if name.lower() == b"authorization"]
    found = _BEARER.fullmatch(told[0].strip()) if len(told) == 1 else None
    return found[1].decode("ascii") if found else None


def _verdict(told: Reviewed, page: str) -> Refusal | None:
    if not told.user:
        return BAD_TOKEN
    if told.may_read:
        return None
    return Refusal(
        403,
        "not_allowed",
        f"{told.user} may not get {page}; the ClusterRole gang-extender-reads-pages, or any rule"
        f' with nonResourceURLs ["{page}"] and verbs ["get"], lets them',
    )
