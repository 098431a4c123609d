"""What one queue may have: stated, counted, and said when it is reached.

How that holds for all queues together, and for those above, is the tree in `quota`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, Protocol, TypeVar

from extender.model.queue import Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, Resources, write_amount
from extender.plan.arithmetic import Vector, excess

#: More than any gang has members.
UNBOUNDED = 2**31


class _Below(Protocol):
    parent: Any


class _Standing(_Below, Protocol):
    name: str
    queue: Queue


Q = TypeVar("Q", bound=_Below)


def upwards(queue: Q | None) -> Iterator[Q]:
    """Give *queue* and everything above it."""
    while queue is not None:
        yield queue
        queue = queue.parent


def reserved(queues: Iterable[Queue]) -> Resources:
    """Add up what is kept for all *queues*."""
    return sum((queue.reserved for queue in queues), NOTHING)


def real_capability(queue: Queue, total: Resources, kept: Resources) -> Resources:
    """Give what *queue* may use: everything not *kept* for others, up to its capability."""
    return (total.beyond(kept) + queue.reserved).at_most(stated(queue.capability))


def stated(capability: Resources) -> Resources:
    """Leave out cpu and memory of zero: it means that they are not limited."""
    return Resources(
        {name: a for name, a in capability.items() if a > 0 or name not in (CPU, MEMORY)}
    )


def closed(queue: _Standing) -> Problem | None:
    """Say that *queue*, or one above it, is not open; None when all are.

    Closing a queue closes the whole family. Volcano's scheduler looks at the queue alone, but
    its controller closes those below a closed one, so it comes to the same.
    """
    for each in upwards(queue):
        state = each.queue.state
        if state is not QueueState.OPEN:
            what = f"queue {each.name} is {state.value.lower()}"
            below = f"queue {queue.name} is below {each.name}, and "
            message = what if each is queue else f"{below}{what}"
            return Problem(Reason.QUEUE_CLOSED, message)
    return None


def at_capability(
    queue: str, name: str, used: float, asked: float, limit: float, also: str = ""
) -> Problem:
    """Say that one more pod or gang would exceed what *queue* may use."""
    message = (
        f"queue {queue} uses {_write(name, used)} of at most {_write(name, limit)} {name}{also};"
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
    return (least, scarcest) if least is not None else (UNBOUNDED, "")


def allowed(
    queue: str,
    used: Vector,
    limit: Vector,
    asked: Resources,
    refuse: Callable[[str, str, float, float, float], Problem] = at_capability,
) -> int | Problem:
    """Count how often *asked* fits between *used* and *limit*, or *refuse* what runs out."""
    times, name = how_many(used, limit, asked)
    return times or refuse(queue, name, used.get(name, 0), asked[name], limit.get(name, 0))


def too_much(
    queue: str, used: Resources, limit: Vector, asked: Resources, promised: Resources = NOTHING
) -> Problem | None:
    """Say that *asked* more would carry *queue* over *limit*, None when it would not."""
    short = excess(used + promised + asked, limit, asked)
    if not short:
        return None
    name = short[0]
    given = promised.amount(name)
    also = f" and has promised {_write(name, given)} to gangs that it let in" if given else ""
    return at_capability(queue, name, used.amount(name), asked[name], limit.get(name, 0), also)


def _write(name: str, amount: float) -> str:
    return write_amount(name, int(amount))
