"""The extender, a small kube-scheduler and the workloads, all in this process."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import msgspec
import uvloop

from extender.cache.cluster import Cluster
from extender.clock import SystemClock
from extender.demo.cluster import Object, SimAnnouncer, SimCluster, SimEvictor, SimStatus
from extender.demo.scheduler import SimScheduler
from extender.demo.story import PlacementLog
from extender.demo.workloads import DemoWorkloads
from extender.hooks.server import HookServer
from extender.kube.decode import podgroups, resources
from extender.kube.decode.decoder import ObjectDecoder
from extender.metrics import Metrics
from extender.model.gang import VOLCANO, PodGroup
from extender.planner import policy_parser
from extender.ports import Clock, ClusterPorts, Fencing
from extender.settings import Settings, label_pairs
from extender.tls.server import PortCertificates
from extender.web.server import OperationsServer
from extender.wiring import Runtime

_CLOCK = SystemClock()


def embed(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    simulated: SimCluster,
    certificates: Sequence[PortCertificates] = (),
    clock: Clock = _CLOCK,
) -> Runtime:
    """Return an extender on a simulated cluster."""
    schedulers = frozenset(settings.scheduler_name)
    node_labels = label_pairs(settings.node_selector)
    exempt = frozenset(settings.exempt_namespace)

    def connect(cluster: Cluster, _: Metrics, __: Fencing) -> ClusterPorts:
        evictor = SimEvictor(simulated)
        return ClusterPorts(
            binder=simulated,
            groups=simulated,
            waker=simulated,
            evictor=evictor,
            undo=evictor,
            status=SimStatus(simulated),
            events=SimAnnouncer(),
            start=lambda: _follow(cluster, simulated, schedulers, node_labels, exempt),
            stop=lambda: None,
            aclose=lambda: asyncio.sleep(0),
        )

    return Runtime(settings, loop, clock, connect, certificates)


def read_group(manifest: Object) -> PodGroup:
    """Decode a PodGroup of the simulated cluster as if it came from the API server."""
    return podgroups.to_group(msgspec.convert(manifest, podgroups.RawGroup), VOLCANO)


def _follow(
    cluster: Cluster,
    simulated: SimCluster,
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]],
    exempt: frozenset[str],
) -> None:
    """Apply each change of *simulated* to *cluster*, decoded as from a watch."""
    codecs: dict[str, ObjectDecoder[Any]] = {
        "Node": resources.nodes(node_labels),
        "Pod": resources.pods(schedulers, exempt),
        "PodGroup": resources.groups(VOLCANO, exempt),
        "Queue": resources.queues(VOLCANO),
    }

    def handle(verb: str, manifest: Object) -> None:
        line = codecs[manifest["kind"]].line(
            msgspec.json.encode({"type": verb, "object": manifest})
        )
        if line.change is not None:
            cluster.apply(line.change)

    simulated.listen(handle)


_TIMEOUT_S = 5.0
#: Makes the operations port.
MakePort = Callable[[Runtime], OperationsServer]


def _read_only(runtime: Runtime) -> OperationsServer:
    return OperationsServer(runtime.pages)


class Embedded:
    """Run an extender within a `with` block; *cluster* is its cluster."""

    def __init__(self, pages: MakePort = _read_only) -> None:
        self.cluster = SimCluster(read_group, SystemClock())
        self.workloads = DemoWorkloads(self.cluster)
        self.placements = PlacementLog(self.cluster)
        self._make_pages = pages
        self._folder = tempfile.TemporaryDirectory(prefix="gang-extender-")
        self._policy = Path(self._folder.name, "policy.yaml")
        self.set_policy(policy_parser.DEFAULT_TEXT)
        # Listen now, so that no other process can take the ports.
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        hooks, ops = (_address(each) for each in self._sockets)
        self._settings = Settings(listen=hooks, ops_listen=ops, config=str(self._policy))
        self._scheduler = SimScheduler(self.cluster, f"http://{hooks}")
        self._runtime: Runtime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._last_plan: dict[str, Any] = {"queues": [], "gangs": [], "held": []}
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedded", daemon=True)

    @property
    def address(self) -> str:
        """The address of the dashboard."""
        return f"http://{self._settings.ops_listen}/"

    @property
    def assumed(self) -> dict[str, str]:
        """Return the node of each bound or assumed pod by uid."""
        return self._scheduler.assumed

    def set_policy(self, text: str) -> None:
        """Replace the policy file; the next cycle reads it."""
        whole = self._policy.with_suffix(".new")
        whole.write_text(text, encoding="utf-8")
        whole.replace(self._policy)

    def plan(self) -> dict[str, Any]:
        """Return the last plan of the operations port, or the one before while the port is busy."""
        url = f"http://{self._settings.ops_listen}/api/v1/plan"
        with suppress(OSError), urlopen(url, timeout=_TIMEOUT_S) as answer:
            self._last_plan = json.load(answer)
        return self._last_plan

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self._folder.cleanup()
            raise self._failure
        self.workloads.start()
        self._scheduler.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.workloads.stop()
        self._scheduler.stop()
        if self._runtime is not None and self._loop is not None:
            self._runtime.drain()
            self._runtime.stop()
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._runtime = runtime = embed(self._settings, loop, self.cluster)
        runtime.start()
        hooks, ops = self._sockets
        hook_server = HookServer(runtime.hooks, runtime.pages.metrics, loop)
        await hook_server.listen(hooks)
        pages = self._make_pages(runtime)
        pages.start(ops)
        self._is_ready.set()
        await self._stopping.wait()
        await hook_server.close(grace_s=0)
        pages.stop(grace_s=0)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"
