"""Pages for users the API server authorizes, probes without authentication."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from extender.errors import Forbidden, NoResponse
from extender.web.server import OperationsServer
from tests.unit.web.conftest import World, eventually, operations
from tests.unit.web.test_token_reviews import FakeTokenReviews
from tests.unit.web.wire import Wire, refused

ROOT = Path(__file__).parents[3]
PAGES = [
    "/",
    "/gangs",
    "/gangs/a/b",
    "/nodes",
    "/holds",
    "/evictions",
    "/policy",
    "/health",
    "/events",
    "/assets/x/live.js",
    "/metrics",
    "/api/v1/plan",
    "/api/v1/findings",
    "/api/v1/gangs/a/b",
    "/nothing",
]
PROBES = ["/healthz", "/readyz", "/warmz"]


@pytest.fixture
def reviewer() -> Iterator[FakeTokenReviews]:
    made = FakeTokenReviews()
    yield made
    made.may_answer.set()


@pytest.fixture(autouse=True)
def port(world: World, reviewer: FakeTokenReviews) -> Iterator[OperationsServer]:
    with operations(world, reviewer=reviewer) as made:
        yield made


class PageReply:
    """An HTTP response with its headers."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = dict(answer.getheaders())
        self.body = answer.read()


def ask(world: World, path: str, token: str = "", method: str = "GET") -> PageReply:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection("127.0.0.1", world.ops_port, timeout=20)
    with closing(connection):
        connection.request(method, path, headers=headers)
        return PageReply(connection.getresponse())


def test_a_page_is_refused_without_a_token(world: World) -> None:
    for path in PAGES:
        reply = ask(world, path)

        assert reply.status == 401, path
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer TOKEN" in json.loads(reply.body)["error"]
    assert refused(world, "no_token") == len(PAGES)


def test_probes_are_answered_without_a_token_review(
    world: World, reviewer: FakeTokenReviews
) -> None:
    reviewer.error = NoResponse("the API server is gone")
    for path, method in product(PROBES, ("GET", "HEAD")):
        eventually(lambda path=path, method=method: ask(world, path, method=method).status == 200)

        assert ask(world, path, "made-up", method).status == 200
    assert reviewer.asked == []


def test_an_authenticated_and_authorized_user_reads_pages(world: World) -> None:
    assert b"gang_extender_waiting_binds" in ask(world, "/metrics", "good").body
    assert json.loads(ask(world, "/api/v1/plan", "good").body)["gangs"] == []
    assert ask(world, "/nothing", "good").status == 404
    assert ask(world, "/filter", "good", "POST").status == 404
    assert ask(world, "/healthz", "good", "POST").status == 405


def test_a_cached_page_is_not_shown_without_a_token(world: World) -> None:
    assert ask(world, "/api/v1/plan", "good").status == 200

    assert ask(world, "/api/v1/plan").status == 401
    assert ask(world, "/api/v1/plan", "made-up").status == 401
    assert ask(world, "/api/v1/plan", "poor").status == 403
    assert (refused(world, "bad_token"), refused(world, "not_allowed")) == (1, 1)


def test_every_request_on_a_connection_is_authorized(world: World) -> None:
    with closing(Wire(world.ops_port)) as wire:
        wire.send(b"GET /nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
        assert b"404" in wire.read(b"</p>\n")
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

        assert b" 401 " in wire.read(b"}\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoResponse("gone"), "the API server does not answer token reviews"),
        (Forbidden("no right", status=403), "apply manifests/ops-auth"),
    ],
    ids=["unreachable", "forbidden"],
)
def test_pages_are_refused_with_the_reason_while_the_api_server_cannot_review(
    world: World, reviewer: FakeTokenReviews, error: Exception, words: str
) -> None:
    reviewer.error = error
    reply = ask(world, "/metrics", "good")

    assert reply.status == 503
    assert reply.headers["retry-after"] == "2"
    assert words in json.loads(reply.body)["error"]
    assert refused(world, "unanswered") == 1


def test_no_token_is_in_any_log_page_or_series(
    world: World, reviewer: FakeTokenReviews, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reviewer.users["tell-nobody-good"] = "monitoring"
    reply = [ask(world, "/metrics", f"tell-nobody-{each}") for each in ("good", "bad")]
    reviewer.error = NoResponse("gone")
    reply.append(ask(world, "/metrics", "tell-nobody-unanswered"))
    series = generate_latest(world.runtime.pages.metrics.registry)

    assert [each.status for each in reply] == [200, 401, 503]
    assert "a caller was refused" in caplog.text
    for text in (*(each.body for each in reply), series, caplog.text.encode()):
        assert b"tell-nobody" not in text


def test_many_unauthenticated_clients_disconnect_no_authenticated_one(world: World) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.ops_port, timeout=20)
    with closing(connection), ExitStack() as stack:
        bears = {"Authorization": "Bearer good"}
        connection.request("GET", "/api/v1/plan", headers=bears)
        assert PageReply(connection.getresponse()).status == 200
        reader = connection.sock
        for _ in range(200):
            unknown = stack.enter_context(closing(Wire(world.ops_port)))
            with suppress(ConnectionError):
                unknown.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: refused(world, "full") > 50)

        connection.request("GET", "/api/v1/plan", headers=bears)
        assert PageReply(connection.getresponse()).status == 200
        assert connection.sock is reader  # the same connection as before


#: Spellings of a path; the permission checked is that of the page the app serves for it.
SPELLINGS = [
    "/api/v1/snapshot",
    "/%61pi/v1/snapshot",
    "/api/v1/%73napshot",
    "//api/v1/snapshot",
    "/api//v1/snapshot",
    "/api/v1/snapshot/",
    "/metrics/../api/v1/snapshot",
    "/metrics/%2e%2e/api/v1/snapshot",
    "/metrics%2f..%2fapi/v1/snapshot",
    "/api/v1/gangs/../snapshot",
    "/api%2fv1%2fsnapshot",
    "/api/v1/snapshot;/metrics",
    "/api/v1/snapshot%00/metrics",
    "/api/v1/snapshot%3f/metrics",
    "/api/v1/snapshot#/metrics",
    "/API/V1/SNAPSHOT",
    "/%c0%afapi/v1/snapshot",
    "http://x/api/v1/snapshot",
    "*",
]


def test_permissions_do_not_depend_on_the_spelling_of_a_path(
    world: World, reviewer: FakeTokenReviews
) -> None:
    head = "Host: x\r\nConnection: close\r\nAuthorization: Bearer good\r\n"
    for path in SPELLINGS:
        with closing(Wire(world.ops_port)) as wire:
            wire.send(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())

            # The token may read every page except that one.
            assert wire.ends_with_status() in (308, 400, 403, 404), path
    names = {"/gang-extender", "/gang-extender/snapshot", "/gang-extender/gangs"}
    assert {page for _, page in reviewer.asked} <= names


def test_every_page_of_the_app_has_an_rbac_path_and_all_gangs_share_one(world: World) -> None:
    pages = world.runtime.pages
    rules = {rule.rule for rule in pages.url_map.iter_rules()} - {*PROBES}
    names = {pages.rbac_path(rule.encode()) for rule in rules}

    assert names == {
        "/metrics",
        "/gang-extender",
        *(
            f"/gang-extender/{each}"
            for each in (
                *("plan", "queues", "gangs", "pods", "findings", "snapshot", "events"),
                *("nodes", "holds", "evictions", "policy", "health", "whatif"),
            )
        ),
    }
    gangs = {pages.rbac_path(f"/api/v1/gangs/a/{number}".encode()) for number in range(99)}
    assert gangs == {"/gang-extender/gangs"}
    assert {pages.rbac_path(f"/made-up-{n}".encode()) for n in range(99)} == {"/gang-extender"}


def test_the_reader_role_grants_the_rbac_paths_of_pages(world: World) -> None:
    pages = world.runtime.pages
    roles = [*yaml.safe_load_all((ROOT / "manifests/ops-auth/readers-rbac.yaml").read_text())]
    granted = {each["metadata"]["name"]: each["rules"][0]["nonResourceURLs"] for each in roles}
    rules = {rule.rule for rule in pages.url_map.iter_rules()} - {*PROBES}
    names = {pages.rbac_path(rule.encode()) for rule in rules}

    def covered(pattern: str) -> set[str]:
        return {each for each in names if fnmatchcase(each, pattern)}

    assert granted["gang-extender-reads-metrics"] == ["/metrics"]
    assert set().union(*map(covered, granted["gang-extender-reads-pages"])) == names
    # Kubernetes grants none of them to all authenticated users.
    for pattern in ("/api", "/api/*", "/apis/*", "/openapi/*", "/version", "/version/"):
        assert covered(pattern) == set()
