"""The extender on a simulated cluster, all in this process and in real time."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import msgspec
import uvloop

from extender.cache.cluster import Cluster
from extender.clock import SystemClock
from extender.demo.hook_client import HookClient
from extender.demo.story import PlacementLog
from extender.hooks.server import HookServer
from extender.metrics import Metrics
from extender.model.gang import GangKey, Phase
from extender.model.pod import PodUid
from extender.planner import policy_parser
from extender.ports import Clock, ClusterPorts, EventRecord, Fencing, ObjectReference
from extender.settings import Settings
from extender.sim.api_server import ApiServer
from extender.sim.clock import PacedClock
from extender.sim.cluster import OPTIONS, ControlPlane
from extender.sim.workloads import Job
from extender.tls.server import PortCertificates
from extender.web import documents
from extender.web.server import OperationsServer
from extender.wiring import Runtime

_CLOCK = SystemClock()


def embed(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    api: ApiServer,
    certificates: Sequence[PortCertificates] = (),
    clock: Clock = _CLOCK,
) -> Runtime:
    """Return an extender on a simulated API server."""

    def connect(cluster: Cluster, _: Metrics, __: Fencing) -> ClusterPorts:
        return ClusterPorts(
            binder=api,
            groups=api,
            waker=api,
            evictor=api,
            undo=api,
            status=ObjectStatus(api),
            events=EventLog(),
            start=lambda: api.listen(cluster.apply),
            stop=lambda: None,
            aclose=lambda: asyncio.sleep(0),
        )

    return Runtime(settings, loop, clock, connect, certificates)


class ObjectStatus:
    """Stores the status of objects; the phase of a PodGroup reaches its watchers."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._written: dict[str, Mapping[str, Any]] = {}

    def read(self, subject: ObjectReference) -> Future[Mapping[str, Any] | None]:
        """Return the status as it is."""
        return self._answer(self._written.get(subject.uid, {}))

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        """Merge *status* into the status."""
        whole = {**self._written.get(subject.uid, {}), **status}
        if subject.kind == "PodGroup":
            key = GangKey(f"{subject.namespace}/{subject.name}")
            phase = Phase(whole.get("phase", "Pending"))
            if not self._api.set_phase(key, subject.uid, phase):
                self._written.pop(subject.uid, None)
                return self._answer(None)
        self._written[subject.uid] = whole
        return self._answer(whole)

    def _answer(self, status: Mapping[str, Any] | None) -> Future[Mapping[str, Any] | None]:
        future: Future[Mapping[str, Any] | None] = Future()
        future.set_result(status)
        return future


class EventLog:
    """Discards Events: no page shows them."""

    def write(self, notice: EventRecord) -> None:
        """Discard *notice*."""


NAMESPACE = "demo"
#: A woken pod is retried at once, so that no act pauses for a backoff.
_OPTIONS = replace(OPTIONS, backs_off=False)
_TIMEOUT_S = 5.0
#: Makes the operations port.
MakePort = Callable[[Runtime], OperationsServer]


def _read_only(runtime: Runtime) -> OperationsServer:
    return OperationsServer(runtime.pages)


class Embedded:
    """Run an extender within a `with` block; *api* has the objects of its cluster."""

    def __init__(self, pages: MakePort = _read_only) -> None:
        self._clock = clock = PacedClock()
        self.api = ApiServer(clock)
        self.placements = PlacementLog(self.api)
        self._make_pages = pages
        self._folder = tempfile.TemporaryDirectory(prefix="gang-extender-")
        self._policy = Path(self._folder.name, "policy.yaml")
        self.set_policy(policy_parser.DEFAULT_TEXT)
        # Listen now, so that no other process can take the ports.
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        hooks, ops = (_address(each) for each in self._sockets)
        self._settings = Settings(listen=hooks, ops_listen=ops, config=str(self._policy))
        self._hooks = HookClient(self._sockets[0].getsockname(), clock)
        self._plane = ControlPlane(clock, self.api, self._hooks, _OPTIONS)
        self.api.on_eviction = self._plane.workloads.evicted
        self.api.listen(lambda change: clock.call_soon(_nothing))  # so that the clock settles
        self._runtime: Runtime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._last_plan = documents.NO_PLAN
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="extender", daemon=True)
        self._plane_thread = threading.Thread(target=self._run_plane, name="cluster", daemon=True)

    @property
    def address(self) -> str:
        """The address of the dashboard."""
        return f"http://{self._settings.ops_listen}/"

    @property
    def assumed(self) -> dict[PodUid, str]:
        """Return the nodes of the pods that kube-scheduler has chosen and not bound yet."""
        return {uid: each.node for uid, each in self._plane.scheduler.assumed.copy().items()}

    # ── jobs; the clock's thread alone touches them ───────────────────────────────────────

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs that have not ended."""
        runs = self._clock.result_of(lambda: self._plane.workloads.present)
        return [run.job for run in runs]

    @property
    def evicted(self) -> Counter[str]:
        """Return the number of evicted pods by job."""
        runs = self._clock.result_of(lambda: [*self._plane.workloads.runs])
        return Counter({run.job.name: run.evicted for run in runs if run.evicted})

    def submit(self, *jobs: Job) -> None:
        """Create jobs, and their pods in turn."""
        self._clock.result_of(partial(self._plane.workloads.create, *jobs))

    def end(self, job: str) -> None:
        """Delete a job with all its pods."""
        self._clock.result_of(partial(self._plane.workloads.end, GangKey(f"{NAMESPACE}/{job}")))

    def end_all(self) -> None:
        """Delete all jobs."""
        self._clock.result_of(self._plane.workloads.forget_all)

    def set_policy(self, text: str) -> None:
        """Replace the policy file; the next cycle reads it."""
        whole = self._policy.with_suffix(".new")
        whole.write_text(text, encoding="utf-8")
        whole.replace(self._policy)

    def plan(self) -> documents.Plan:
        """Return the last plan of the operations port, or the one before while the port is busy."""
        url = f"http://{self._settings.ops_listen}/api/v1/plan"
        with suppress(OSError), urlopen(url, timeout=_TIMEOUT_S) as answer:
            self._last_plan = msgspec.json.decode(answer.read(), type=documents.Plan)
        return self._last_plan

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self._folder.cleanup()
            raise self._failure
        self._plane_thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._clock.stop()
        self._plane_thread.join()
        self._hooks.close()
        if self._runtime is not None and self._loop is not None:
            self._runtime.drain()
            self._runtime.stop()
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._folder.cleanup()

    def _run_plane(self) -> None:
        self._clock.call_soon(self._plane.begin)
        self._clock.run(self._settle)

    def _settle(self) -> None:
        self.api.to_extender.clear()  # the extender has every change already
        self._plane.settle()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._runtime = runtime = embed(self._settings, loop, self.api)
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


def _nothing() -> None:
    pass
