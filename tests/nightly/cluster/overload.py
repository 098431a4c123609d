"""Too much of everything: gangs that can never start, sizes without sense, long words, slowness.

What a tenant may write by mistake as well as by intent. Each of these has a bound of its own, and
whoever wrote it is named: see docs/performance.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from tests import objects
from tests.cluster.api import Api, Object
from tests.cluster.latency_proxy import LatencyProxy

from .besiegers import Attack, Ground, Stage, Written
from .tenants import Step, again, main, write

_HERE = "tests.nightly.cluster.overload"

# gangs that cannot start

GANGS, MEMBERS = 250, 20
#: kube-scheduler tries whoever is more important first.
LOWLY = "siege-lowly"


def _impossible(ground: Ground, number: int, priority: str | None = None) -> Iterator[Object]:
    """A gang that lacks a member, or one for which its nodes are too few, by turns.

    Every pod of it fits a node by itself, so that kube-scheduler asks us about each, and again
    whenever something ends anywhere: whom an extender refuses it tries after every event.
    """
    name, lacks_one = f"never-{number}", number % 2 == 0
    yield objects.pod_group(name, ground.namespace, MEMBERS + lacks_one)
    cpu, where = "1" if lacks_one else "9", ground.tenants
    about = {"cpu": cpu, "node_selector": where, "priority": priority}
    yield from objects.pods(MEMBERS, name, ground.namespace, gang=name, **about)


def _impossible_first(stage: Stage, priority: str | None = None) -> None:
    write(stage, (each for n in range(GANGS) for each in _impossible(stage.ground, n, priority)))


def impossible(api: Api, ground: Ground, turn: int) -> None:
    """One of them after the other is written anew."""
    again(api, *_impossible(ground, turn % GANGS))


def _lowly_first(stage: Stage) -> None:
    stage.create(objects.priority_class(LOWLY, -100))
    _impossible_first(stage, LOWLY)


def lowly(api: Api, ground: Ground, turn: int) -> None:
    """The same, less important than whoever has no class."""
    again(api, *_impossible(ground, turn % GANGS, LOWLY))


# a size that is none


def sizes(api: Api, ground: Ground, turn: int) -> None:
    """A billion members, by a PodGroup and by a word on the pods themselves."""
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


# long words

#: All annotations of an object together may have 256 KiB.
_ALL_WORDS = 250_000
_READ = (
    "gang-extender.io/gang",
    "gang-extender.io/min-member",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/task-spec",
    "volcano.sh/task-priority",
    "volcano.sh/preemptable",
)


def annotations(api: Api, ground: Ground, turn: int) -> None:
    """As much as the API server takes, in one word that we read, and in thousands that we do not.

    On a pod, on a PodGroup, and in the queue that it names.
    """
    name, key = f"wordy-{turn % 20}", _READ[turn % len(_READ)]
    many = {f"w{turn % 7}-{number:x}": "x" * 20 for number in range(_ALL_WORDS // 30)}
    group = objects.pod_group(name, ground.namespace, 2, queue="q" * 200_000)
    group["metadata"]["annotations"] = many
    about = {"node_selector": ground.tenants}
    again(
        api,
        group,
        objects.pod(f"{name}-member", ground.namespace, gang=name, annotations=many, **about),
        objects.pod(f"{name}-word", ground.namespace, annotations={key: "9" * _ALL_WORDS}, **about),
    )


# an API server that takes its time

SLOW_S = 2.0


class SlowServer(Attack):
    """Every call of the extender to the API server takes two seconds."""

    name = f"load: an API server that answers in {SLOW_S:g} s"
    #: Two calls after each other at most, and a second of the machine's own.
    at_most_s = 2 * SLOW_S + 1.0

    def prepare(self, stage: Stage) -> None:
        made = ExitStack()
        stage.afterwards.append(made.close)
        door = made.enter_context(LatencyProxy(stage.plane.apiserver.url, SLOW_S))
        made.callback(stage.garrison.reach, stage.plane.apiserver.url)
        stage.garrison.reach(door.url)

    def told(self, stage: Stage) -> str:
        return f"the slowest kinds of calls: {stage.garrison.slowest_calls()}"


def of_load() -> list[Attack]:
    """Every load that is not among the attacks already."""
    return [
        Written("load: minMember of a billion", "sizes", every_s=0.3, module=_HERE),
        Written("load: annotation bombs", "annotations", every_s=0.3, module=_HERE),
        SlowServer(),
        Written(
            "load: 5,000 pods of impossible gangs",
            "impossible",
            every_s=1.0,
            prepare=_impossible_first,
            module=_HERE,
            beside_pods=True,
        ),
        Written(
            "load: the same, of a lower priority",
            "lowly",
            every_s=1.0,
            prepare=_lowly_first,
            module=_HERE,
            beside_pods=True,
        ),
    ]


STEPS: dict[str, Step] = {step.__name__: step for step in (impossible, lowly, sizes, annotations)}

if __name__ == "__main__":
    main(*sys.argv[1:], steps=STEPS)
