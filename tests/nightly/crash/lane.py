"""One control plane with one pair, and a proxy on either side of the extender."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3
import yaml

from tests import objects
from tests.cluster.api import ApiError, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.observer import BindObserver
from tests.cluster.processes import NeverReady
from tests.cluster.waiting import wait_for
from tests.nightly.faults.fault_points import Script
from tests.nightly.faults.observer import Observer
from tests.nightly.faults.proxy import Proxy, ProxyLoop
from tests.nightly.faults.record import (
    Killed,
    NodeSet,
    PodBound,
    PodCreated,
    PodEnded,
    PodLeaving,
    Promised,
    QueueSet,
    Ready,
    Record,
)
from tests.nightly.faults.recorders import (
    EXTENDER,
    BindingRecorder,
    HookRecorder,
    name_call,
    name_hook,
)
from tests.nightly.faults.watch_decoder import amounts

from .forked import ForkedExtender

SCHEDULER = "crash-scheduler"
#: After an incomplete gang the extender holds no binds in its namespace for up to two minutes, so
#: each scene uses the next namespace.
NAMESPACES = tuple(f"tenant-{index}" for index in range(40))
URGENT = "crash-urgent"
QUEUES = ("crash-a", "crash-b")
#: A queue that is limited to half of all capacity.
LIMITED = "crash-limited"
LIMIT = 4
#: The whole capacity, so that a leak makes the next scene fail.
NODES = tuple(f"crash-{index}" for index in range(4))
CPUS = 8
BIND_TIMEOUT_S = 21.0
#: Short timeouts, so that scenes take seconds.
FLAGS = (
    f"--scheduler-name={SCHEDULER}",
    "--prefer=pack",
    "--hold-s=6",
    f"--bind-timeout-s={BIND_TIMEOUT_S:g}",
    "--arrival-grace-s=0.7",
    "--evict-partial-s=2",
    "--reservation-s=6",
)
CONFIG_FLAGS = (
    f"--scheduler-name={SCHEDULER}",
    "--prefer=pack",
    f"--bind-timeout-s={BIND_TIMEOUT_S:g}",
)
#: Shorter than kube-scheduler's timeout.
_SLOW_HOOK_S = 1.0
_QUIET_S = 30.0


class RestartableRecord(Record):
    """A record that can be restarted, with the existing nodes and queues."""

    def restart(self) -> None:
        with self._lock:
            self._moments = [each for each in self._moments if isinstance(each, NodeSet | QueueSet)]

    def since_restart(self) -> Record:
        """Return the moments since the restart, without those of older pods."""
        moments = list(self)
        made = {each.uid for each in moments if isinstance(each, PodCreated)}
        later = (PodBound, PodLeaving, PodEnded)
        return Record(each for each in moments if not isinstance(each, later) or each.uid in made)


@dataclass(frozen=True, slots=True)
class _Address:
    """The URL of the proxy, for kube-scheduler's configuration."""

    url: str


class Lane:
    """Runs one scene at a time, during a `with` block."""

    def __init__(self, folder: Path, board: ProxyLoop) -> None:
        self._folder = folder
        self._board = board
        self._running = ExitStack()
        self._was_killed = threading.Event()
        self._killing = threading.Lock()
        self._ends = threading.Event()
        self._namespaces = cycle(NAMESPACES)
        self.namespace = next(self._namespaces)
        self.record = RestartableRecord()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    def _start(self) -> None:
        running = self._running
        self.plane = running.enter_context(ControlPlane(self._folder, audit=False))
        self.plane.install()
        self.api = self.plane.api
        self.api.create(
            *map(objects.namespace, NAMESPACES),
            objects.priority_class(URGENT, 1000),
            *map(objects.queue, QUEUES),
            objects.queue(LIMITED, capability={"cpu": str(LIMIT)}),
            *(objects.node(name, cpu=str(CPUS // len(NODES))) for name in NODES),
        )
        self.plane.wait_until_nodes_are_ready(list(NODES))
        self._open_proxies()
        running.enter_context(Observer(self.api, self.record, SCHEDULER))
        self.binds = running.enter_context(BindObserver(self.api))
        self.extender = ForkedExtender(
            "gang-extender", self.plane.logs, kubeconfig=self._kubeconfig(), arguments=FLAGS
        )
        self.plane.programs.append(self.extender)
        running.enter_context(self.extender)
        address: Any = _Address(f"http://127.0.0.1:{self.hooks.port}")
        config = self.plane.scheduler_config(address, *CONFIG_FLAGS)
        self.scheduler = running.enter_context(self.plane.scheduler(config))
        keeper = threading.Thread(target=self.restart_killed, name="keeper", daemon=True)
        keeper.start()
        running.callback(keeper.join, 60)
        running.callback(self.stop_restarting)

    def _open_proxies(self) -> None:
        self.calls = Proxy(
            name_call,
            lambda: self.plane.apiserver.ports[0],
            tls=True,
            kill=self.kill,
            witness=BindingRecorder(self.record),
        )
        self.hooks = Proxy(
            name_hook,
            lambda: self.extender.ports[0],
            kill=self.kill,
            answers_before_kill=True,
            slow_s=_SLOW_HOOK_S,
            witness=HookRecorder(self.record),
        )
        for proxy in (self.calls, self.hooks):
            self._board.run(proxy.listen())
            self._running.callback(lambda proxy=proxy: self._board.run(proxy.close()))

    def _kubeconfig(self) -> Path:
        """Write the extender's kubeconfig for the proxy, which uses TLS to the API server."""
        about = yaml.safe_load(self.plane.kubeconfig("extender").read_text())
        about["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.calls.port}"}
        path = self.plane.folder / "extender-by-proxy.kubeconfig"
        path.write_text(yaml.safe_dump(about))
        return path

    # Kill and restart

    def kill(self) -> None:
        """Kill the extender; the keeper thread restarts it."""
        with self._killing:
            # Connections close from here on; the port may stay open for up to a second.
            self.record.note(Killed(at=self.record.now(), who=EXTENDER))
            with suppress(AssertionError, ProcessLookupError):
                os.killpg(self.extender.pid, signal.SIGKILL)
            self._wait_until_port_is_closed()
            self.record.note(Killed(at=self.record.now(), who=EXTENDER, still=True))
            self._was_killed.set()

    def _wait_until_port_is_closed(self) -> None:
        """Wait: the kernel accepts connections until the last process is gone."""
        for _ in range(1000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.extender.ports[0])) != 0:
                    return
            time.sleep(0.002)

    def stop_restarting(self) -> None:
        """Let `restart_killed` return."""
        self._ends.set()
        self._was_killed.set()

    def restart_killed(self) -> None:
        """Restart the extender whenever it was killed."""
        while True:
            self._was_killed.wait()
            if self._ends.is_set():
                return
            self._was_killed.clear()
            self.extender.kill()
            # Recorded again: calls that arrived while it died are lost.
            self._wait_until_port_is_closed()
            self.record.note(Killed(at=self.record.now(), who=EXTENDER, still=True))
            try:
                self.extender.start()
            except NeverReady as why:
                with self._killing:
                    was_killed_again = self._was_killed.is_set()
                if not was_killed_again:
                    # Not killed again, and yet not running: retry.
                    print(f"the extender did not start: {why}", file=sys.stderr, flush=True)
                    self._was_killed.set()
                continue
            self.record.note(Ready(at=self.record.now(), who=EXTENDER))

    @property
    def is_up(self) -> bool:
        return not self._was_killed.is_set() and self.extender.is_running

    def use_plant(self, plant: str) -> None:
        """Run the extender with a planted fault, or with "" without one."""
        if plant != self.extender.plant:
            self.extender.plant = plant
            self.kill()
            wait_for(lambda: self.is_up and self.extender.is_ready(), 90, "the extender is back")

    # One point

    def start_point(self, what: str) -> None:
        """Restart the record, and use another namespace."""
        self.namespace = next(self._namespaces)
        self.record.restart()
        self.record.line(what)

    def log_size(self) -> int:
        """Return the size of the extender's log."""
        log = self.extender.log_file
        return log.stat().st_size if log.exists() else 0

    def tracebacks(self, since: int) -> list[str]:
        """Return the first lines of tracebacks in the log after the byte *since*."""
        found = re.finditer(r"^.*Traceback \(most recent.*$", self.extender.log(since), re.M)
        return [each.group() for each in found]

    def arm(self, script: Script) -> None:
        """Let both proxies use *script* from now on."""
        self.calls.script = script
        self.hooks.script = script

    def disarm(self) -> None:
        """Let both proxies inject no faults."""
        self.arm(Script())

    def clean(self) -> None:
        """Delete everything, and wait until the observer has seen it."""
        for resource in ("pods", objects.POD_GROUPS):
            self.api.delete_all(resource, self.namespace, grace_seconds=0)
        wait_for(lambda: not self._alive(), _QUIET_S, "all pods are deleted")

    @property
    def has_no_waiting_binds(self) -> bool:
        """Return whether the extender is ready and no bind waits."""
        try:
            return self.is_up and self.extender.is_ready() and not self.extender.waiting_binds
        except (urllib3.exceptions.HTTPError, OSError):
            return False  # killed meanwhile

    def wait_until_quiet(self, seconds: float = _QUIET_S) -> None:
        """Wait until the extender is ready, no bind waits and no capacity is used; record it.

        Raises if the extender never reports its usage.
        """
        reports: list[dict[str, dict[str, int]]] = []

        def is_quiet() -> bool:
            if not self.has_no_waiting_binds:
                return False
            reports.append(self.usage())
            return not reports[-1]

        wait_for(lambda: self.has_no_waiting_binds, 90, "the extender is ready and no bind waits")
        try:
            wait_for(is_quiet, seconds, "it reports no usage", every_s=0.05)
        except AssertionError:
            if not reports:
                raise
        self.record.note(Promised(at=self.record.now(), who=EXTENDER, taken=reports[-1]))

    def usage(self) -> dict[str, dict[str, int]]:
        """Return the usage of each node by the extender's snapshot, in thousandths.

        The pods of a node in its snapshot are bound there, or have a reservation.
        """
        taken: dict[str, dict[str, int]] = {}
        for thing in self._snapshot():
            node = thing["kind"] == "Pod" and thing["spec"].get("nodeName")
            for container in thing["spec"]["containers"] if node else ():
                on_node = taken.setdefault(node, {})
                for name, amount in amounts(container["resources"]["requests"]).items():
                    on_node[name] = on_node.get(name, 0) + amount
        return taken

    def planned_with(self, kind: str, name: str) -> Object:
        """Return an object of the extender's last snapshot."""
        named = (each for each in self._snapshot() if each["metadata"]["name"] == name)
        found = next((each for each in named if each["kind"] == kind), None)
        assert found is not None, f"there is no {kind} {name} in the snapshot"
        return found

    def _snapshot(self) -> list[Object]:
        """Return the objects of its last plan; raises AssertionError while it does not answer."""
        try:
            with urllib3.PoolManager(retries=False, timeout=5) as http:
                answer = http.request("GET", f"{self.extender.ops_url}/api/v1/snapshot")
            assert answer.status == 200, f"the snapshot is answered with {answer.status}"
            return list(answer.json()["items"])
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as why:
            raise AssertionError(f"the snapshot does not answer: {why}") from why

    def _alive(self) -> set[str]:
        """Return the pods that have not ended by the record."""
        moments = list(self.record)
        ended = {each.uid for each in moments if isinstance(each, PodEnded)}
        return {each.uid for each in moments if isinstance(each, PodCreated)} - ended

    def reset(self) -> None:
        """Restore a known state after a failed scene."""
        with suppress(ApiError, AssertionError):
            self.clean()
        self.kill()
        wait_for(lambda: self.is_up and self.extender.is_ready(), 90, "the extender is back")
