"""Requests to the API server from the event loop: a few connections, many requests on each.

Lean on purpose: a bind costs one small write and one small read of our CPU, no more. Not a
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
    SILENCE_S,
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
    """*size* connections; a batch is spread over them in runs, each written at once.

    The API server works on the requests of one connection one after the other, so the number of
    connections is the parallelism of a batch (and what etcd can commit together).
    """

    def __init__(
        self,
        access: ApiClient,
        loop: asyncio.AbstractEventLoop,
        *,
        size: int = 16,
        silence_s: float = _SILENCE_S,
        hush_s: float = SILENCE_S,
    ) -> None:
        self.loop = loop
        self._access = access
        self._watchman = ConnectionHealth(
            loop,
            self._connect,
            lambda: self.frame(b"GET", "/version"),
            silence_s=silence_s,
            hush_s=hush_s,
        )
        self._connections = [
            Connection(
                loop,
                self._connect,
                silence_s=silence_s,
                watchman=self._watchman,
                forbidden=access.forbidden,
                asked=self._asked,
            )
            for _ in range(size)
        ]
        self._authorization: str | None = None
        self._headers = self._write_headers()
        self._reachable = True
        self._renewal: asyncio.Future[None] | None = None

    def run(self, job: Callable[[], None]) -> None:
        """Run *job* on the loop: at once when we are there already."""
        if _running_loop() is self.loop:
            job()
        else:
            self.loop.call_soon_threadsafe(job)

    def send(self, exchanges: Sequence[PipelinedRequest]) -> None:
        """Send a batch; only on the loop."""
        if len(exchanges) == 1:
            min(self._connections, key=_load).send(exchanges)
            return
        run = -(-len(exchanges) // len(self._connections))
        for index, connection in enumerate(sorted(self._connections, key=_load)):
            part = exchanges[index * run : (index + 1) * run]
            if not part:
                return
            connection.send(part)

    def request(self, request: bytes, done: Callable[[Reply], None]) -> None:
        """Send one request; only on the loop."""
        self.send((PipelinedRequest(request, done),))

    def frame(
        self, method: bytes, path: str, body: bytes = b"", content_type: bytes = JSON
    ) -> bytes:
        """Write a request with the token as of now."""
        if self._access.authorization() != self._authorization:
            self._headers = self._write_headers()
        target = f"{self._access.prefix}{path}".encode("ascii")
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
        """Read our credentials anew after a 401; off the loop, as it may run a plugin."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self.loop.run_in_executor(None, self._access.renew)

    async def aclose(self) -> None:
        """Break all connections."""
        ways = (connection.aclose() for connection in self._connections)
        await asyncio.gather(self._watchman.aclose(), *ways)

    async def _connect(self, protocol: asyncio.Protocol) -> None:
        access = self._access
        name: dict[str, Any] = {"server_hostname": access.server_name} if access.tls else {}
        try:
            await self.loop.create_connection(
                lambda: protocol, access.host, access.port, ssl=access.tls, **name
            )
        except OSError as error:
            self._reached(False, str(error))
            raise
        self._reached(True)

    def _asked(self, request: bytes, status: int, took_s: float) -> None:
        method, target, _ = request.split(b" ", 2)
        path = target.decode("ascii").removeprefix(self._access.prefix)
        self._access.metrics.asked(*call_of(method.decode("ascii"), path), status, took_s)

    def _reached(self, reachable: bool, why: str = "") -> None:
        if reachable is self._reachable:
            return
        self._reachable = reachable
        sentence = "API server reachable again" if reachable else "API server unreachable"
        event(log, logging.INFO if reachable else logging.WARNING, sentence, why=why)

    def _write_headers(self) -> bytes:
        self._authorization = self._access.authorization()
        host = self._access.server_name
        host = f"[{host}]" if ":" in host else host
        lines = [" HTTP/1.1", f"host: {host}", "user-agent: gang-extender"]
        lines.append("accept: application/json")
        if self._authorization:
            lines.append(f"authorization: {self._authorization}")
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def pod_path(namespace: str, name: str, part: str = "") -> str:
    """Name a pod's place in the API; whatever the names are, they stay in their segments."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}{part}"


def object_path(dialect: str, plural: str, namespace: str, name: str) -> str:
    """Name the place of a PodGroup or Queue in the API; a Queue belongs to no namespace."""
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{dialect}/{VERSIONS[dialect]}{within}/{plural}/{quote(name, safe='')}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
