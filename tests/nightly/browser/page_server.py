"""A real operations port whose gangs a test defines."""

from __future__ import annotations

import socket
import time

from extender.forecast.durations import DurationHistory
from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import QueueFigures, Verdict
from extender.policy_file import PolicyFile
from extender.settings import Settings
from extender.status.history import GangHistory
from extender.web.app import create_app
from extender.web.dashboard.context import AppContext
from extender.web.server import OperationsServer
from extender.whatif.page import whatif_runner
from tests.scene import gang, node_table, plan, snapshot, verdict

NO_CAPACITY = Reason.INSUFFICIENT_CAPACITY
QUEUES = {
    name: QueueFigures(
        name=name,
        weight=weight,
        deserved=Resources({"cpu": due, "memory": due << 20}),
        allocated=Resources({"cpu": used, "memory": used << 20}),
        requested=Resources({"cpu": wanted, "memory": wanted << 20}),
        borrowed=Resources({"cpu": max(0, used - due)}),
        share=used / due,
        overused=used > due,
    )
    for name, weight, due, used, wanted in (
        ("left", 3, 12_000, 9_000, 20_000),
        ("right", 1, 4_000, 6_000, 6_000),
    )
}


class PageServer:
    """The server under test; it keeps its port when it is restarted."""

    def __init__(self) -> None:
        self.history = GangHistory()
        self.trouble: list[str] = []
        policies = PolicyFile()
        self.pages = create_app(
            AppContext(
                history=self.history,
                findings=list,
                policies=policies,
                metrics=Metrics(),
                why_not_ready=lambda: self.trouble,
                warmth=list,
                standby=list,
                notes=list,
                silence=lambda: {"pods": 0.4},
                forecaster=Forecaster(policies.current),
                suppose=whatif_runner(Settings(), DurationHistory()),
            )
        )
        self._gangs: dict[str, tuple[Gang, Verdict]] = {}
        self._cycle = 0
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        self._serving: OperationsServer | None = None
        self._serve(listening)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(
        self, name: str, reason: Reason = NO_CAPACITY, count: int = 2, message: str = ""
    ) -> None:
        """Add a gang to the next plan."""
        is_running = reason is Reason.RUNNING
        status = Status.RUNNING if is_running else Status.PENDING
        queue = "left" if len(self._gangs) % 2 else "right"
        made = gang(name, count, status=status, queue=queue, created=time.time() - 90)
        text = message or f"needs {count} x 1 cpu; 0 slots free"
        decision = verdict(
            f"a/{name}", reason, message=text, queue=queue, min_member=count, members=count
        )
        self._gangs[name] = made, decision

    def plan(self) -> None:
        """Publish a plan with all gangs."""
        self._cycle += 1
        seen = snapshot(
            *(made for made, _ in self._gangs.values()),
            now=time.time(),
            generation=self._cycle,
            nodes=node_table([8, 8, 4]),
        )
        decided = plan(
            *(decision for _, decision in self._gangs.values()),
            generation=self._cycle,
            queues=QUEUES,
            total=Resources({"cpu": 20_000, "memory": 192 << 30}),
            unused=Resources({"cpu": 5_000, "memory": 90 << 30}),
        )
        self.history.note(seen, decided)

    def restart(self) -> None:
        """Serve at the same address again, after `stop`."""
        self._serve(socket.create_server(("127.0.0.1", self.port)))

    def stop(self) -> None:
        """Stop the server."""
        if self._serving is not None:
            self._serving.stop(grace_s=0)
            self._serving = None

    def _serve(self, listening: socket.socket) -> None:
        self._serving = OperationsServer(self.pages)
        self._serving.start(listening)
