"""Who may read: asked of the API server, remembered for a moment, and never in a crowd."""

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


class Registrar:
    """Stands in for the API server: knows some tokens, and may take its time."""

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


class Hall:
    """Readers on a loop of their own, by a clock that stands still unless it is moved."""

    def __init__(self, **bounds: int) -> None:
        self.now = 1000.0
        self.registrar = Registrar()
        self.loop = asyncio.new_event_loop()
        self.readers = TokenReviews(self.registrar, self.loop, lambda: self.now, **bounds)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.registrar.may_answer.set()
        self.loop.call_soon_threadsafe(self.readers.stop)
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
        told: Future[Verdict] = Future()
        self.loop.call_soon_threadsafe(
            self.readers.ask, headers, page, caller, is_wanted, told.set_result
        )
        return told

    def ask(self, token: str, page: str = "/metrics", caller: str = HERE) -> Verdict:
        return self.send(token, page, caller).result(20)

    def settle(self) -> None:
        """Wait until everything that was sent has been taken in."""
        done: Future[None] = Future()
        self.loop.call_soon_threadsafe(done.set_result, None)
        done.result(20)


@pytest.fixture
def hall() -> Iterator[Hall]:
    made = Hall()
    yield made
    made.close()


def test_only_an_authenticated_and_authorized_user_is_accepted(hall: Hall) -> None:
    assert hall.ask("good") is None
    assert hall.ask("made-up") is BAD_TOKEN
    refused = hall.ask("poor")

    assert refused is not None
    assert (refused.status, refused.reason) == (403, "not_allowed")
    assert "tenant may not get /metrics" in refused.why


def test_permission_for_one_page_is_none_for_another(hall: Hall) -> None:
    assert hall.ask("good") is None
    refused = hall.ask("good", "/gang-extender/snapshot")

    assert refused is not None
    assert refused.status == 403


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
    hall: Hall, headers: list[tuple[bytes, bytes]]
) -> None:
    assert hall.raw(headers).result(20) is NO_TOKEN
    assert hall.registrar.asked == []


def test_the_scheme_name_is_case_insensitive(hall: Hall) -> None:
    assert hall.raw([(b"AUTHORIZATION", b"bearer  good ")]).result(20) is None


def test_a_review_is_cached_for_a_while_and_then_repeated(hall: Hall) -> None:
    for token in ("good", "good", "made-up", "made-up"):
        hall.ask(token)
    assert [token for token, _ in hall.registrar.asked] == ["good", "made-up"]

    hall.now += GOOD_S + 0.1
    assert hall.ask("good") is None
    assert len(hall.registrar.asked) == 3


def test_a_revoked_token_is_refused_when_its_cached_review_expires(hall: Hall) -> None:
    assert hall.ask("good") is None
    del hall.registrar.users["good"]
    hall.now += GOOD_S + 0.1

    assert hall.ask("good") is BAD_TOKEN


def test_a_review_is_valid_from_its_request_and_not_from_its_response(hall: Hall) -> None:
    hall.registrar.may_answer.clear()
    told = hall.send("good")
    eventually(lambda: len(hall.registrar.asked) == 1)
    hall.now += 6.0
    hall.registrar.may_answer.set()
    assert told.result(20) is None
    hall.now += GOOD_S - 5.0

    hall.ask("good")
    assert len(hall.registrar.asked) == 2


def test_concurrent_requests_with_one_token_share_one_review(hall: Hall) -> None:
    hall.registrar.may_answer.clear()
    told = [hall.send("good") for _ in range(20)]
    hall.settle()
    hall.registrar.may_answer.set()

    assert [each.result(20) for each in told] == [None] * 20
    assert hall.registrar.asked == [("good", "/metrics")]


def test_reviews_of_a_thousand_invalid_tokens_are_rate_limited(hall: Hall) -> None:
    verdicts = [hall.ask(f"made-up-{number}") for number in range(20)]
    told = [hall.send(f"made-up-{number}") for number in range(20, 1000)]
    hall.settle()

    assert set(verdicts) == {BAD_TOKEN}
    refused = [each for each in told if each.done()]
    assert len(refused) == 976
    assert {each.result() for each in refused} == {TOO_MANY}
    # Those who still wait have their turns as time goes by, five in a second.
    assert len(hall.registrar.asked) == 20
    hall.now += 0.6
    eventually(lambda: len(hall.registrar.asked) == 23)
    hall.settle()
    assert len(hall.registrar.asked) == 23


def test_many_invalid_tokens_do_not_block_a_reviewed_user(hall: Hall) -> None:
    assert hall.ask("good") is None
    hall.now += GOOD_S + 0.1
    for number in range(500):
        hall.send(f"made-up-{number}")

    assert hall.ask("good") is None


def test_many_tokens_from_one_address_do_not_block_another_address(hall: Hall) -> None:
    for number in range(20):
        hall.ask(f"made-up-{number}")
    for number in range(20, 500):
        hall.send(f"made-up-{number}")
    told = hall.send("good", caller=THERE)
    hall.settle()
    hall.now += 0.41  # two turns: one of each address

    assert told.result(20) is None


def test_slow_reviews_of_unknown_tokens_do_not_delay_a_reviewed_user(hall: Hall) -> None:
    assert hall.ask("good") is None
    hall.now += GOOD_S + 0.1
    slow = threading.Event()
    review = hall.registrar.review

    def dawdle(token: str, page: str) -> Reviewed:
        assert token == "good" or slow.wait(60)
        return review(token, page)

    hall.registrar.review = dawdle  # type: ignore[method-assign]
    try:
        for number in range(50):
            hall.send(f"made-up-{number}", caller=f"10.0.1.{number}")
        assert hall.ask("good") is None
    finally:
        slow.set()


def test_requests_do_not_wait_for_ever_for_an_unresponsive_api_server(hall: Hall) -> None:
    hall.registrar.may_answer.clear()
    told = hall.send("good")
    eventually(lambda: len(hall.registrar.asked) == 1)
    hall.now += MAX_WAIT_S + 0.1

    assert told.result(20) is UNANSWERED


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
    hall: Hall, error: Exception, verdict: Refusal
) -> None:
    assert hall.ask("good") is None
    hall.now += GOOD_S + 0.1
    hall.registrar.error = error

    assert hall.ask("good") is verdict
    assert verdict.status == 503


def test_an_unresponsive_api_server_is_not_called_continuously(hall: Hall) -> None:
    hall.registrar.error = NoResponse("no answer")
    assert hall.ask("good") is UNANSWERED
    assert {hall.ask(f"other-{number}") for number in range(10)} == {UNANSWERED}
    assert len(hall.registrar.asked) == 1

    hall.registrar.error = None
    hall.now += SILENCE_S + 0.1
    assert hall.ask("good") is None


def test_a_token_that_cannot_be_reviewed_does_not_block_a_reviewed_user(
    hall: Hall,
) -> None:
    assert hall.ask("good") is None
    hall.now += GOOD_S + 0.1
    hall.registrar.error = NoResponse("the answer broke off")
    assert hall.ask("poison") is UNANSWERED
    hall.registrar.error = None

    assert hall.ask("good") is None


def test_a_disconnected_client_is_not_reviewed(hall: Hall) -> None:
    for number in range(20):
        hall.ask(f"made-up-{number}")
    is_there = True
    told = hall.send("good", is_wanted=lambda: is_there)
    hall.settle()
    is_there = False
    hall.now += 10.0

    eventually(told.cancel)
    eventually(lambda: not hall.readers._open)
    assert len(hall.registrar.asked) == 20


def test_the_cache_of_reviews_is_limited_and_contains_no_token() -> None:
    hall = Hall(max_cached=8, max_known=4)
    for number in range(10):
        hall.registrar.users[f"good-{number}"] = "monitoring"
        hall.ask(f"good-{number}")
    asked = len(hall.registrar.asked)
    hall.ask("good-9")
    assert len(hall.registrar.asked) == asked
    hall.ask("good-0")
    assert len(hall.registrar.asked) == asked + 1, "it was forgotten before its time"

    assert "good-" not in repr(vars(hall.readers))
    hall.close()


def test_an_internal_error_is_logged_without_its_message(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    hall.registrar.error = ValueError("Invalid header value b'Bearer hush'")
    hall.ask("hush")

    assert "a review failed" in caplog.text
    assert "hush" not in caplog.text
