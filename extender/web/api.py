"""The plan as JSON for the operations port."""

from __future__ import annotations

from typing import Any

from extender.plan.decision import Plan


def plan(current: Plan) -> dict[str, Any]:
    """Give the whole plan."""
    return {
        "generation": current.generation,
        "queues": queues(current),
        "gangs": gangs(current),
        "evictions": [
            {
                "pod": f"{eviction.namespace}/{eviction.name}",
                "node": eviction.node,
                "action": eviction.action,
                "for": eviction.beneficiary,
            }
            for eviction in current.evictions
        ],
    }


def queues(current: Plan) -> list[dict[str, Any]]:
    """Give every queue's figures, cpu in thousandths, the rest in whole units."""
    return [
        {
            "name": queue.name,
            "weight": queue.weight,
            "deserved": dict(queue.deserved),
            "allocated": dict(queue.allocated),
            "requested": dict(queue.requested),
            "share": queue.share,
            "overused": queue.overused,
        }
        for queue in current.queues.values()
    ]


def gangs(current: Plan) -> list[dict[str, Any]]:
    """Give every gang's verdict."""
    return [
        {
            "namespace": key.partition("/")[0],
            "name": key.partition("/")[2],
            "queue": verdict.queue,
            "min_member": verdict.min_member,
            "members": verdict.members,
            "phase": verdict.phase.value,
            "verdict": verdict.standing.value,
            "reason": verdict.reason.value,
            "message": verdict.message,
            "share": verdict.share,
        }
        for key, verdict in current.verdicts.items()
    ]
