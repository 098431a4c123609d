"""Review tokens: the API server names the user of a token and the pages that this user may read.

An answer is reused for a few seconds only, so a revoked token stops working by then. While the API
server does not answer, no new reader is admitted.

Many invented tokens must neither overload the API server nor delay other readers. So tokens that
were admitted lately have a queue of their own. All others wait in one queue per client address,
served in turn at a limited rate. Tokens are stored as keyed digests and dropped after the review.
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

from cachetools import LRUCache

from extender.clock import RateLimit, passing
from extender.errors import ApiError, Forbidden
from extender.hooks.limits import Refusal
from extender.logs import event
from extender.ports import Reviewed, Reviewer

log = logging.getLogger(__name__)
#: How long an answer of the API server is reused, positive or negative.
GOOD_S = 10.0
#: How long an admitted token counts as known.
_KNOWN_S = 3600.0
_MAX_KNOWN = 256
#: The rate limit keeps them far below.
_MAX_CACHED = 1024
#: The maximum wait for a review.
MAX_WAIT_S = 10.0
#: After a failed review, how long its queue is refused without a request.
SILENCE_S = 1.0
_CHECK_S = 0.1
_MAX_ADDRESSES = 64
_MAX_PER_ADDRESS = 4
#: Requests that share one review.
_MAX_SHARED = 32
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]+)")
NO_TOKEN = Refusal(
    401,
    "no_token",
    "this page needs a token that the API server knows: send Authorization: Bearer TOKEN"
    " (gang-extender and kubectl gang do with --token-from)",
)
BAD_TOKEN = Refusal(
    401,
    "bad_token",
    "the API server does not know this token, or it is for another audience, has expired or was"
    " revoked; `kubectl create token` makes one",
)
TOO_MANY = Refusal(429, "paced", "too many unknown tokens from this address; try again in a moment")
UNANSWERED = Refusal(
    503,
    "unanswered",
    "the API server does not answer token reviews, so pages are refused; probes are answered",
)
NO_RIGHT = Refusal(
    503,
    "unanswered",
    "the extender may not create token reviews, so pages are refused: apply manifests/ops-auth,"
    " or set operationsAuth in the chart",
)
#: Called once on the loop with the reason of a refusal, or None.
Answer: TypeAlias = Callable[[Refusal | None], None]
_Key: TypeAlias = tuple[bytes, str]


class _Waiting(NamedTuple):
    is_wanted: Callable[[], bool]
    answer: Answer


@dataclass(slots=True, eq=False)
class _PendingReview:
    """One review, and all requests that wait for it."""

    key: _Key
    token: str = field(repr=False)
    queue: _ReviewQueue
    since: float
    waiting: list[_Waiting]
    #: When the API server was called; its answer expires counted from then.
    asked_at: float = 0.0

    @property
    def is_wanted(self) -> bool:
        return any(each.is_wanted() for each in self.waiting)


class _ReviewQueue:
    """Pending reviews, one queue per client address, served in turn at a limited rate."""

    def __init__(self, name: str, rate_limit: RateLimit, *, parallel: int) -> None:
        self.name = name
        self.running = 0
        #: Until then requests are refused with `silence`.
        self.silent_until = float("-inf")
        self.silence = UNANSWERED
        self._parallel = parallel
        self._rate_limit = rate_limit
        self._addresses: dict[str, deque[_PendingReview]] = {}

    def put(self, review: _PendingReview, caller: str) -> bool:
        """Queue *review* behind others of the same address; return False if there are too many."""
        pending = self._addresses.get(caller)
        if pending is None:
            if len(self._addresses) >= _MAX_ADDRESSES:
                return False
            pending = self._addresses[caller] = deque()
        if len(pending) >= _MAX_PER_ADDRESS:
            return False
        pending.append(review)
        return True

    def next(self) -> _PendingReview | None:
        """Return the next review, if the rate allows one; its address goes behind all others."""
        if not self._addresses or self.running >= self._parallel:
            return None
        caller, pending = next(iter(self._addresses.items()))
        if pending[0].is_wanted and not self._rate_limit.try_acquire():
            return None
        review = pending.popleft()
        del self._addresses[caller]
        if pending:
            self._addresses[caller] = pending
        # A review without waiting requests is returned, too: the caller must drop it.
        return review

    def clear(self) -> list[_PendingReview]:
        """Remove and return all pending reviews."""
        reviews = [review for pending in self._addresses.values() for review in pending]
        self._addresses.clear()
        return reviews

    def drop(self, review: _PendingReview) -> None:
        """Remove *review*."""
        for caller, pending in [*self._addresses.items()]:
            if review in pending:
                pending.remove(review)
            if not pending:
                del self._addresses[caller]


class TokenReviews:
    """Decides which requests may read pages; all but the reviews themselves runs on *loop*."""

    def __init__(
        self,
        reviewer: Reviewer,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float] = passing,
        *,
        max_cached: int = _MAX_CACHED,
        max_known: int = _MAX_KNOWN,
    ) -> None:
        self._reviewer = reviewer
        self._loop = loop
        self._monotonic = monotonic
        self._secret = secrets.token_bytes(32)
        self._verdicts: LRUCache[_Key, tuple[float, Refusal | None]] = LRUCache(max_cached)
        self._known_until: LRUCache[bytes, float] = LRUCache(max_known)
        self._open: dict[_Key, _PendingReview] = {}
        self._known_queue = _ReviewQueue("known", RateLimit(20, 50, monotonic), parallel=2)
        self._unknown_queue = _ReviewQueue("unknown", RateLimit(5, 20, monotonic), parallel=2)
        self._timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="reviews")

    def ask(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        page: str,
        caller: str,
        is_wanted: Callable[[], bool],
        answer: Answer,
    ) -> None:
        """Call *answer*, now or later, with why *headers* may not read *page*, or with None."""
        token = _token(headers)
        if token is None:
            answer(NO_TOKEN)
            return
        digest = hashlib.blake2b(token.encode("ascii"), key=self._secret, digest_size=16).digest()
        key, now = (digest, page), self._monotonic()
        until, verdict = self._verdicts.get(key, (now, None))
        if now < until:
            answer(verdict)
        elif (review := self._open.get(key)) is not None:
            self._join(review, _Waiting(is_wanted, answer))
        else:
            queue = self._queue_of(digest, now)
            review = _PendingReview(key, token, queue, now, [_Waiting(is_wanted, answer)])
            if now < queue.silent_until:
                answer(queue.silence)
            elif queue.put(review, caller):
                self._open[key] = review
                self._start_reviews()
            else:
                answer(TOO_MANY)

    def stop(self) -> None:
        """Stop all reviews; called on the loop."""
        if self._timer is not None:
            self._timer.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _join(self, review: _PendingReview, waiting: _Waiting) -> None:
        if len(review.waiting) < _MAX_SHARED:
            review.waiting.append(waiting)
        else:
            waiting.answer(TOO_MANY)

    def _queue_of(self, digest: bytes, now: float) -> _ReviewQueue:
        is_known = now < self._known_until.get(digest, now)
        return self._known_queue if is_known else self._unknown_queue

    def _start_reviews(self) -> None:
        for queue in (self._known_queue, self._unknown_queue):
            while (review := queue.next()) is not None:
                if not review.is_wanted:
                    self._open.pop(review.key, None)
                    continue
                queue.running += 1
                review.asked_at = self._monotonic()
                self._threads.submit(self._review, review)
        if self._open and self._timer is None:
            self._timer = self._loop.call_later(_CHECK_S, self._check)

    def _check(self) -> None:
        """Start reviews whose rate allows it now, and refuse those that waited too long."""
        self._timer = None
        late = self._monotonic() - MAX_WAIT_S
        for review in [each for each in self._open.values() if each.since < late]:
            review.queue.drop(review)
            self._settle(review, UNANSWERED)
        self._start_reviews()

    def _review(self, review: _PendingReview) -> None:
        """Call the API server, in a thread."""
        result: Reviewed | Exception
        try:
            result = self._reviewer.review(review.token, review.key[1])
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop has ended, and no request waits
            self._loop.call_soon_threadsafe(self._take_result, review, result)

    def _take_result(self, review: _PendingReview, result: Reviewed | Exception) -> None:
        review.queue.running -= 1
        if isinstance(result, Exception):
            self._silence(review.queue, result)
            verdict: Refusal | None = review.queue.silence
        else:
            verdict = _verdict(result, review.key[1])
            self._remember(review.key, verdict, review.asked_at)
        self._settle(review, verdict)
        self._start_reviews()

    def _settle(self, review: _PendingReview, verdict: Refusal | None) -> None:
        if self._open.get(review.key) is review:
            del self._open[review.key]
        waiting, review.waiting = review.waiting, []
        for each in waiting:
            each.answer(verdict)

    def _remember(self, key: _Key, verdict: Refusal | None, asked_at: float) -> None:
        self._verdicts[key] = (asked_at + GOOD_S, verdict)
        if verdict is BAD_TOKEN:
            self._known_until.pop(key[0], None)
        elif verdict is None:
            self._known_until[key[0]] = asked_at + _KNOWN_S

    def _silence(self, queue: _ReviewQueue, error: Exception) -> None:
        """Refuse the requests of one queue for a while: the next reviews would fail as well.

        The other queue goes on: the token itself may be the reason of the failure.
        """
        if not isinstance(error, ApiError):
            # Only the type, because the message might contain the token.
            event(log, logging.ERROR, "a review failed", error=type(error).__name__)
        queue.silence = NO_RIGHT if isinstance(error, Forbidden) else UNANSWERED
        queue.silent_until = self._monotonic() + SILENCE_S
        for review in queue.clear():
            self._settle(review, queue.silence)


def _token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the token of the request; None if there is none, or more than one."""
    sent = [value for name, value in headers if name.lower() == b"authorization"]
    found = _BEARER.fullmatch(sent[0].strip()) if len(sent) == 1 else None
    return found[1].decode("ascii") if found else None


def _verdict(result: Reviewed, page: str) -> Refusal | None:
    if not result.user:
        return BAD_TOKEN
    if result.may_read:
        return None
    return Refusal(
        403,
        "not_allowed",
        f"{result.user} may not get {page}; the ClusterRole gang-extender-reads-pages allows it, or"
        f' any rule with nonResourceURLs ["{page}"] and verbs ["get"]',
    )
