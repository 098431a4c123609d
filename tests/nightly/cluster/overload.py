"""Attacks by load: gangs that never start, absurd sizes, long annotations, a slow API server.

A tenant may cause each by mistake too. Each has a limit, and the extender names the objects: see
docs/internals/reliability.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from tests import objects
from tests.cluster.api import Api, Object
from tests.nightly.cluster.latency_proxy import LatencyProxy

from .siege_attacks import Attack, AttackedCluster, WriterContext, WrittenObjects
from .tenants import Step, again, main, write

_HERE = "tests.nightly.cluster.overload"

# gangs that cannot start

GANGS, MEMBERS = 250, 20
#: kube-scheduler tries pods of higher priority first.
LOW = "siege-low"


def _impossible(
    ground: WriterContext, number: int, priority: str | None = None
) -> Iterator[Object]:
    """Yield a gang that lacks a member, or one for which the nodes are too few, alternately.

    Every pod fits a node by itself, so that kube-scheduler calls filter for each, and again after
    every event: it retries pods that an extender refused.
    """
    name, lacks_one = f"never-{number}", number % 2 == 0
    yield objects.pod_group(name, ground.namespace, MEMBERS + lacks_one)
    cpu, where = "1" if lacks_one else "9", ground.tenants
    about = {"cpu": cpu, "node_selector": where, "priority": priority}
    yield from objects.pods(MEMBERS, name, ground.namespace, gang=name, **about)


def _impossible_first(stage: AttackedCluster, priority: str | None = None) -> None:
    write(stage, (each for n in range(GANGS) for each in _impossible(stage.context, n, priority)))


def impossible(api: Api, ground: WriterContext, turn: int) -> None:
    """Write the gangs again, one in each turn."""
    again(api, *_impossible(ground, turn % GANGS))


def _low_priority_first(stage: AttackedCluster) -> None:
    stage.create(objects.priority_class(LOW, -100))
    _impossible_first(stage, LOW)


def low_priority(api: Api, ground: WriterContext, turn: int) -> None:
    """The same with a priority below the default."""
    again(api, *_impossible(ground, turn % GANGS, LOW))


# absurd sizes


def sizes(api: Api, ground: WriterContext, turn: int) -> None:
    """Write gangs of a billion members, by a PodGroup and by annotations of pods."""
    name = f"billion-{turn % 10}"
    about = {"node_selector": ground.tenants}
    again(
        api,
        objects.pod_group(name, ground.namespace, 1_000_000_000),
        *objects.pods(2, name, ground.namespace, gang=name, **about),
        objects.pod(
            f"{name}-alone",
            ground.namespace,
            annotations={
                "gang-extender.io/gang": f"{name}-alone",
                "gang-extender.io/min-member": "999999999",
            },
            **about,
        ),
    )


# long annotations

#: The annotations of an object may have 256 KiB in total.
_LONGEST = 250_000
_READ = (
    "gang-extender.io/gang",
    "gang-extender.io/min-member",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/task-spec",
    "volcano.sh/task-priority",
    "volcano.sh/preemptable",
)


def annotations(api: Api, ground: WriterContext, turn: int) -> None:
    """Write annotations as long as allowed: one that the extender reads, and thousands of others.

    On a pod, on a PodGroup, and in the queue name of the PodGroup.
    """
    name, key = f"annotated-{turn % 20}", _READ[turn % len(_READ)]
    many = {f"w{turn % 7}-{number:x}": "x" * 20 for number in range(_LONGEST // 30)}
    group = objects.pod_group(name, ground.namespace, 2, queue="q" * 200_000)
    group["metadata"]["annotations"] = many
    about = {"node_selector": ground.tenants}
    again(
        api,
        group,
        objects.pod(f"{name}-member", ground.namespace, gang=name, annotations=many, **about),
        objects.pod(f"{name}-long", ground.namespace, annotations={key: "9" * _LONGEST}, **about),
    )


# a slow API server

SLOW_S = 2.0


class SlowServer(Attack):
    """Every request of the extender to the API server takes two seconds."""

    name = f"load: an API server that answers in {SLOW_S:g} s"
    #: At most two requests one after the other, and a second for the machine.
    at_most_s = 2 * SLOW_S + 1.0

    def prepare(self, stage: AttackedCluster) -> None:
        made = ExitStack()
        stage.afterwards.append(made.close)
        proxy = made.enter_context(LatencyProxy(stage.plane.apiserver.url, SLOW_S))
        made.callback(stage.pair.use_server, stage.plane.apiserver.url)
        stage.pair.use_server(proxy.url)

    def observed(self, stage: AttackedCluster) -> str:
        return f"the slowest kinds of calls: {stage.pair.slowest_calls()}"


def of_load() -> list[Attack]:
    """Return the attacks by load."""
    return [
        WrittenObjects("load: minMember of a billion", "sizes", every_s=0.3, module=_HERE),
        WrittenObjects("load: annotation bombs", "annotations", every_s=0.3, module=_HERE),
        SlowServer(),
        WrittenObjects(
            "load: 5,000 pods of impossible gangs",
            "impossible",
            every_s=1.0,
            prepare=_impossible_first,
            module=_HERE,
            beside_pods=True,
            slows_scheduler=True,
        ),
        WrittenObjects(
            "load: the same, of a lower priority",
            "low_priority",
            every_s=1.0,
            prepare=_low_priority_first,
            module=_HERE,
            beside_pods=True,
            slows_scheduler=True,
        ),
    ]


STEPS: dict[str, Step] = {
    step.__name__: step for step in (impossible, low_priority, sizes, annotations)
}

if __name__ == "__main__":
    main(*sys.argv[1:], steps=STEPS)
