"""The whole extender on a simulated cluster, in this process, behind real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import Sequence
from typing import Any, Self

import msgspec
import uvloop

from extender.cache.cluster import Cluster
from extender.kube.decode import dialects, watched
from extender.kube.decode.codec import Codec
from extender.metrics import Metrics
from extender.model.dialect import VOLCANO
from extender.model.gang import PodGroup
from extender.ports import ClusterPorts, Mandate
from extender.settings import Settings, label_pairs
from extender.sim.acting import SimAnnouncer, SimEvictor, SimStatus
from extender.sim.cluster import Object, SimCluster
from extender.timing.clock import SystemClock
from extender.tls.rotation import Certificates
from extender.web.hookport import HookPort
from extender.web.pageport import PagePort
from extender.wiring import Runtime


class Embedded:
    """Runs from `with` to the end of the block; *cluster* is what it decides for."""

    def __init__(self) -> None:
        self.cluster = SimCluster(read_group, SystemClock())
        # Listening before anybody else can take the ports.
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        hooks, ops = (_address(each) for each in self._sockets)
        self._settings = Settings(listen=hooks, ops_listen=ops)
        self._runtime: Runtime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embedded", daemon=True)

    @property
    def url(self) -> str:
        """Where the hooks answer."""
        return f"http://{self._settings.listen}"

    def verdict(self, gang: str) -> dict[str, Any] | None:
        """Ask the operations port about a gang of the namespace demo."""
        url = f"http://{self._settings.ops_listen}/api/v1/gangs"
        with urllib.request.urlopen(url, timeout=5) as answer:
            gangs = json.load(answer)
        return next((each for each in gangs if each["name"] == gang), None)

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(self, *error: object) -> None:
        if self._runtime is not None and self._loop is not None:
            self._runtime.drain()
            self._runtime.stop()
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._runtime = runtime = embed(self._settings, loop, self.cluster)
        runtime.start()
        hooks, ops = self._sockets
        port = HookPort(runtime.hooks, runtime.pages.metrics, loop)
        await port.listen(hooks)
        pages = PagePort(runtime.pages)
        pages.start(ops)
        self._up.set()
        await self._ending.wait()
        await port.close(grace_s=0)
        pages.stop(grace_s=0)


def embed(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    simulated: SimCluster,
    certificates: Sequence[Certificates] = (),
) -> Runtime:
    """Put an extender together for a simulated cluster."""
    schedulers = frozenset(settings.scheduler_name)
    node_labels = label_pairs(settings.node_selector)
    exempt = frozenset(settings.exempt_namespace)

    def reach(cluster: Cluster, _: Metrics, __: Mandate) -> ClusterPorts:
        evictor = SimEvictor(simulated)
        return ClusterPorts(
            binder=simulated,
            groups=simulated,
            waker=simulated,
            evictor=evictor,
            undo=evictor,
            status=SimStatus(simulated),
            announcer=SimAnnouncer(),
            start=lambda: _let_hear(cluster, simulated, schedulers, node_labels, exempt),
            stop=lambda: None,
            aclose=lambda: asyncio.sleep(0),
        )

    return Runtime(settings, loop, SystemClock(), reach, certificates)


def read_group(thing: Object) -> PodGroup:
    """Read a PodGroup of the simulated cluster as if it came from the API server."""
    return dialects.to_group(msgspec.convert(thing, dialects.RawGroup), VOLCANO)


def _let_hear(
    cluster: Cluster,
    simulated: SimCluster,
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]],
    exempt: frozenset[str],
) -> None:
    """Tell *cluster* whatever changes in *simulated*, decoded like everything else."""
    codecs: dict[str, Codec[Any]] = {
        "Node": watched.nodes(node_labels),
        "Pod": watched.pods(schedulers, exempt),
        "PodGroup": watched.groups(VOLCANO, exempt),
        "Queue": watched.queues(VOLCANO),
    }

    def hear(verb: str, thing: Object) -> None:
        line = codecs[thing["kind"]].line(msgspec.json.encode({"type": verb, "object": thing}))
        if line.change is not None:
            cluster.apply(line.change)

    simulated.listen(hear)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"
