"""Clients of the hook port that are not kube-scheduler, or cannot prove it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from extender.hooks.server import CallerCheck
from tests.unit.web.conftest import World, node_of
from tests.unit.web.wire import BOUND, Wire, bind, question, refused, request

SECRET = b"correct horse battery"
JSON = (b"content-type", b"application/json")
HOST = (b"host", b"127.0.0.1:8888")


def basic(password: bytes, user: bytes = b"hooks") -> bytes:
    return b"Basic " + b64encode(user + b":" + password)


def filtered_pod(world: World) -> Any:
    """Create a pod that has passed filter and return it."""
    world.node("node-0")
    pod = world.pod("web")
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
        assert b'"NodeNames":["node-0"]' in wire.read(b"}")
    return pod


BROWSER, TYPE = ("browser", 403), ("media_type", 415)


@pytest.mark.parametrize(
    ("was", "is_now", "refusal"),
    [
        (b"", b"Origin: https://evil.example\r\n", BROWSER),
        (b"", b"Origin: null\r\n", BROWSER),
        (b"", b"Sec-Fetch-Site: cross-site\r\n", BROWSER),
        (b"", b"Sec-Fetch-Mode: no-cors\r\n", BROWSER),
        (b"", b"Host: evil.example\r\n", ("host", 400)),
        (b"application/json", b"text/plain", TYPE),
        (b"Content-Type: application/json\r\n", b"", TYPE),
        (b"Host: localhost", b"Host: evil.example", ("host", 200)),
        (b"Host: localhost", b"Host: localhost.evil.example:80", ("host", 200)),
        (b"Host: localhost", b"Host: 10.0.0.1", ("host", 200)),
    ],
)
def test_a_bind_that_is_not_of_kube_scheduler_binds_nothing(
    world: World, was: bytes, is_now: bytes, refusal: tuple[str, int]
) -> None:
    pod = filtered_pod(world)
    reason, status = refusal
    call = bind(pod)
    end = call.index(b"Content-Length")
    sent = call.replace(was, is_now) if was else call[:end] + is_now + call[end:]

    with closing(Wire(world.hook_port)) as wire:
        wire.send(sent)
        answer = wire.read(b"}")

        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["Error"]
        assert wire.is_closed()
    assert not node_of(world, pod)
    with closing(Wire(world.hook_port)) as wire:
        wire.send(bind(pod))
        assert wire.read(b"}").endswith(BOUND), "from kube-scheduler it is bound"
    assert refused(world, reason) == 1


@pytest.fixture
def with_secret() -> Iterator[World]:
    with World(secret=SECRET) as made:
        yield made


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [basic(b"wrong")],
        [basic(b"")],
        [basic(SECRET[:-1])],
        [basic(SECRET + b"x")],
        [b"Bearer " + SECRET],
        [b"Basic not-base-64"],
        [b"Basic"],
        [basic(SECRET), basic(SECRET)],
        [basic(SECRET), basic(b"wrong")],
    ],
    ids=lambda keys: " and ".join(map(repr, keys)),
)
def test_a_call_without_the_secret_gets_an_error_and_nothing_else(keys: list[bytes]) -> None:
    callers = CallerCheck(is_plain=True, secret=SECRET)
    reply = callers.check([HOST, JSON, *((b"authorization", key) for key in keys)], "127.0.0.1")

    assert reply is not None
    # At any other status kube-scheduler writes its URL with the secret into an event.
    assert (reply.status, reply.reason) == (200, "secret")


def test_the_secret_is_accepted_with_any_user_name(with_secret: World) -> None:
    for user in (b"hooks", b""):
        key = f"Authorization: {basic(SECRET, user).decode()}\r\n"
        with closing(Wire(with_secret.hook_port)) as wire:
            wire.send(request(question(with_secret), extra=key))
            assert b'"NodeNames":["node-0"]' in wire.read(b"}")
    with closing(Wire(with_secret.hook_port)) as wire:
        wire.send(request(question(with_secret)))
        answer = wire.read(b"}")
        assert b"does not carry the hook secret" in answer
        assert SECRET not in answer
    assert refused(with_secret, "secret") == 1


@pytest.mark.parametrize(
    ("host", "reached", "is_good"),
    [
        ("localhost", "127.0.0.1", True),
        ("LocalHost:8888", "127.0.0.1", True),
        ("127.0.0.1:8888", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("[::1]:8888", "::1", True),
        ("10.1.2.3:8888", "10.1.2.3", True),
        ("10.1.2.3", "127.0.0.1", False),
        ("evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost@evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("", "", False),
        ("\xff", "127.0.0.1", False),
    ],
)
def test_over_plain_http_the_address_and_localhost_are_valid_hosts(
    host: str, reached: str, is_good: bool
) -> None:
    headers = [(b"host", host.encode("latin-1")), JSON]

    assert (CallerCheck(is_plain=True).check(headers, reached) is None) is is_good
    assert CallerCheck(is_plain=False).check(headers, reached) is None
