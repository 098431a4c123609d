"""The hooks behind their port, on a simulated cluster."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from extender.clock import SystemClock
from extender.demo.embedded import embed
from extender.hooks.limits import Limits
from extender.hooks.server import LIMITS, HookServer
from extender.ports import Clock
from extender.settings import Settings
from extender.sim.api_server import ApiServer
from extender.tls.server import PortCertificates
from extender.web.server import OperationsServer
from extender.wiring import Runtime
from tests import objects
from tests.manifests import Manifests

#: The headers of every call of kube-scheduler.
JSON = {"Content-Type": "application/json"}
CLOCK = SystemClock()

#: A call for a managed pod; before the first plan the response is "not ready".
_QUESTION = json.dumps({"Pod": objects.pod("early", "demo"), "NodeNames": []}).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class World:
    """A runtime without a server process: the loop runs in a thread, the cluster is simulated."""

    def __init__(
        self,
        config: str = "",
        certificates: PortCertificates | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        secret: bytes = b"",
        limits: Limits = LIMITS,
        clock: Clock = CLOCK,
    ) -> None:
        self.api = ApiServer(clock)
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        shown = [certificates] if certificates else []
        # A waiting bind never times out, however slow the machine is.
        settings = Settings(config=config, arrival_grace_s=60)
        self.manifests = Manifests(
            self.api, clock, settings.scheduler_name, settings.exempt_namespace
        )
        self.runtime: Runtime = embed(settings, self.loop, self.api, shown, clock)
        self.hook_socket = socket.create_server(("127.0.0.1", 0))
        self.hook_port: int = self.hook_socket.getsockname()[1]
        #: For those tests that want an operations port.
        self.ops_socket = socket.create_server(("127.0.0.1", 0))
        self.ops_port: int = self.ops_socket.getsockname()[1]
        tls = certificates.context() if certificates else None
        self.port = HookServer(
            self.runtime.hooks,
            self.runtime.pages.metrics,
            self.loop,
            tls,
            secret=secret,
            limits=limits,
        )

    def start(self) -> None:
        """Start everything; do not wait for the first plan."""
        self._thread.start()
        self.runtime.start()
        self.wait_for(self.port.listen(self.hook_socket))

    def hold_planning(self) -> threading.Event:
        """Make each cycle wait for the returned event."""
        may_plan, run_once = threading.Event(), self.runtime.core.planning.run_once

        def held() -> None:
            may_plan.wait(30)
            run_once()

        self.runtime.core.planning.run_once = held  # type: ignore[method-assign]
        return may_plan

    def __enter__(self) -> World:
        self.start()
        eventually(lambda: b"not ready" not in self.runtime.hooks.answer("filter", _QUESTION).body)
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.drain()
        self.wait_for(self.port.close(grace_s=5))
        self.runtime.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.ops_socket.close()

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def node(self, name: str, cpus: int = 4) -> None:
        self.manifests.create(objects.node(name, cpu=str(cpus), ready=True))

    def group(self, name: str, min_member: int, namespace: str = "demo") -> None:
        self.manifests.create(objects.pod_group(name, namespace, min_member))

    def pod(self, name: str, gang: str | None = None, scheduler: str = "gang-scheduler") -> Any:
        pod = objects.pod(name, "demo", gang=gang, scheduler=scheduler)
        return self.manifests.create(pod)


def bind_call(pod: Any, node: str = "node-0") -> dict[str, str]:
    """Return the call that binds *pod*."""
    about = pod["metadata"]
    return {
        "PodName": about["name"],
        "PodNamespace": about["namespace"],
        "PodUID": about["uid"],
        "Node": node,
    }


def node_of(world: World, pod: Any) -> str:
    """Return the node of *pod* in the simulated cluster."""
    return world.api.pods[pod["metadata"]["uid"]].pod.node


@contextmanager
def operations(world: World, **options: Any) -> Iterator[OperationsServer]:
    """Serve the pages of *world* on its operations port."""
    made = OperationsServer(world.runtime.pages, **options)
    made.start(world.ops_socket)
    try:
        yield made
    finally:
        made.stop()


HookCall = Callable[..., Reply]


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


@pytest.fixture
def pages(world: World) -> Iterator[OperationsServer]:
    with operations(world) as made:
        yield made


@pytest.fixture
def call(world: World) -> HookCall:
    """Call a hook as kube-scheduler does: `call("filter", body)`."""

    def call(verb: str, body: bytes | Any) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", world.hook_port, timeout=20)
        with closing(connection):
            connection.request("POST", f"/{verb}", _bytes(body), JSON)
            reply = connection.getresponse()
            return Reply(reply.status, reply.read())

    return call


def eventually(is_true: Callable[[], bool]) -> None:
    """Wait for a condition that must become true soon."""
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _bytes(body: bytes | Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
