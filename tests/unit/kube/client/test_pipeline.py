"""Requests from the event loop: their wire format, and what happens on close."""

from __future__ import annotations

import asyncio
import logging

from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.connection import NOT_SENT, PipelinedRequest, Reply
from extender.kube.pipeline import MERGE_PATCH, Pipeline, pod_path
from tests.api_server import NEVER, connected, loopback_server, scene


def framed(access: ApiClient, *arguments: object) -> str:
    loop = asyncio.new_event_loop()
    try:
        return Pipeline(access, loop).frame(*arguments).decode()  # type: ignore[arg-type]
    finally:
        loop.close()


def test_a_read_has_no_body_and_no_length():
    text = framed(ApiClient(ApiServer(host="api", port=6443)), b"GET", "/healthz")

    assert text.startswith("GET /healthz HTTP/1.1\r\nhost: api\r\n")
    assert text.endswith("\r\n\r\n")
    assert "content-length" not in text


def test_a_write_carries_its_length_and_content_type():
    text = framed(
        ApiClient(ApiServer(host="api", port=6443)), b"PATCH", "/x", b'{"a":1}', MERGE_PATCH
    )

    assert "content-type: application/merge-patch+json\r\ncontent-length: 7\r\n\r\n" in text
    assert text.endswith('{"a":1}')


def test_an_ipv6_host_stands_in_brackets():
    assert "host: [::1]\r\n" in framed(ApiClient(ApiServer(host="::1", port=6443)), b"GET", "/")


def test_a_token_that_was_renewed_is_used_from_the_next_request():
    loop = asyncio.new_event_loop()
    old, new = (
        ApiServer(host="api", port=1, token=lambda token=token: f"Bearer {token}")
        for token in ("old", "new")
    )
    access = ApiClient(old, reload=lambda: new)
    pipeline = Pipeline(access, loop)
    before = pipeline.frame(b"GET", "/")
    access.renew()
    after = pipeline.frame(b"GET", "/")
    loop.close()

    assert b"authorization: Bearer old\r\n" in before
    assert b"authorization: Bearer new\r\n" in after


def test_names_are_escaped_in_their_path_segments():
    assert pod_path("team", "../x?y", "/binding") == (
        "/api/v1/namespaces/team/pods/..%2Fx%3Fy/binding"
    )


@scene()
async def test_closing_the_pipeline_answers_waiting_requests() -> None:
    async with loopback_server() as server, connected(server) as pipeline:
        server.script.append(NEVER)
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        pipeline.request(pipeline.frame(b"GET", "/slow"), replied.set_result)
        await server.has_heard(1)
        await pipeline.aclose()

        assert await asyncio.wait_for(replied, 5) == Reply(0)


@scene()
async def test_an_unreachable_server_is_logged_once_and_its_return_too(caplog) -> None:
    caplog.set_level(logging.INFO)
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        server.access.port = 1
        for _ in range(2):
            assert await reply_of(pipeline) == NOT_SENT
        server.access.port = server.port
        await reply_of(pipeline)

    assert [record.message for record in caplog.records] == [
        "API server unreachable",
        "API server reachable again",
    ]


async def reply_of(pipeline: Pipeline) -> Reply:
    replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    pipeline.send((PipelinedRequest(pipeline.frame(b"GET", "/"), replied.set_result),))
    return await replied
