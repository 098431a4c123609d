"""What a queue may use at the very most."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from extender.model.queue import Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, Resources, write_amount
from extender.plan.arithmetic import Vector


def guaranteed(queues: Iterable[Queue]) -> Resources:
    """Add up what is guaranteed to all *queues*."""
    return sum((queue.guarantee for queue in queues), NOTHING)


def real_capability(queue: Queue, total: Resources, guarantees: Resources) -> Resources:
    """Give what *queue* may use: everything not guaranteed to others, up to its capability."""
    return (total.beyond(guarantees) + queue.guarantee).at_most(stated(queue.capability))


def stated(capability: Resources) -> Resources:
    """Leave out cpu and memory of zero: it means that they are not limited."""
    return Resources(
        {name: a for name, a in capability.items() if a > 0 or name not in (CPU, MEMORY)}
    )


def closed(queue: Queue) -> Problem | None:
    """Say that *queue* is not open, None when it is."""
    if queue.state is QueueState.OPEN:
        return None
    return Problem(Reason.QUEUE_CLOSED, f"queue {queue.name} is {queue.state.value.lower()}")


def at_capability(queue: str, name: str, used: float, asked: float, limit: float) -> Problem:
    """Say that one more pod or gang would exceed what *queue* may use."""
    message = (
        f"queue {queue} uses {_write(name, used)} of at most {_write(name, limit)} {name};"
        f" {_write(name, asked)} more would exceed it"
    )
    return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def over_deserved(queue: str, name: str, used: float, asked: float, limit: float) -> Problem:
    """Say that one more pod would carry *queue* over what it deserves."""
    message = (
        f"queue {queue} deserves {_write(name, limit)} {name} and uses {_write(name, used)};"
        f" {_write(name, asked)} more would exceed it"
    )
    return Problem(Reason.QUEUE_OVER_DESERVED, message)


def how_many(used: Vector, limit: Vector, asked: Resources) -> tuple[int, str]:
    """Count how often *asked* fits between *used* and *limit*, and name what runs out first."""
    least, scarcest = None, ""
    for name, amount in asked.items():
        most = limit.get(name, 0)
        if amount <= 0 or most == inf:
            continue
        times = max(0, int((most - used.get(name, 0)) // amount))
        if least is None or times < least:
            least, scarcest = times, name
    return (least, scarcest) if least is not None else (2**31, "")


def _write(name: str, amount: float) -> str:
    return write_amount(name, int(amount))
