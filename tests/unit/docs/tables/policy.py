"""The page of the policy file: its keys, actions, plugins and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extender.planner import policy_parser as parser
from extender.planner.plugins import registry
from extender.planner.policy import ACTIONS, Starvation
from tests.unit.docs.tables.parts import table

_KEYS: Mapping[str, str] = {
    "actions": "the actions of a cycle, in order; a list, or words with commas",
    "tiers": "the plugins, in tiers: in most votes an earlier tier decides before a later one",
    "configurations": "arguments of actions",
    "metrics": "read and ignored, as in Volcano's file",
    "compatibility": "`volcano` is the only value: [Volcano's rules](#compatibility-with-volcano)",
    "starvation": "when capacity is reserved for gangs that wait long",
}
_ACTIONS: Mapping[str, str] = {
    "enqueue": "admits gangs to their queue; a gang that is not admitted is `NotEnqueued`",
    "allocate": "gives free capacity to gangs, queue by queue; without it nothing is lent either",
    "backfill": "places members without requests",
    "reclaim": "evicts pods of queues above what they deserve, for gangs of queues below it",
    "preempt": "evicts pods of lower priority in the same queue",
}
_STARVATION: Mapping[str, str] = {
    "after": "how long a gang waits before capacity is reserved for it; `0s` turns this off",
    "hold": "how long such a reservation lasts before other gangs may use the capacity again",
    "gangs": "how many gangs may have such a reservation at once",
    "backfill": "gangs that certainly end within this time may use the capacity; `0s` for none",
}
_ACTION_ARGUMENTS: Mapping[str, tuple[str, str, str]] = {
    "enableTopologyAwarePreemption": (
        "`preempt`",
        "`false`",
        "compare the victims on all nodes instead of taking the first node that works",
    ),
}
_PLUGINS: Mapping[str, str] = {
    "binpack": "prefers nodes that the pod fills up",
    "capacity": "queues deserve what their `deserved` states; with `enableHierarchy` as a tree",
    "conformance": "protects critical pods, `kube-system` and exempt namespaces from eviction",
    "drf": "orders gangs by dominant share; with `enableHierarchy` also queues",
    "gang": "counts members against `minMember` and `minTaskMember`; protects whole gangs",
    "nodeorder": "scores nodes by use, preferred node affinity and taints",
    "overcommit": "keeps gangs out of their queue when `minResources` of admitted gangs exceed"
    " the free capacity times a factor",
    "pdb": "spares pods whose PodDisruptionBudget allows no disruption",
    "predicates": "excludes nodes that are cordoned, tainted, or do not match the pod",
    "priority": "orders gangs and members by priority",
    "proportion": "queues deserve a part of the cluster by weight",
    "resourcequota": "keeps gangs out of their queue when a ResourceQuota would refuse their pods",
    "sla": "orders gangs by waiting time, and enqueues those that waited too long",
}
#: Plugin -> argument -> default and meaning.
_ARGUMENTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "binpack": {
        "binpack.weight": ("1", "the weight of this plugin's score"),
        "binpack.cpu": ("1", "the weight of cpu"),
        "binpack.memory": ("1", "the weight of memory"),
        "binpack.resources": ("", "further resources, with commas"),
        "binpack.resources.*": ("1", "the weight of one of them"),
    },
    "capacity": {
        "ancestorReclaimLevel": ("0", "how many levels up a queue may reclaim for its ancestors"),
    },
    "nodeorder": {
        "leastrequested.weight": ("1", "prefer empty nodes"),
        "mostrequested.weight": ("0", "prefer full nodes"),
        "balancedresource.weight": ("1", "prefer equal use of cpu and memory"),
        "nodeaffinity.weight": ("2", "preferred node affinity"),
        "tainttoleration.weight": ("3", "avoid `PreferNoSchedule` taints"),
    },
    "overcommit": {"overcommit-factor": ("1.2", "times the free capacity; below 1 means 1.2")},
    "predicates": {
        "predicate.NodeAffinityEnable": ("`true`", "check node selector and affinity"),
        "predicate.TaintTolerationEnable": ("`true`", "check taints"),
        "predicate.NodeUnschedulableEnable": ("`true`", "check cordons"),
    },
    "sla": {"sla-waiting-time": ("", "the waiting time of gangs that state none, such as `1h`")},
}


def keys() -> str:
    """Write the keys of the file."""
    assert tuple(_KEYS.keys() ^ set(parser._KEYS)) == ()  # noqa: SLF001
    return table(("key", "meaning"), ((f"`{key}`", text) for key, text in _KEYS.items()))


def actions() -> str:
    """Write the actions, and the arguments that one of them reads."""
    read = {each for names in parser._ACTION_ARGUMENTS.values() for each in names}  # noqa: SLF001
    assert read == _ACTION_ARGUMENTS.keys()
    rows = ((f"`{each}`", _ACTIONS[each]) for each in ACTIONS)
    arguments = ((f"`{name}`", *row) for name, row in _ACTION_ARGUMENTS.items())
    return "\n".join(
        (
            table(("action", "what it does"), rows),
            table(("argument in `configurations`", "action", "default", "meaning"), arguments),
        )
    )


def starvation() -> str:
    """Write the keys of `starvation` with their defaults."""
    default = Starvation()
    values = (f"{default.after_s:g}s", f"{default.hold_s:g}s", str(default.gangs))
    shown = (*values, f"{default.backfill_s:g}s")
    names = parser._STARVATION_KEYS  # noqa: SLF001
    return table(
        ("key of `starvation`", "default", "meaning"),
        ((f"`{name}`", f"`{v}`", _STARVATION[name]) for name, v in zip(names, shown, strict=True)),
    )


def plugins() -> str:
    """Write our plugins with their arguments."""
    own = registry._OWN  # noqa: SLF001
    assert own.keys() == _PLUGINS.keys()
    return "\n".join(
        (
            table(("plugin", "what it does"), ((f"`{name}`", _PLUGINS[name]) for name in own)),
            table(("argument", "default", "meaning"), _arguments(own)),
        )
    )


def _arguments(own: Mapping[str, type]) -> Iterator[Sequence[str]]:
    for name in own:
        known, _ = registry.declared(name)
        told = _ARGUMENTS.get(name, {})
        assert told.keys() == set(known or ()), name
        yield from ((f"`{name}`: `{word}`", *row) for word, row in told.items())


def switches() -> str:
    """Write the flags that enable one opinion of a plugin."""
    words = [f"`enable{each}`" for each in parser.CALLBACKS]
    return ", ".join(words) + "\n"


def ignored() -> str:
    """Write the words of Volcano that have no effect or are refused."""
    arguments = parser._IGNORED_ARGUMENTS  # noqa: SLF001
    rows = [("action", word, "refused") for word in parser._IGNORED_ACTIONS]  # noqa: SLF001
    rows += [("plugin", word, "refused") for word in parser._IGNORED_PLUGINS]  # noqa: SLF001
    rows += [("argument of an action", word, "no effect") for word in arguments]
    for name in registry._OWN:  # noqa: SLF001
        _, without = registry.declared(name)
        rows += [(f"argument of `{name}`", word, "no effect") for word in without]
    shown: dict[tuple[str, str], list[str]] = {}
    for kind, word, effect in rows:
        shown.setdefault((kind, effect), []).append(f"`{word}`")
    return table(
        ("of Volcano", "words", ""),
        ((kind, ", ".join(words), effect) for (kind, effect), words in shown.items()),
    )
