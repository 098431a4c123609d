"""The policy file: the format of kube-batch and Volcano, with keys of our own.

The policy of Volcano's installer works as it is, and so does kube-batch's flat one (`with_tiers`).
What is not supported is an error that names the place and the nearest supported word; it is never
only logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from extender import yaml_loader
from extender.errors import InvalidConfiguration, InvalidInput
from extender.planner.plugins import registry
from extender.planner.policy import (
    ACTIONS,
    OURS,
    VOLCANO,
    Arguments,
    PluginOption,
    Policy,
    Starvation,
)
from extender.text import as_text, shown

_SWITCHES = {
    "jobready": "enableJobReady",
    "joborder": "enableJobOrder",
    "taskorder": "enableTaskOrder",
    "preemptable": "enablePreemptable",
}


def with_tiers(document: Any, source: str) -> Any:
    """Return *document* with tiers if it is flat; any other stays as it is."""
    if not isinstance(document, Mapping) or "plugins" not in document:
        return document
    if "tiers" in document:
        raise InvalidConfiguration(f"{source}: plugins beside tiers; move them into a tier")
    switches = {key: value for key, value in document.items() if as_text(key).startswith("plugin.")}
    options = [_option(entry, switches) for entry in _plugin_list(document["plugins"], source)]
    _check(switches, options, source)
    rest = {
        key: value for key, value in document.items() if key != "plugins" and key not in switches
    }
    return {**rest, "tiers": [{"plugins": options}]}


def _plugin_list(written: object, source: str) -> Sequence[Any]:
    if isinstance(written, str):
        written = [name for word in written.split(",") if (name := word.strip())]
    if not isinstance(written, Sequence):
        raise InvalidConfiguration(f"{source}: plugins must be a list, found {shown(written)}")
    if not written:
        raise InvalidConfiguration(f"{source}: plugins is empty; name at least one")
    return written


def _option(entry: Any, switches: Mapping[str, Any]) -> dict[str, Any]:
    option = dict(entry) if isinstance(entry, Mapping) else {"name": as_text(entry)}
    if switches:
        for word, flag in _SWITCHES.items():
            option[flag] = switches.get(_key(option, word), False)
    return option


def _key(option: Mapping[str, Any], word: str) -> str:
    return f"plugin.{option.get('name')}.{word}"


def _check(switches: Mapping[str, Any], options: Sequence[Any], source: str) -> None:
    known = dict.fromkeys(_key(option, word) for option in options for word in _SWITCHES)
    for key in switches:
        if key not in known:
            (near,) = get_close_matches(key, known, n=1, cutoff=0)
            raise InvalidConfiguration(
                f"{source}: unknown key {shown(key)}; did you mean {near!r}?"
            )


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a phrase that names the word of *known* that is meant, or all of them."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known[:14])}"


def unknown_names(
    written: Iterable[str],
    known: Sequence[str],
    ignored: Sequence[str],
    owner: str,
    *,
    forgiving: bool,
) -> Iterator[str]:
    """Yield a remark on each of the arguments *written* that has no effect.

    An unknown argument is an error, unless *forgiving*.
    """
    for name in written:
        if _is_among(name, known):
            continue
        if _is_among(name, ignored):
            yield f"{owner}: argument {shown(name)} is Volcano's and has no effect here"
            continue
        hint = nearest(name, known) if known else "it takes none"
        if not forgiving:
            raise InvalidConfiguration(f"{owner} has no argument {shown(name)}; {hint}")
        yield f"{owner} has no argument {shown(name)}, so it has no effect; {hint}"


def _is_among(name: str, words: Sequence[str]) -> bool:
    return any(
        name == word or (word.endswith(".*") and name.startswith(word.removesuffix("*")))
        for word in words
    )


DEFAULT_TEXT = """\
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: pdb
  - name: proportion
  - name: resourcequota
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
  - name: binpack
"""
#: A hundred times the longest file that is in use.
_LONGEST = 1 << 18
#: Callbacks that can be disabled per plugin; Volcano spells some `enable…`, some `enabled…`.
CALLBACKS = (
    "JobOrder", "JobReady", "JobPipelined", "JobEnqueued", "JobStarving", "TaskOrder",
    "QueueOrder", "ClusterOrder", "Preemptable", "Reclaimable", "Preemptive", "Predicate",
    "BestNode", "NodeOrder", "TargetJob", "ReservedNodes", "Victim", "Overused", "Allocatable",
    "HyperNodeOrder",
    "SubJobReady", "SubJobPipelined", "SubJobOrder", "HyperNodeGradient", "NamespaceOrder",
)  # fmt: skip
_FLAGS = {f"{verb}{callback}": callback for callback in CALLBACKS for verb in ("enable", "enabled")}
_HIERARCHY = ("enableHierarchy", "enabledHierarchy")
_NAMESPACES = ("enableNamespaceOrder", "enabledNamespaceOrder")
_PLUGIN_KEYS = ("name", "arguments", *_HIERARCHY, *_FLAGS)
_KEYS = ("actions", "tiers", "configurations", "metrics", "compatibility", "starvation")
_STARVATION_KEYS = ("after", "hold", "gangs", "backfill")
_WEIGHS_NODES = "enableTopologyAwarePreemption"
_ACTION_ARGUMENTS = {"preempt": (_WEIGHS_NODES,)}
#: Words of Volcano without an effect here.
_IGNORED_ARGUMENTS = (
    "predicateErrorCacheEnable", "topologyAwarePreemptWorkerNum", "minCandidateNodesPercentage",
    "minCandidateNodesAbsolute", "maxCandidateNodesAbsolute", "overcommit-factor",
)  # fmt: skip
_IGNORED_ACTIONS = ("shuffle", "gangpreempt", "gangreclaim", "elect", "reserve")
_IGNORED_PLUGINS = (
    "tdm", "task-topology", "numaaware", "nodegroup", "usage", "rescheduling", "deviceshare", "cdp",
    "extender", "network-topology-aware", "resource-strategy-fit", "tasktopology",
)  # fmt: skip


def parse(text: str, source: str = "policy") -> Policy:
    """Return the policy of a policy file; *source* names the file in errors."""
    if len(text) > _LONGEST:
        raise InvalidConfiguration(f"{source}: has {len(text)} characters; at most {_LONGEST}")
    try:
        return _parse(yaml_loader.load(text), source)
    except InvalidConfiguration:
        raise
    except InvalidInput as error:
        raise InvalidConfiguration(f"{source}: not YAML: {error}") from error
    except Exception as error:
        # A third-party plugin may raise anything while it reads its arguments.
        raise InvalidConfiguration(
            f"{source}: cannot be understood ({type(error).__name__}); remove what is unusual"
        ) from error


def _parse(document: Any, source: str) -> Policy:
    document = {} if document is None else with_tiers(document, source)
    _check_keys(document, _KEYS, source)
    tiers = _read_tiers(document["tiers"], source) if "tiers" in document else DEFAULT.tiers
    rules = VOLCANO if _is_volcano(document.get("compatibility"), source) else OURS
    if rules is OURS:
        # In Volcano the order of the plugins decides which one divides.
        _check_hierarchy(tiers, source)
    remarks = _check_arguments(tiers, source, forgiving=rules is VOLCANO)
    weighs_nodes, more = _read_configurations(
        document.get("configurations"), source, forgiving=rules is VOLCANO
    )
    starvation = _read_starvation(document.get("starvation"), source)
    return Policy(
        actions=_read_actions(document["actions"], source) if "actions" in document else ACTIONS,
        tiers=tiers,
        weighs_nodes=weighs_nodes,
        rules=rules,
        # In Volcano no gang has a reservation.
        starvation=starvation if rules is OURS else Starvation(after_s=0.0),
        remarks=(*remarks, *more),
    )


def _read_actions(written: object, source: str) -> tuple[str, ...]:
    words = (
        written.split(",") if isinstance(written, str) else _sequence(written, source, "actions")
    )
    actions = tuple(name for word in words if (name := as_text(word).strip()))
    if not actions:
        raise InvalidConfiguration(
            f"{source}: actions is empty; name at least one of {', '.join(ACTIONS)}"
        )
    for name in actions:
        _check_word(name, ACTIONS, _IGNORED_ACTIONS, f"{source}: actions", "action")
    return actions


def _read_tiers(written: object, source: str) -> tuple[tuple[PluginOption, ...], ...]:
    tiers = []
    for number, tier in enumerate(_sequence(written, source, "tiers"), start=1):
        place = f"{source}: tier {number}"
        _check_keys(tier, ("plugins",), place)
        options = _sequence(tier.get("plugins"), place, "plugins")
        tiers.append(tuple(_read_plugin(option, place) for option in options))
    return tuple(tiers)


def _read_plugin(written: Any, place: str) -> PluginOption:
    _check_mapping(written, place)
    name = as_text(written.get("name", ""))
    _check_word(name, registry.names(), _IGNORED_PLUGINS, place, "plugin")
    place = f"{place}, plugin {name}"
    _check_keys(written, _PLUGIN_KEYS, place)
    flags = Arguments(place, written)
    switches = [key for key in written if key in _FLAGS]
    option = PluginOption(
        name=name,
        silenced=frozenset(_FLAGS[key] for key in switches if not flags.flag(key, default=True)),
        hierarchy=any(flags.flag(key, default=False) for key in _HIERARCHY),
        orders_namespaces=any(flags.flag(key, default=False) for key in _NAMESPACES),
        arguments=_arguments(written.get("arguments"), place),
    )
    registry.make(option, place)  # reads its arguments, so that errors show now
    return option


def _check_hierarchy(tiers: Iterable[Sequence[PluginOption]], source: str) -> None:
    used = {option.name: option for tier in tiers for option in tier}
    if "drf" in used and used["drf"].hierarchy and "proportion" in used:
        raise InvalidConfiguration(
            f"{source}: drf with enableHierarchy and proportion both divide among queues;"
            " remove one of them"
        )


def _check_arguments(
    tiers: Iterable[Sequence[PluginOption]], source: str, *, forgiving: bool
) -> tuple[str, ...]:
    """Reject or remark on arguments that their plugins do not read."""
    remarks: list[str] = []
    for number, tier in enumerate(tiers, start=1):
        for option in tier:
            known, ignored = registry.declared(option.name)
            if known is not None:
                owner = f"{source}: tier {number}: plugin {option.name}"
                remarks += unknown_names(
                    option.arguments, known, ignored, owner, forgiving=forgiving
                )
    return tuple(remarks)


def _read_configurations(
    written: object, source: str, *, forgiving: bool
) -> tuple[bool, tuple[str, ...]]:
    """Search the arguments of actions for the one that has an effect here."""
    found, remarks = False, list[str]()
    for entry in _sequence(written, source, "configurations") if written is not None else ():
        place = f"{source}: configurations"
        _check_keys(entry, ("name", "arguments"), place)
        name = as_text(entry.get("name", ""))
        _check_word(name, ACTIONS, _IGNORED_ACTIONS, place, "action")
        place = f"{place}, {name}"
        values = _arguments(entry.get("arguments"), place)
        known = _ACTION_ARGUMENTS.get(name, ())
        remarks += unknown_names(
            values,
            known,
            _IGNORED_ARGUMENTS,
            f"{source}: configurations: action {name}",
            forgiving=forgiving,
        )
        enabled = Arguments(place, values).flag(_WEIGHS_NODES, default=False)
        found = enabled if name == "preempt" else found
    return found, tuple(remarks)


def _read_starvation(written: Any, source: str) -> Starvation:
    if written is None:
        return Starvation()
    place = f"{source}: starvation"
    _check_keys(written, _STARVATION_KEYS, place)
    arguments, default = Arguments(place, written), Starvation()
    return Starvation(
        after_s=arguments.seconds("after", default.after_s) or 0.0,
        hold_s=arguments.seconds("hold", default.hold_s) or 0.0,
        gangs=int(arguments.number("gangs", default.gangs)),
        backfill_s=arguments.seconds("backfill", default.backfill_s) or 0.0,
    )


def _is_volcano(written: object, source: str) -> bool:
    if written is None:
        return False
    if written != "volcano":
        raise InvalidConfiguration(
            f"{source}: compatibility is {shown(written)}; the only one is volcano"
        )
    return True


def _arguments(written: Any, place: str) -> Mapping[str, Any]:
    if written is None:
        return {}
    _check_mapping(written, f"{place}, arguments")
    return {as_text(key): value for key, value in written.items()}


def _check_mapping(written: object, place: str) -> None:
    if not isinstance(written, Mapping):
        raise InvalidConfiguration(f"{place}: expected names with values, found {shown(written)}")


def _sequence(written: object, place: str, key: str) -> Sequence[Any]:
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise InvalidConfiguration(f"{place}: {key} must be a list, found {shown(written)}")
    return written


def _check_keys(written: Any, known: Sequence[str], place: str) -> None:
    _check_mapping(written, place)
    for key in written:
        if key not in known:
            raise InvalidConfiguration(
                f"{place}: unknown key {shown(key)}; {nearest(as_text(key), known)}"
            )


def _check_word(
    word: str, known: Sequence[str], ignored: Sequence[str], place: str, kind: str
) -> None:
    if word in known:
        return
    if word in ignored:
        raise InvalidConfiguration(
            f"{place}: {kind} {word!r} is Volcano's and has no counterpart here; remove it"
        )
    raise InvalidConfiguration(f"{place}: unknown {kind} {shown(word)}; {nearest(word, known)}")


DEFAULT = parse(DEFAULT_TEXT, "the default policy")
