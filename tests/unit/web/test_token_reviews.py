"""Token reviews: asked of the API server, cached for a short time, and rate limited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from extender.errors import ApiError, Forbidden, NoResponse
from extender.hooks.limits import Refusal
from extender.ports import Reviewed
from extender.web.token_review import (
    BAD_TOKEN,
    GOOD_S,
    MAX_WAIT_S,
    NO_RIGHT,
    NO_TOKEN,
    SILENCE_S,
    TOO_MANY,
    UNANSWERED,
    TokenReviews,
)
from tests.unit.web.conftest import eventually

HERE, THERE = "10.0.0.1", "10.0.0.2"
Verdict = Refusal | None


class FakeTokenReviews:
    """Replaces the API server: knows some tokens, and may block its responses."""

    def __init__(self) -> None:
        self.users = {"good": "monitoring", "poor": "tenant"}
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def review(self, token: str, page: str) -> Reviewed:
        self.asked.append((token, page))
        assert self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        user = self.users.get(token, "")
        return Reviewed(user=user, may_read=user == "monitoring" and not page.endswith("/snapshot"))


class ReviewsHarness:
    """Token reviews on their own loop, with a clock that the test advances."""

    def __init__(self, **bounds: int) -> None:
        self.now = 1000.0
        self.reviewer = FakeTokenReviews()
        self.loop = asyncio.new_event_loop()
        self.reviews = TokenReviews(self.reviewer, self.loop, lambda: self.now, **bounds)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.reviewer.may_answer.set()
        self.loop.call_soon_threadsafe(self.reviews.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def send(
        self,
        token: str,
        page: str = "/metrics",
        caller: str = HERE,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Future[Verdict]:
        headers = [(b"Host", b"x"), (b"Authorization", f"Bearer {token}".encode())]
        return self.raw(headers, page, caller, is_wanted)

    def raw(
        self,
        headers: list[tuple[bytes, bytes]],
        page: str = "/metrics",
        caller: str = HERE,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Future[Verdict]:
        verdict: Future[Verdict] = Future()
        self.loop.call_soon_threadsafe(
            self.reviews.ask, headers, page, caller, is_wanted, verdict.set_result
        )
        return verdict

    def ask(self, token: str, page: str = "/metrics", caller: str = HERE) -> Verdict:
        return self.send(token, page, caller).result(20)

    def settle(self) -> None:
        """Wait until every request has been processed."""
        done: Future[None] = Future()
        self.loop.call_soon_threadsafe(done.set_result, None)
        done.result(20)


@pytest.fixture
def harness() -> Iterator[ReviewsHarness]:
    made = ReviewsHarness()
    yield made
    made.close()


def test_only_an_authenticated_and_authorized_user_is_accepted(harness: ReviewsHarness) -> None:
    assert harness.ask("good") is None
    assert harness.raw([(b"AUTHORIZATION", b"bearer  good ")]).result(20) is None
    assert harness.ask("made-up") is BAD_TOKEN
    for token, page, user in (
        ("poor", "/metrics", "tenant"),
        ("good", "/gang-extender/snapshot", "monitoring"),
    ):
        refused = harness.ask(token, page)
        assert refused is not None
        assert (refused.status, refused.reason) == (403, "not_allowed")
        assert f"{user} may not get {page}" in refused.why


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"Authorization", b"")],
        [(b"Authorization", b"Bearer")],
        [(b"Authorization", b"Bearer ")],
        [(b"Authorization", b"Basic Z29vZA==")],
        [(b"Authorization", b"Bearer go od")],
        [(b"Authorization", b"Bearer g\xc3\xb6\xc3\xb6d")],
        [(b"Authorization", b"Bearer good"), (b"authorization", b"Bearer good")],
        [(b"X-Authorization", b"Bearer good")],
    ],
    ids=repr,
)
def test_a_header_without_a_token_is_not_reviewed(
    harness: ReviewsHarness, headers: list[tuple[bytes, bytes]]
) -> None:
    assert harness.raw(headers).result(20) is NO_TOKEN
    assert harness.reviewer.asked == []


def test_a_review_is_cached_for_a_while_and_then_repeated(harness: ReviewsHarness) -> None:
    for token in ("good", "good", "made-up", "made-up"):
        harness.ask(token)
    assert [token for token, _ in harness.reviewer.asked] == ["good", "made-up"]

    del harness.reviewer.users["good"]
    harness.now += GOOD_S + 0.1
    assert harness.ask("good") is BAD_TOKEN
    assert len(harness.reviewer.asked) == 3


def test_a_review_is_valid_from_its_request_and_not_from_its_response(
    harness: ReviewsHarness,
) -> None:
    harness.reviewer.may_answer.clear()
    verdict = harness.send("good")
    eventually(lambda: len(harness.reviewer.asked) == 1)
    harness.now += 6.0
    harness.reviewer.may_answer.set()
    assert verdict.result(20) is None
    harness.now += GOOD_S - 5.0

    harness.ask("good")
    assert len(harness.reviewer.asked) == 2


def test_concurrent_requests_with_one_token_share_one_review(harness: ReviewsHarness) -> None:
    harness.reviewer.may_answer.clear()
    verdict = [harness.send("good") for _ in range(20)]
    harness.settle()
    harness.reviewer.may_answer.set()

    assert [each.result(20) for each in verdict] == [None] * 20
    assert harness.reviewer.asked == [("good", "/metrics")]


def test_reviews_of_a_thousand_invalid_tokens_are_rate_limited(harness: ReviewsHarness) -> None:
    verdicts = [harness.ask(f"made-up-{number}") for number in range(20)]
    verdict = [harness.send(f"made-up-{number}") for number in range(20, 1000)]
    harness.settle()

    assert set(verdicts) == {BAD_TOKEN}
    refused = [each for each in verdict if each.done()]
    assert len(refused) == 976
    assert {each.result() for each in refused} == {TOO_MANY}
    # Queued requests are reviewed later, five in a second.
    assert len(harness.reviewer.asked) == 20
    harness.now += 0.6
    eventually(lambda: len(harness.reviewer.asked) == 23)
    harness.settle()
    assert len(harness.reviewer.asked) == 23


def test_many_tokens_from_one_address_do_not_block_another_address(harness: ReviewsHarness) -> None:
    for number in range(20):
        harness.ask(f"made-up-{number}")
    for number in range(20, 500):
        harness.send(f"made-up-{number}")
    verdict = harness.send("good", caller=THERE)
    harness.settle()
    harness.now += 0.41  # two reviews: one of each address

    assert verdict.result(20) is None


def test_slow_reviews_of_unknown_tokens_do_not_delay_a_reviewed_user(
    harness: ReviewsHarness,
) -> None:
    assert harness.ask("good") is None
    harness.now += GOOD_S + 0.1
    slow = threading.Event()
    review = harness.reviewer.review

    def dawdle(token: str, page: str) -> Reviewed:
        assert token == "good" or slow.wait(60)
        return review(token, page)

    harness.reviewer.review = dawdle  # type: ignore[method-assign]
    try:
        for number in range(50):
            harness.send(f"made-up-{number}", caller=f"10.0.1.{number}")
        assert harness.ask("good") is None
    finally:
        slow.set()


def test_requests_do_not_wait_for_ever_for_an_unresponsive_api_server(
    harness: ReviewsHarness,
) -> None:
    harness.reviewer.may_answer.clear()
    verdict = harness.send("good")
    eventually(lambda: len(harness.reviewer.asked) == 1)
    harness.now += MAX_WAIT_S + 0.1

    assert verdict.result(20) is UNANSWERED


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NoResponse("no answer"), UNANSWERED),
        (ApiError("too many requests", status=429), UNANSWERED),
        (Forbidden("we may not", status=403), NO_RIGHT),
        (ValueError("a slip of ours"), UNANSWERED),
    ],
    ids=repr,
)
def test_no_request_is_accepted_while_the_api_server_cannot_review(
    harness: ReviewsHarness, error: Exception, verdict: Refusal
) -> None:
    assert harness.ask("good") is None
    harness.now += GOOD_S + 0.1
    harness.reviewer.error = error

    assert harness.ask("good") is verdict
    assert verdict.status == 503


def test_an_unresponsive_api_server_is_not_called_continuously(harness: ReviewsHarness) -> None:
    harness.reviewer.error = NoResponse("no answer")
    assert harness.ask("good") is UNANSWERED
    assert {harness.ask(f"other-{number}") for number in range(10)} == {UNANSWERED}
    assert len(harness.reviewer.asked) == 1

    harness.reviewer.error = None
    harness.now += SILENCE_S + 0.1
    assert harness.ask("good") is None


def test_a_token_that_cannot_be_reviewed_does_not_block_a_reviewed_user(
    harness: ReviewsHarness,
) -> None:
    assert harness.ask("good") is None
    harness.now += GOOD_S + 0.1
    harness.reviewer.error = NoResponse("the answer broke off")
    assert harness.ask("poison") is UNANSWERED
    harness.reviewer.error = None

    assert harness.ask("good") is None


def test_a_disconnected_client_is_not_reviewed(harness: ReviewsHarness) -> None:
    for number in range(20):
        harness.ask(f"made-up-{number}")
    is_there = True
    verdict = harness.send("good", is_wanted=lambda: is_there)
    harness.settle()
    is_there = False
    harness.now += 5.0

    assert harness.ask("made-up-20", caller=THERE) is BAD_TOKEN
    assert verdict.cancel()
    assert ("good", "/metrics") not in harness.reviewer.asked


def test_the_cache_of_reviews_is_limited_and_contains_no_token() -> None:
    harness = ReviewsHarness(max_cached=8, max_known=4)
    for number in range(10):
        harness.reviewer.users[f"good-{number}"] = "monitoring"
        harness.ask(f"good-{number}")
    asked = len(harness.reviewer.asked)
    harness.ask("good-9")
    assert len(harness.reviewer.asked) == asked
    harness.ask("good-0")
    assert len(harness.reviewer.asked) == asked + 1, "it was forgotten before its time"

    assert "good-" not in repr(vars(harness.reviews))
    harness.close()


def test_an_internal_error_is_logged_without_its_message(
    harness: ReviewsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.reviewer.error = ValueError("Invalid header value b'Bearer hush'")
    harness.ask("hush")

    assert "a review failed" in caplog.text
    assert "hush" not in caplog.text
