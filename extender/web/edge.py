"""The ASGI edge: answers the hooks itself, hands everything else to Flask.

One event loop serves it all. A held bind costs a future, not a thread, and a caller that went
away shows as `http.disconnect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from extender.web import wire
from extender.web.hooks import BODY_LIMIT, VERB_OF, Hooks

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class TooLarge(Exception):
    """The body is over the limit; what came of it was thrown away."""


class Disconnected(Exception):
    """The caller went away before its body was complete."""


class Edge:
    """Hooks on one port, the rest on the other; both may be the same."""

    def __init__(self, hooks: Hooks, pages: Application, hook_port: int, ops_port: int) -> None:
        self._hooks = hooks
        self._pages = pages
        self._hook_port = hook_port
        self._ops_port = ops_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        verb = VERB_OF.get(scope["path"])
        port = scope["server"][1]
        if verb and port == self._hook_port:
            await self._serve_hook(verb, scope, receive, send)
        elif port == self._ops_port:
            await self._pages(scope, receive, send)
        else:
            await _respond(send, 404, wire.write_error(f"no such hook: {scope['path']}"))

    async def _serve_hook(self, verb: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _respond(send, 405, wire.write_error(f"{verb} is a POST"))
            return
        try:
            body = await _read(receive)
        except TooLarge:
            await _respond(send, 413, wire.write_error(f"the body is over {BODY_LIMIT} bytes"))
            return
        except Disconnected:
            return
        if verb != "bind":
            await _respond(send, 200, self._hooks.answer(verb, body))
            return
        error = await self._bind(body, receive)
        if error is not None:
            await _respond(send, 200, self._hooks.bound(error))

    async def _bind(self, body: bytes, receive: Receive) -> str | None:
        """Give the outcome of a bind, or None when the caller went away first."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def settle(error: str) -> None:
            if not outcome.done():
                outcome.set_result(error)

        def answer(error: str) -> None:
            loop.call_soon_threadsafe(settle, error)

        call = self._hooks.bind(body, answer)
        hang_up: asyncio.Future[Any] = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((outcome, hang_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not outcome.done():
                self._hooks.peer_gone(call)
            hang_up.cancel()
        return outcome.result() if outcome.done() else None


async def _read(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        size += len(message.get("body", b""))
        # Past the limit the rest is drained, not kept: an answer sent into a body that is still
        # being written is lost with the connection.
        if size <= BODY_LIMIT:
            chunks.append(message.get("body", b""))
        more = message.get("more_body", False) and size <= 16 * BODY_LIMIT
    if size > BODY_LIMIT:
        raise TooLarge
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _respond(send: Send, status: int, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
