"""The fields of the API's JSON documents, and their meaning.

The operations port sends them, the command line reads them back, and the manual lists them. A field
stays and keeps its meaning; fields may be added. One that an older extender does not send has a
default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

Amounts: TypeAlias = dict[str, str]


def means(text: str) -> Meta:
    """Return *text* as the description of a field."""
    return Meta(description=text)


_AMOUNTS = "amounts by resource, written as Kubernetes does"


class Scheduler(Struct, kw_only=True):
    """The kube-scheduler behind a scheduler name."""

    name: Annotated[str, means("the scheduler name")]
    liveness: Annotated[str, means("`heard`, `expected`, `not heard yet`, `silent` or `elsewhere`")]
    called_at: Annotated[str | None, means("the time of its last call to this leader, or null")] = (
        None
    )
    message: Annotated[str, means("its liveness in a few words")] = ""
    problem: Annotated[str, means("what is wrong with it, or empty")] = ""


class Queue(Struct, kw_only=True):
    """A queue."""

    name: Annotated[str, means("the name of the Queue")]
    weight: Annotated[int, means("its weight")]
    deserved: Annotated[Amounts, means(_AMOUNTS)]
    allocated: Annotated[Amounts, means("used by it and the queues below it")]
    own: Annotated[Amounts, means("used by itself, without the queues below it")]
    requested: Annotated[Amounts, means("used or requested")]
    borrowed: Annotated[Amounts, means("used beyond what it deserves")]
    share: Annotated[
        float, means("the part of what it deserves that it uses, by the resource it uses most of")
    ]
    overused: Annotated[bool, means("whether it uses all it deserves")]


class Share(Struct, kw_only=True):
    """A namespace in a queue."""

    queue: Annotated[str, means("the queue")]
    namespace: Annotated[str, means("the namespace")]
    at_most: Annotated[Amounts, means("its limit")]
    at_least: Annotated[Amounts, means("its guarantee")]
    allocated: Annotated[Amounts, means("what it uses")]
    requested: Annotated[Amounts, means("what it uses or requests")]


class Ending(Struct, kw_only=True):
    """The end of a gang for which another waits."""

    gang: Annotated[str, means("NAMESPACE/NAME of the gang")]
    ends_at: Annotated[str, means("when it will end")]
    lasts_s: Annotated[float, means("how many seconds it runs")]
    basis: Annotated[str, means("where that is from: `annotation`, `learnt` or `deadline`")]
    samples: Annotated[int, means("from how many earlier gangs that was learnt, or 0")]


class Estimate(Struct, kw_only=True):
    """When a gang will start: `at`, `not_before`, or neither if that is unknown."""

    at: Annotated[str | None, means("when it will start, or null")]
    not_before: Annotated[
        str | None, means("it starts after this, which is as far as the estimate looks, or null")
    ]
    summary: Annotated[str, means("the estimate in two words")]
    message: Annotated[str, means("the estimate with its ground")]
    after: Annotated[list[Ending], means("what it waits for: the ten gangs that end last")]
    after_count: Annotated[int, means("how many gangs it waits for")]
    not_counted: Annotated[str, means("what no estimate counts")]


class Gang(Struct, kw_only=True):
    """The verdict on a gang."""

    namespace: Annotated[str, means("the namespace of its PodGroup")]
    name: Annotated[str, means("the name of its PodGroup; an implicit PodGroup has a colon in it")]
    queue: Annotated[str, means("the queue whose share it uses")]
    min_member: Annotated[int, means("how many members must start at once")]
    members: Annotated[int, means("how many exist")]
    phase: Annotated[str, means("`Pending`, `Inqueue` or `Running`, as in the PodGroup's status")]
    verdict: Annotated[str, means("`running`, `admitted`, `waiting`, `invalid` or `finished`")]
    reason: Annotated[str, means("one word of [the list](reasons.md)")]
    message: Annotated[str, means("the reason in a sentence")]
    since: Annotated[str | None, means("when it began to wait or to run, or finished, or null")] = (
        None
    )
    share: Annotated[float, means("its dominant share, from 0 to 1")]
    estimate: Annotated[
        Estimate | None,
        means(
            "when it will start, if that is known ([estimates](../what-if.md#estimates)), or null"
        ),
    ] = None
    placements: Annotated[dict[str, str], means("nodes by pod, for pods that may be bound")]
    pipelined: Annotated[
        dict[str, str], means("nodes by pod, for pods that wait for victims to terminate")
    ]


class Eviction(Struct, kw_only=True):
    """A pod to evict."""

    pod: Annotated[str, means("NAMESPACE/NAME of the victim")]
    node: Annotated[str, means("where it runs")]
    action: Annotated[str, means("`preempt` or `reclaim`")]
    beneficiary: Annotated[str, means("the gang that gets the capacity")] = field(name="for")


class Held(Struct, kw_only=True):
    """Unused capacity that is kept for some pods, or from all."""

    amounts: Annotated[Amounts, means(_AMOUNTS)]
    beneficiary: Annotated[str, means("what it is kept for")] = field(name="for")
    why: Annotated[str, means("the reason in a few words")]


class Plan(Struct, kw_only=True):
    """The whole plan."""

    generation: Annotated[int, means("the number of the plan")]
    queues: Annotated[Sequence[Queue], means("every queue")]
    shares: Annotated[
        list[Share], means("what namespaces have of queues, where that is limited or guaranteed")
    ]
    gangs: Annotated[list[Gang], means("every gang")]
    binds: Annotated[dict[str, str], means("nodes by NAMESPACE/POD")]
    evictions: Annotated[list[Eviction], means("the victims")]
    idle: Annotated[Amounts, means("the unused capacity")]
    held: Annotated[list[Held], means("what of that is kept for others, or is on cordoned nodes")]
    schedulers: Annotated[
        list[Scheduler], means("the liveness of the kube-scheduler behind each scheduler name")
    ] = []


#: The document before the first plan.
NO_PLAN = Plan(
    generation=0, queues=[], shares=[], gangs=[], binds={}, evictions=[], idle={}, held=[]
)


class Nearest(Struct, kw_only=True):
    """A node that lacks little."""

    node: Annotated[str, means("the node")]
    lacks: Annotated[Amounts, means("what one member lacks there, by resource")]


class Need(Struct, kw_only=True):
    """Nodes for the members of one shape."""

    members: Annotated[int, means("how many waiting members have this shape")]
    each: Annotated[Amounts, means("the requests of one")]
    slots: Annotated[int, means("how many of them fit now")]
    empty_slots: Annotated[int, means("how many fit on an empty cluster")]
    takers: Annotated[int, means("how many nodes can have one now")]
    obstacles: Annotated[
        dict[str, int], means("how many nodes can have none, by what is in the way")
    ]
    nearest: Annotated[list[Nearest], means("the nodes that lack least")]


class Ahead(Struct, kw_only=True):
    """A gang that is ahead of another."""

    gang: Annotated[str, means("NAMESPACE/NAME of the gang")]
    queue: Annotated[str, means("its queue")]
    why: Annotated[str, means("the rule that puts it first")]


class Line(Struct, kw_only=True):
    """A line of a gang's history."""

    at: Annotated[str, means("when it happened")]
    cycle: Annotated[int, means("the number of the plan")]
    reason: Annotated[str, means("one word of [the list](reasons.md)")]
    message: Annotated[str, means("the reason in a sentence")]


class Explanation(Gang, kw_only=True):
    """Why a gang waits, and what would let it start."""

    priority: Annotated[int, means("the value of its PriorityClass")]
    lasted_s: Annotated[float | None, means("the seconds since `since`, or null")]
    reason_since: Annotated[str | None, means("since when this reason holds, or null")] = None
    reason_lasted_s: Annotated[float | None, means("the seconds since `reason_since`, or null")] = (
        None
    )
    members_by_status: Annotated[
        dict[str, int], means("how many of its pods are Pending, Running and so on")
    ]
    missing: Annotated[int, means("how many members do not exist yet")]
    queue_figures: Annotated[Queue | None, means("its queue, as in a Plan, or null")]
    share_figures: Annotated[
        Share | None, means("the share of its namespace in that queue, or null")
    ]
    needs: Annotated[
        list[Need],
        means("for the members of one shape: the requests of one, and how many nodes can have it"),
    ]
    needs_count: Annotated[int, means("how many shapes there are; only some are listed")] = 0
    ahead: Annotated[list[Ahead], means("what is ahead of it: gang, queue and why")]
    ahead_count: Annotated[int, means("how many gangs are ahead of it; only some are listed")]
    victims: Annotated[list[Eviction], means("the pods that are evicted for it")]
    protected: Annotated[dict[str, int], means("how many pods are not evicted, by reason")]
    held: Annotated[list[Held], means("idle capacity that is kept for others")]
    schedulers: Annotated[
        list[Scheduler], means("the liveness of the kube-scheduler that should place it")
    ] = []
    would_start_with: Annotated[list[str], means("changes with which it starts in a trial")]
    is_trying: Annotated[bool, means("whether these are still being computed")] = False
    history: Annotated[list[Line], means("its steps: at, cycle, reason and message")]


class Finding(Struct):
    """An inconsistency that was found in an object."""

    kind: Annotated[str, means("the kind of the object")]
    name: Annotated[str, means("the name of the object")]
    reason: Annotated[str, means("one word of [the list](reasons.md#findings)")]
    message: Annotated[str, means("what is wrong, and the remedy")]
