"""One small cluster for every reason, with the message it gives there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from extender.model.pod import Status
from extender.model.queue import QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness, SchedulerStatus, Snapshot
from extender.planner import policy_parser
from tests.builders import SOON, amounts, gang, node, nodes, queue, share, snapshot

OVERCOMMITTED = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: gang}, {name: overcommit}, {name: predicates}]}]
"""
TREE = """
actions: "allocate"
tiers: [{plugins: [{name: gang}, {name: capacity, enableHierarchy: true}, {name: predicates}]}]
"""


@dataclass(frozen=True)
class ReasonCase:
    reason: Reason
    message: str
    before: Callable[[], Snapshot]
    policy: str = policy_parser.DEFAULT_TEXT


def waiting(size: int = 2, **rest: Any) -> Any:
    return gang("a/train", size, **{"cpu": 1, "created": 5.0, **rest})


def small(*gangs: Any, queues: tuple[Any, ...] = (), cpu: float = 4, **rest: Any) -> Snapshot:
    return snapshot([node("n1", cpu=cpu)], gangs, queues, **rest)


def with_roles() -> Snapshot:
    roles = {"min_by_role": {"master": 1, "worker": 1}}
    return small(gang("a/train", 2, cpu=1, group=roles, each={"role": "worker"}))


def _changed(before: Snapshot, **changes: Any) -> Snapshot:
    key = next(key for key in before.gangs if key == "a/train")
    changed = replace(before.gangs[key], **changes)
    return replace(before, gangs={**before.gangs, key: changed})


def _backing_off() -> Snapshot:
    return _changed(small(waiting()), backing_off_until=SOON + 30)


def _silent_scheduler() -> Snapshot:
    silent = SchedulerStatus(
        name="volcano",
        liveness=Liveness.SILENT,
        called_at=SOON - 47,
        quiet_since=SOON - 47,
        is_alive=False,
    )
    return replace(small(waiting(each={"scheduler": "volcano"})), schedulers={"volcano": silent})


def _without_group() -> Snapshot:
    problem = Problem(Reason.POD_GROUP_MISSING, "PodGroup a/train does not exist")
    return _changed(small(waiting()), problem=problem)


SENTENCES = [
    ReasonCase(
        Reason.ADMITTED,
        "2 members have nodes, all of them now",
        lambda: small(waiting()),
    ),
    ReasonCase(
        Reason.RUNNING,
        "2 of at least 2 members run",
        lambda: small(waiting(on=["n1", "n1"])),
    ),
    ReasonCase(
        Reason.RUNNING,
        "2 of at least 2 members run; 1 beyond the minimum wait",
        lambda: small(waiting(3, min_member=2, on=["n1", "n1"]), cpu=2),
    ),
    ReasonCase(
        Reason.COMPLETED,
        "all 2 members have succeeded",
        lambda: small(waiting(on=["n1", "n1"], each={"status": Status.SUCCEEDED})),
    ),
    ReasonCase(
        Reason.COMPLETED,
        "all 2 members have ended, 2 of them failed",
        lambda: small(waiting(on=["n1", "n1"], each={"status": Status.FAILED})),
    ),
    ReasonCase(
        Reason.NOT_ENOUGH_MEMBERS,
        "has 2 of at least 4 members",
        lambda: small(waiting(min_member=4)),
    ),
    ReasonCase(
        Reason.NOT_ENOUGH_ROLES,
        "has 0 of at least 1 members of role 'master'",
        with_roles,
    ),
    ReasonCase(
        Reason.GATED,
        "0 of at least 2 members may start; 2 have scheduling gates",
        lambda: small(waiting(each={"gated": True})),
    ),
    ReasonCase(
        Reason.QUEUE_NOT_FOUND,
        "queue gold does not exist; create it or name another",
        lambda: small(waiting(queue="gold")),
    ),
    ReasonCase(
        Reason.QUEUE_CLOSED,
        "queue gold is closed",
        lambda: small(waiting(queue="gold"), queues=(queue("gold", state=QueueState.CLOSED),)),
    ),
    ReasonCase(
        Reason.QUEUE_NOT_ALLOWED,
        "queue above has queues below it; a gang must name one without",
        lambda: small(
            waiting(queue="above"), queues=(queue("above"), queue("below", parent="above"))
        ),
        TREE,
    ),
    ReasonCase(
        Reason.QUEUE_OVER_DESERVED,
        "queue gold deserves 2 cpu and uses 2; the gang needs 2 x 1",
        lambda: small(
            waiting(queue="gold"),
            gang("a/mine", 2, queue="gold", cpu=1, on=["n1", "n1"]),
            gang("a/theirs", 2, queue="iron", cpu=1, on=["n1", "n1"]),
            gang("a/more", 2, queue="iron", cpu=1),
            queues=(queue("gold"), queue("iron")),
        ),
    ),
    ReasonCase(
        Reason.QUEUE_AT_CAPABILITY,
        "queue gold uses 1 of at most 1 cpu; 1 more would exceed it",
        lambda: small(
            waiting(1, queue="gold"),
            gang("a/other", 1, queue="gold", cpu=1, on=["n1"]),
            queues=(queue("gold", capability=amounts(cpu=1)),),
        ),
    ),
    ReasonCase(
        Reason.NAMESPACE_OVER_LIMIT,
        "namespace a uses 1 of at most 2 cpu in queue gold; 2 more would exceed it",
        lambda: small(
            waiting(2, queue="gold"),
            gang("a/mine", 1, queue="gold", cpu=1, on=["n1"]),
            gang("b/theirs", 1, queue="gold", cpu=1, on=["n1"]),
            queues=(queue("gold"),),
            shares=(share("gold/a", at_most=amounts(cpu=2)),),
        ),
    ),
    ReasonCase(
        Reason.NOT_ENQUEUED,
        "requests 5 cpu; 4800m free with overcommit, 0 of it reserved for gangs admitted before",
        lambda: small(waiting(group={"min_resources": Resources({"cpu": 5000})})),
        OVERCOMMITTED,
    ),
    ReasonCase(
        Reason.BEHIND_IN_ORDER,
        "needs 2 x 1 cpu; 3 slots free before, 1 left: a/first went first",
        lambda: small(gang("a/first", 2, cpu=1, created=1.0), waiting(), cpu=3),
    ),
    ReasonCase(
        Reason.INSUFFICIENT_CAPACITY,
        "needs 2 x 1 cpu; 1 slot free: 1 node short of cpu",
        lambda: snapshot(
            nodes(2, cpu=2), [gang("a/old", 3, cpu=1, on=["n1", "n1", "n2"]), waiting()]
        ),
    ),
    ReasonCase(
        Reason.EXCEEDS_CLUSTER,
        "needs 2 x 3 cpu; the empty cluster has 1 such slot",
        lambda: small(waiting(cpu=3)),
    ),
    ReasonCase(
        Reason.NODE_NOT_MANAGED,
        "needs 2 x 3 cpu; the empty cluster has 1 such slot: 1 node outside --node-selector",
        lambda: snapshot([node("n1", cpu=4), node("n2", cpu=4, managed=False)], [waiting(cpu=3)]),
    ),
    ReasonCase(
        Reason.WAITING_FOR_VICTIMS,
        "1 member waits on n1 until a/old-0 has terminated",
        lambda: small(gang("a/old", 1, cpu=1, on=["n1"]), waiting(1, priority=9), cpu=1),
    ),
    ReasonCase(
        Reason.SCHEDULER_SILENT,
        "no kube-scheduler has called for pods of scheduler name volcano for 40 s: is it running,"
        " and does a profile have that name?",
        _silent_scheduler,
    ),
    ReasonCase(
        Reason.BACKING_OFF,
        "did not assemble in time; retried in 30 s",
        _backing_off,
    ),
    ReasonCase(
        Reason.EXEMPT,
        "namespace a is exempt: its 2 pods are left to kube-scheduler alone",
        lambda: small(waiting(each={"exempt": True}), cpu=1),
    ),
    ReasonCase(
        Reason.POD_GROUP_MISSING,
        "PodGroup a/train does not exist",
        _without_group,
    ),
]
