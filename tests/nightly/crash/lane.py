"""One control plane with one pair of ours, and a proxy on either side of the extender."""

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
from tests.cluster.faults import Script
from tests.cluster.observer import BindObserver
from tests.cluster.processes import NeverReady
from tests.cluster.proxy import Proxy, ProxyLoop
from tests.cluster.waiting import wait_for
from tests.nightly.faults.observer import Observer
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
from tests.nightly.faults.sightings import amounts
from tests.nightly.faults.witness import EXTENDER, BindingWitness, HookWitness, name_call, name_hook

from .forked import ForkedExtender

SCHEDULER = "crash-scheduler"
#: Of a namespace whose gang came in part none is held for up to two minutes before all of it is
#: there; so each scene has the next one, and by the time they begin again that is over.
NAMESPACES = tuple(f"tenant-{index}" for index in range(40))
URGENT = "crash-urgent"
QUEUES = ("crash-a", "crash-b")
#: A queue that may have half of all room.
LIMITED = "crash-limited"
CEILING = 4
#: All the room there is: what a leak takes away is missed by the next scene.
NODES = tuple(f"crash-{index}" for index in range(4))
CPUS = 8
BIND_TIMEOUT_S = 21.0
#: Short spans, so that a scene that needs them all takes seconds.
FLAGS = (
    f"--scheduler-name={SCHEDULER}",
    "--prefer=pack",
    "--hold-s=6",
    f"--bind-timeout-s={BIND_TIMEOUT_S:g}",
    "--arrival-grace-s=0.7",
    "--take-back-s=2",
    "--ticket-s=6",
)
CONFIG_FLAGS = (
    f"--scheduler-name={SCHEDULER}",
    "--prefer=pack",
    f"--bind-timeout-s={BIND_TIMEOUT_S:g}",
)
#: A hook that is slow is still quick enough for kube-scheduler.
_SLOW_HOOK_S = 1.0
_QUIET_S = 30.0


class Rolling(Record):
    """A record that can begin anew, with the nodes and queues that there are."""

    def begin(self) -> None:
        with self._lock:
            self._moments = [each for each in self._moments if isinstance(each, NodeSet | QueueSet)]

    def page(self) -> Record:
        """Give what was noted since, without the late end of a pod from before."""
        moments = list(self)
        made = {each.uid for each in moments if isinstance(each, PodCreated)}
        later = (PodBound, PodLeaving, PodEnded)
        return Record(each for each in moments if not isinstance(each, later) or each.uid in made)


@dataclass(frozen=True, slots=True)
class _Address:
    """Where kube-scheduler is to ask: the proxy."""

    url: str


class Lane:
    """Plays one scene at a time, for a `with` block."""

    def __init__(self, folder: Path, board: ProxyLoop) -> None:
        self._folder = folder
        self._board = board
        self._running = ExitStack()
        self._was_killed = threading.Event()
        self._killing = threading.Lock()
        self._ends = threading.Event()
        self._namespaces = cycle(NAMESPACES)
        self.namespace = next(self._namespaces)
        self.record = Rolling()

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

    def _dismiss(self, keeper: threading.Thread) -> None:
        self._ends.set()
        self._was_killed.set()
        keeper.join(60)

    def _start(self) -> None:
        running = self._running
        self.plane = running.enter_context(ControlPlane(self._folder, audit=False))
        self.plane.install()
        self.api = self.plane.api
        self.api.create(
            *map(objects.namespace, NAMESPACES),
            objects.priority_class(URGENT, 1000),
            *map(objects.queue, QUEUES),
            objects.queue(LIMITED, capability={"cpu": str(CEILING)}),
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
        keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        keeper.start()
        running.callback(self._dismiss, keeper)

    def _open_proxies(self) -> None:
        self.calls = Proxy(
            name_call,
            lambda: self.plane.apiserver.ports[0],
            tls=True,
            kill=self.kill,
            witness=BindingWitness(self.record),
        )
        self.hooks = Proxy(
            name_hook,
            lambda: self.extender.ports[0],
            kill=self.kill,
            answers_before_kill=True,
            slow_s=_SLOW_HOOK_S,
            witness=HookWitness(self.record),
        )
        for proxy in (self.calls, self.hooks):
            self._board.run(proxy.listen())
            self._running.callback(lambda proxy=proxy: self._board.run(proxy.close()))

    def _kubeconfig(self) -> Path:
        """The extender's, by way of the proxy; that speaks TLS to the API server for it."""
        about = yaml.safe_load(self.plane.kubeconfig("extender").read_text())
        about["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.calls.port}"}
        path = self.plane.folder / "extender-by-proxy.kubeconfig"
        path.write_text(yaml.safe_dump(about))
        return path

    # Killing and coming back

    def kill(self) -> None:
        """End the extender at once; it is started again by itself."""
        with self._killing:
            # It hangs up from here on; that nobody listens any more may take a second to be seen.
            self.record.note(Killed(at=self.record.now(), who=EXTENDER))
            with suppress(AssertionError, ProcessLookupError):
                os.killpg(self.extender.pid, signal.SIGKILL)
            self._wait_until_nobody_listens()
            self.record.note(Killed(at=self.record.now(), who=EXTENDER, still=True))
            self._was_killed.set()

    def _wait_until_nobody_listens(self) -> None:
        """The kernel takes connections for it until the last of its processes is gone."""
        for _ in range(1000):
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", self.extender.ports[0])) != 0:
                    return
            time.sleep(0.002)

    def _keep(self) -> None:
        while True:
            self._was_killed.wait()
            if self._ends.is_set():
                return
            self._was_killed.clear()
            self.extender.kill()
            # Once more: what was written to it while it died was written to nobody.
            self._wait_until_nobody_listens()
            self.record.note(Killed(at=self.record.now(), who=EXTENDER, still=True))
            try:
                self.extender.start()
            except NeverReady as why:
                with self._killing:
                    was_killed_again = self._was_killed.is_set()
                if not was_killed_again:
                    # Not killed again, and yet not there: it is tried once more, and told.
                    print(f"the extender did not start: {why}", file=sys.stderr, flush=True)
                    self._was_killed.set()
                continue
            self.record.note(Ready(at=self.record.now(), who=EXTENDER))

    @property
    def is_up(self) -> bool:
        return not self._was_killed.is_set() and self.extender.is_running

    def become(self, plant: str) -> None:
        """Run the extender with *plant*, or with "" as it is."""
        if plant != self.extender.plant:
            self.extender.plant = plant
            self.kill()
            wait_for(lambda: self.is_up and self.extender.is_ready(), 90, "the extender is back")

    # One point

    def begin(self, what: str) -> None:
        """Begin a page of the record, in another namespace."""
        self.namespace = next(self._namespaces)
        self.record.begin()
        self.record.line(what)

    def written(self) -> int:
        """Count the bytes that the extender has written into its log so far."""
        log = self.extender.log_file
        return log.stat().st_size if log.exists() else 0

    def tracebacks(self, since: int) -> list[str]:
        """Give the lines with which tracebacks begin that it wrote after so many bytes."""
        found = re.finditer(r"^.*Traceback \(most recent.*$", self.extender.log(since), re.M)
        return [each.group() for each in found]

    def arm(self, script: Script) -> None:
        """Let both proxies count from now on, by this script."""
        self.calls.script = script
        self.hooks.script = script

    def disarm(self) -> None:
        """Let everything pass."""
        self.arm(Script())

    def clean(self) -> None:
        """Take everything away, and wait until all have seen it."""
        for resource in ("pods", objects.POD_GROUPS):
            self.api.delete_all(resource, self.namespace, grace_seconds=0)
        wait_for(lambda: not self._alive(), _QUIET_S, "all pods are seen to be gone")

    @property
    def holds_nothing(self) -> bool:
        """Whether the extender is ready and says that no bind waits."""
        try:
            return self.is_up and self.extender.is_ready() and not self.extender.waiting_binds
        except (urllib3.exceptions.HTTPError, OSError):
            return False  # killed while it was asked

    def wait_until_quiet(self, seconds: float = _QUIET_S) -> None:
        """Wait until the extender is up, holds nothing and counts nothing as taken; note it.

        Nobody can judge what it never says: then this is no quiet, but an error.
        """
        told: list[dict[str, dict[str, int]]] = []

        def is_quiet() -> bool:
            if not self.holds_nothing:
                return False
            told.append(self.taken())
            return not told[-1]

        wait_for(lambda: self.holds_nothing, 90, "the extender is ready and holds nothing")
        try:
            wait_for(is_quiet, seconds, "it says what it counts as taken", every_s=0.05)
        except AssertionError:
            if not told:
                raise
        self.record.note(Promised(at=self.record.now(), who=EXTENDER, taken=told[-1]))

    def taken(self) -> dict[str, dict[str, int]]:
        """Ask the extender what it counts as taken on each node, in thousandths.

        What stands on a node in its snapshot is there, or promised room there.
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
        """Ask the extender what it knows of an object with which it plans."""
        named = (each for each in self._snapshot() if each["metadata"]["name"] == name)
        found = next((each for each in named if each["kind"] == kind), None)
        assert found is not None, f"there is no {kind} {name} in the snapshot"
        return found

    def _snapshot(self) -> list[Object]:
        """Give what its last plan saw; whoever waits for something asks again."""
        try:
            with urllib3.PoolManager(retries=False, timeout=5) as http:
                answer = http.request("GET", f"{self.extender.ops_url}/api/v1/snapshot")
            assert answer.status == 200, f"the snapshot is answered with {answer.status}"
            return list(answer.json()["items"])
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as why:
            raise AssertionError(f"the snapshot does not answer: {why}") from why

    def _alive(self) -> set[str]:
        """The pods that the observer has not seen end."""
        moments = list(self.record)
        ended = {each.uid for each in moments if isinstance(each, PodEnded)}
        return {each.uid for each in moments if isinstance(each, PodCreated)} - ended

    def tolerate(self) -> None:
        """Come back to a known state after a scene that did not end well."""
        with suppress(ApiError, AssertionError):
            self.clean()
        self.kill()
        wait_for(lambda: self.is_up and self.extender.is_ready(), 90, "the extender is back")
