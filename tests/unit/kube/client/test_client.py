from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from extender.errors import ApiError, InvalidInput, NoResponse, NotFound, NotLeader
from extender.kube import client
from extender.kube.client import TOKEN_AGE_S, ApiClient
from extender.kube.config import ApiServer
from extender.leader.fencing import FencingToken, Term


class Echo(HTTPServer):
    """Answers each request with its own content and the status it asks for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.status = 200
        self.answer: bytes | None = None
        #: The methods of whole requests.
        self.received: list[str] = []


class EchoHandler(BaseHTTPRequestHandler):
    server: Echo

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            return  # it was truncated and has no effect
        self.server.received.append(self.command)
        received = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode(),
        }
        answer = self.server.answer
        data = json.dumps(received).encode() if answer is None else answer
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_PATCH(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the parent's name)
        """Keep quiet."""


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def access(
    echo: Echo, *, reload: Any = None, token_age_s: float = TOKEN_AGE_S, **rest: Any
) -> ApiClient:
    server = ApiServer(host="127.0.0.1", port=echo.server_port, **rest)
    return ApiClient(server, reload=reload, token_age_s=token_age_s)


def ask(echo: Echo, *arguments: Any, **rest: Any) -> dict[str, Any]:
    received: dict[str, Any] = json.loads(
        access(echo, **rest.pop("access", {})).request(*arguments, **rest)
    )
    return received


def test_a_request_carries_path_body_and_token(echo: Echo) -> None:
    received = ask(
        echo,
        "PATCH",
        "/api/v1/pods",
        {"a": 1},
        content_type="application/merge-patch+json",
        access={"prefix": "/sub", "token": lambda: "Bearer secret"},
    )

    assert (received["method"], received["path"]) == ("PATCH", "/sub/api/v1/pods")
    assert received["body"] == '{"a":1}'
    assert received["headers"]["authorization"] == "Bearer secret"
    assert received["headers"]["content-type"] == "application/merge-patch+json"
    assert received["headers"]["user-agent"] == "gang-extender"
    assert received["headers"]["accept-encoding"] == "identity"


def test_an_opened_stream_carries_its_query(echo: Echo) -> None:
    with access(echo).open("GET", "/x", query={"fieldManager": "a b"}, read_s=5.0) as answer:
        received = json.loads(answer.data)

    assert received["path"] == "/x?fieldManager=a+b"
    assert "authorization" not in received["headers"]


@pytest.mark.parametrize("token", ["Bearer se\ncret", "Bearer se\r\ncret", "Bearer \u20accret"])
def test_a_token_that_cannot_be_sent_is_not_quoted_in_the_error(echo: Echo, token: str) -> None:
    with pytest.raises(NoResponse, match="GET /x: the request cannot be sent") as caught:
        access(echo, token=lambda: token).request("GET", "/x")

    error_text = "".join(traceback.format_exception(caught.value))
    assert "cret" not in error_text
    assert echo.received == []


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        (404, b'{"kind":"Status","message":"not today"}', NotFound, "not today"),
        (409, b'{"kind":"Status","message":"not today"}', ApiError, "not today"),
        (403, b'{"kind":"Status","message":"not today"}', ApiError, "not today"),
        *[(502, answer, ApiError, answer.decode()) for answer in (b"<html>", b"{}", b"")],
        (500, b"[]", ApiError, r"\[\]"),
    ],
)
def test_a_refusal_is_an_error_with_the_message_of_the_server(
    echo: Echo, status: int, answer: bytes, error: type[ApiError], words: str
) -> None:
    echo.status, echo.answer = status, answer
    with pytest.raises(error, match=f"GET /x: {status}: {words}") as caught:
        access(echo).request("GET", "/x")

    assert caught.value.status == status


def test_a_port_without_a_listener_is_unreachable() -> None:
    with Echo() as closed:
        port = closed.server_port

    with pytest.raises(NoResponse, match="GET /x: no response from the API server"):
        ApiClient(ApiServer(host="127.0.0.1", port=port)).request("GET", "/x")


def test_the_old_token_is_used_until_the_new_one_is_read(echo: Echo) -> None:
    tokens = ["second", "first"]
    may_read = threading.Event()
    may_read.set()

    def token() -> str:
        assert may_read.wait(5)
        return tokens.pop() if len(tokens) > 1 else tokens[0]

    made = access(echo, token=token, token_age_s=-1.0)
    may_read.clear()

    assert made.authorization() == "first"
    assert made.authorization() == "first"

    may_read.set()
    until = time.monotonic() + 5
    while made.authorization() == "first":
        assert time.monotonic() < until
        time.sleep(0.001)

    assert made.authorization() == "second"


def test_a_token_that_cannot_be_read_leaves_the_old_one(echo: Echo) -> None:
    tried = threading.Event()

    def token() -> str:
        if not tried.is_set() and made_once:
            tried.set()
            raise InvalidInput("the file is gone")
        return "first"

    made_once: list[int] = []
    made = access(echo, token=token, token_age_s=-1.0)
    made_once.append(1)
    made.authorization()

    assert tried.wait(5)
    assert made.authorization() == "first"


def test_renewing_reloads_the_credentials_at_most_once_in_a_while(echo: Echo) -> None:
    reloads: list[int] = []

    def reload() -> ApiServer:
        reloads.append(1)
        return ApiServer(host="127.0.0.1", port=echo.server_port, token=lambda: "Bearer new")

    made = access(echo, token=lambda: "Bearer old", reload=reload)
    made.renew()
    made.renew()

    assert made.authorization() == "Bearer new"
    assert reloads == [1]


def test_an_expired_token_is_renewed_for_the_next_request(echo: Echo) -> None:
    renewed = ApiServer(host="127.0.0.1", port=echo.server_port, token=lambda: "Bearer new")
    made = access(echo, token=lambda: "Bearer old", reload=lambda: renewed)
    echo.status = 401

    with pytest.raises(ApiError, match="401"):
        made.request("GET", "/x")

    assert made.authorization() == "Bearer new"


@pytest.mark.parametrize("fails", ["the file", "its token"])
def test_credentials_that_cannot_be_reloaded_are_logged_and_the_refusal_is_raised(
    echo: Echo, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    def unreadable() -> Any:
        raise InvalidInput("kubeconfig k cannot be read: it is being written")

    elsewhere = ApiServer(host="127.0.0.2", port=1, token=unreadable)
    reload = unreadable if fails == "the file" else lambda: elsewhere
    made = access(echo, token=lambda: "Bearer old", reload=reload)
    echo.status = 401

    with pytest.raises(ApiError, match="401"):
        made.request("GET", "/x")

    (record,) = caplog.records
    assert record.getMessage() == "credentials cannot be read"
    assert (made.authorization(), made.host) == ("Bearer old", "127.0.0.1")


def test_without_a_lease_writes_are_not_sent_and_reads_are(echo: Echo) -> None:
    made, ended = access(echo), FencingToken(Term(lambda: 0.0), 0)

    assert made.request("GET", "/x", fencing=ended)
    with pytest.raises(NotLeader, match="the term of the order has ended"):
        made.request("PATCH", "/x", {"a": 1}, fencing=ended)
    assert echo.received == ["GET"]


@pytest.mark.parametrize("begins_again", [False, True])
def test_the_fencing_token_is_checked_after_waiting_for_the_connection(
    echo: Echo, monkeypatch: pytest.MonkeyPatch, begins_again: bool
) -> None:
    """Any step between the order and the first byte of the body may take long.

    A later term of ours is no better: another replica may have led in between.
    """
    now = [0.0]
    term = Term(lambda: now[0])
    term.begin(until=10.0)
    token = FencingToken(term, term.current())
    dial = client.urllib3.connection.HTTPConnection.connect

    def dial_slowly(connection: Any) -> None:
        now[0] = 11.0
        if begins_again:
            term.begin(until=20.0)
        dial(connection)

    monkeypatch.setattr(client.urllib3.connection.HTTPConnection, "connect", dial_slowly)
    with pytest.raises(NotLeader):
        access(echo).request("PATCH", "/x", {"a": 1}, fencing=token)
    assert echo.received == []


def test_requests_are_sent_while_the_lease_is_held(echo: Echo) -> None:
    term = Term(lambda: 0.0)
    term.begin(until=10.0)

    token = FencingToken(term, term.current())
    received = json.loads(access(echo).request("PATCH", "/x", {"a": 1}, fencing=token))
    assert received["body"] == '{"a":1}'
    assert received["headers"]["content-length"] == "7"
    assert "transfer-encoding" not in received["headers"]
