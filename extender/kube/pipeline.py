"""Requests to the API server from the event loop: a few connections, many requests on each.

It is kept small because of its cost: a bind needs one small write and one small read. It is not a
general client: no redirects, no streaming, bodies of a few kilobytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from extender.kube.client import MERGE, ApiClient
from extender.kube.connection import (
    CHECK_AFTER_S,
    Connection,
    ConnectionHealth,
    PipelinedRequest,
    Reply,
)
from extender.kube.metrics import call_of
from extender.logs import event
from extender.model.gang import VERSIONS

log = logging.getLogger(__name__)
JSON = b"application/json"
MERGE_PATCH = MERGE.encode()
STRATEGIC_PATCH = b"application/strategic-merge-patch+json"
_SILENCE_S = 5.0
_load = attrgetter("load")


class Pipeline:
    """*size* connections; a batch is divided among them in runs, and each run is one write.

    The API server handles the requests of one connection one after the other. So the number of
    connections is the parallelism of a batch, and of the commits in etcd.
    """

    def __init__(
        self,
        client: ApiClient,
        loop: asyncio.AbstractEventLoop,
        *,
        size: int = 16,
        silence_s: float = _SILENCE_S,
        check_after_s: float = CHECK_AFTER_S,
    ) -> None:
        self.loop = loop
        self._client = client
        self._health = ConnectionHealth(
            loop,
            self._connect,
            lambda: self.frame(b"GET", "/version"),
            silence_s=silence_s,
            check_after_s=check_after_s,
        )
        self._connections = [
            Connection(
                loop,
                self._connect,
                silence_s=silence_s,
                health=self._health,
                forbidden=client.note_forbidden,
                request_done=self._request_done,
            )
            for _ in range(size)
        ]
        self._authorization: str | None = None
        self._headers = self._write_headers()
        self._reachable = True
        self._renewal: asyncio.Future[None] | None = None

    def run(self, job: Callable[[], None]) -> None:
        """Run *job* in the event loop: immediately if this is its thread."""
        if _running_loop() is self.loop:
            job()
        else:
            self.loop.call_soon_threadsafe(job)

    def send(self, requests: Sequence[PipelinedRequest]) -> None:
        """Send a batch; only in the event loop."""
        if len(requests) == 1:
            min(self._connections, key=_load).send(requests)
            return
        run = -(-len(requests) // len(self._connections))
        for index, connection in enumerate(sorted(self._connections, key=_load)):
            part = requests[index * run : (index + 1) * run]
            if not part:
                return
            connection.send(part)

    def request(self, request: bytes, done: Callable[[Reply], None]) -> None:
        """Send one request; only in the event loop."""
        self.send((PipelinedRequest(request, done),))

    def frame(
        self, method: bytes, path: str, body: bytes = b"", content_type: bytes = JSON
    ) -> bytes:
        """Return the bytes of a request, with the current token."""
        if self._client.authorization() != self._authorization:
            self._headers = self._write_headers()
        target = f"{self._client.prefix}{path}".encode("ascii")
        if not body:
            return b"%b %b%b\r\n" % (method, target, self._headers)
        return b"%b %b%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            method,
            target,
            self._headers,
            content_type,
            len(body),
            body,
        )

    def renew(self) -> None:
        """Read the credentials again after a 401; in a thread, because it may run a plugin."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self.loop.run_in_executor(None, self._client.renew)

    async def aclose(self) -> None:
        """Close all connections."""
        closing = (connection.aclose() for connection in self._connections)
        await asyncio.gather(self._health.aclose(), *closing)

    async def _connect(self, protocol: asyncio.Protocol) -> None:
        client = self._client
        name: dict[str, Any] = {"server_hostname": client.server_name} if client.tls else {}
        try:
            await self.loop.create_connection(
                lambda: protocol, client.host, client.port, ssl=client.tls, **name
            )
        except OSError as error:
            self._set_reachable(False, str(error))
            raise
        self._set_reachable(True)

    def _request_done(self, request: bytes, status: int, took_s: float) -> None:
        method, target, _ = request.split(b" ", 2)
        path = target.decode("ascii").removeprefix(self._client.prefix)
        self._client.metrics.request_done(*call_of(method.decode("ascii"), path), status, took_s)

    def _set_reachable(self, reachable: bool, why: str = "") -> None:
        if reachable is self._reachable:
            return
        self._reachable = reachable
        sentence = "API server reachable again" if reachable else "API server unreachable"
        event(log, logging.INFO if reachable else logging.WARNING, sentence, why=why)

    def _write_headers(self) -> bytes:
        self._authorization = self._client.authorization()
        host = self._client.server_name
        host = f"[{host}]" if ":" in host else host
        lines = [" HTTP/1.1", f"host: {host}", "user-agent: gang-extender"]
        lines.append("accept: application/json")
        if self._authorization:
            lines.append(f"authorization: {self._authorization}")
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def pod_path(namespace: str, name: str, part: str = "") -> str:
    """Return the path of a pod; names are quoted, so that each stays within its segment."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}{part}"


def object_path(dialect: str, plural: str, namespace: str, name: str) -> str:
    """Return the path of a PodGroup or Queue; a Queue has no namespace."""
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{dialect}/{VERSIONS[dialect]}{within}/{plural}/{quote(name, safe='')}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
