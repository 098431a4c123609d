"""A week of churn in virtual time: objects of all kinds are created and deleted under new names.

Each shift takes about a minute, six times a day; then the clock moves on by four hours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.runner import EvictionRunner
from extender.findings.audit import Audit
from extender.model.gang import GangKey, Membership, PodGroup
from extender.model.pod import HostPort, Pod, PodUid, Requirement, Shape, Status
from extender.model.queue import Namespace, NamespaceShare, PriorityClass, Queue
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota, Snapshot
from extender.permit.runner import Observer
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.sim.kube_scheduler import KubeScheduler
from extender.status.findings import Findings
from extender.status.history import GangHistory
from extender.status.notes import BindNotes, SchedulerNotes
from extender.status.reporter import Reporter
from tests.doubles import RecordingAnnouncer, RecordingEvictor, RecordingWriter
from tests.system.referee import Referee
from tests.system.system import SCHEDULER, System
from tests.system.world import VOLCANO, World, amounts, key

from .containers import sizes

SHIFT_S = 4 * 3600.0
SHIFTS = 6
#: Longer than any timeout after which the extender forgets something.
QUIET_S = 3600.0
#: The simulated cluster and the test doubles, which remember everything.
SIMULATED = (
    ApiServer, Referee, KubeScheduler, VirtualClock, World,
    RecordingAnnouncer, RecordingEvictor, RecordingWriter,
)  # fmt: skip


class WholeSystem(System):
    """The simulated system with status and evictions, which the stories leave out."""

    def __init__(
        self, time: VirtualClock, api: ApiServer, policy: Policy = policy_parser.DEFAULT
    ) -> None:
        self._announcer, self._writer = RecordingAnnouncer(), RecordingWriter()
        super().__init__(time, api, policy)
        self.history = GangHistory()
        self._findings = Findings(Audit(), self._announcer, time)
        self._reporter = Reporter(
            writer=self._writer,
            events=self._announcer,
            history=self.history,
            findings=self._findings,
            metrics=self.metrics,
            clock=time,
        )
        self._evictions = EvictionRunner(
            evictor=RecordingEvictor(),
            events=self._announcer,
            history=self.history,
            metrics=self.metrics,
            clock=time,
            backoff=EvictionBackoff(min_run_s=60.0),
            pending=self._cluster.pending_evictions,
        )
        self._notes = SchedulerNotes(self._cluster.liveness, self.metrics, time)
        self._cluster.liveness.on_change(self._notes.liveness_changed)

    def _observer(self) -> Observer:
        return BindNotes(self.metrics, self._cluster, self._announcer, self._time, 45.0)

    def protect(self, snapshot: Snapshot) -> Snapshot:
        return self._evictions.protect(snapshot)

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        self._evictions.send(snapshot, plan)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        self._reporter.report(snapshot, plan)
        self._reporter.work()

    def kept(self) -> Counter[str]:
        """Count what the extender keeps."""
        self._reporter.work()
        return sizes(self, besides=SIMULATED)


class Week:
    """A cluster of two nodes that stay; all other objects are created and deleted."""

    def __init__(self) -> None:
        self.world = World(kind=WholeSystem)
        self.world.referee.check = lambda: None  # type: ignore[method-assign]
        self.world.create_node("n1")
        self.world.create_node("n2")
        self.world.advance(1)
        self._shifts = 0

    @property
    def system(self) -> WholeSystem:
        assert isinstance(self.world.system, WholeSystem)
        return self.world.system

    def close(self) -> None:
        self.world.close()

    def days(self, number: int) -> Counter[str]:
        """Run for *number* days; count what is kept after a quiet hour."""
        for _ in range(number * SHIFTS):
            self._shift()
            self._jump(SHIFT_S)
        self._jump(QUIET_S)
        return self.system.kept()

    def _jump(self, seconds: float) -> None:
        self.world.time.seconds += seconds
        self.world.advance(6)

    def _shift(self) -> None:
        self._shifts += 1
        world, name = self.world, f"s{self._shifts}"
        self._create_policy(name)
        world.create_node(f"node-{name}", cpu=4)
        world.create_gang(f"gang-{name}", 3, queue=f"queue-{name}")
        world.create_gang(f"large-{name}", 12)
        world.create_gang(f"surplus-{name}", 3, least=2)
        world.create_gang(f"short-{name}", 1, least=2)
        world.create_pod(f"pod-{name}", queue=f"queue-{name}")
        self._odd_pods(name)
        world.advance(3)
        world.shrink(f"node-{name}", cpu=1)
        world.advance(1)
        world.create_pod(f"woken-{name}", cpu=4)
        world.advance(21)
        world.remove_node(f"node-{name}")
        for gang in ("gang", "large", "surplus", "short"):
            world.delete_gang(f"{gang}-{name}")
        for pod in list(world.api.pods.values()):
            world.delete_pod(pod.pod.name)
        world.advance(2)
        self._delete_policy(name)
        world.advance(5)

    def _odd_pods(self, name: str) -> None:
        """Show pods with unique shapes, ports, roles and namespaces; all end or are deleted."""
        shape = Shape(
            requests=Resources({**amounts(1, memory=1, pods=1), f"example.com/{name}": 1}),
            selector=((f"label-{name}", "x"),),
            host_ports=(HostPort(1000 + self._shifts, "TCP", "0.0.0.0"),),
        )
        about = {
            "namespace": f"ns-{name}",
            "scheduler": SCHEDULER,
            "created": self.world.time.now(),
        }
        picky = Pod(uid=PodUid(f"uid-picky-{name}"), name=f"picky-{name}", shape=shape, **about)
        member = Membership(key=GangKey(f"ns-{name}/pod:picky-{name}"))
        self.system.apply(Upsert(SeenPod(picky, member)))
        self.system.apply(Upsert(SeenPod(replace(picky, role=f"role-{name}"), member)))
        done = replace(picky, status=Status.SUCCEEDED, node="n1")
        self.system.apply(Upsert(SeenPod(done, member)))
        self.system.apply(Delete(Kind.POD, picky.uid))
        # Woken, and deleted before the watch shows it.
        self.system.pod_woken(picky.uid, "n1")
        other = Pod(
            uid=PodUid(f"uid-other-{name}"), name="s", shape=shape, node=f"node-{name}",
            status=Status.RUNNING, ours=False, **{**about, "scheduler": "default-scheduler"},
        )  # fmt: skip
        self.system.apply(Upsert(SeenPod(other, Membership(key=key(f"s-{name}"), named=True))))
        self.system.apply(Delete(Kind.POD, other.uid))

    def _create_policy(self, name: str) -> None:
        namespace = f"ns-{name}"
        share = NamespaceShare(queue=f"queue-{name}", namespace=namespace, limit=amounts(cpu=3))
        need = Requirement("app", "In", (name,))
        for item in (
            Queue(name=f"queue-{name}", uid=f"queue-{name}", capability=amounts(cpu=8)),
            Namespace(name=namespace, shares=(share,)),
            PriorityClass(name=f"class-{name}", value=1),
            ResourceQuota(namespace=namespace, name="quota"),
            DisruptionBudget(namespace=namespace, name="budget", selector=(need,), least=2),
            PodGroup(namespace=namespace, name="idle", min_member=2, dialect=VOLCANO, uid=name),
        ):
            self.system.apply(Upsert(item, VOLCANO if isinstance(item, Queue) else ""))

    def _delete_policy(self, name: str) -> None:
        namespace = f"ns-{name}"
        self.system.apply(Delete(Kind.QUEUE, f"queue-{name}", VOLCANO))
        self.system.apply(Delete(Kind.NAMESPACE, namespace))
        self.system.apply(Delete(Kind.PRIORITY_CLASS, f"class-{name}"))
        self.system.apply(Delete(Kind.QUOTA, f"{namespace}/quota"))
        self.system.apply(Delete(Kind.BUDGET, f"{namespace}/budget"))
        self.system.apply(Delete(Kind.GROUP, f"{namespace}/idle", VOLCANO))
