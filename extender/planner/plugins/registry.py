"""The available plugins: our own, and third-party ones.

A third-party plugin registers through the entry-point group `gang_extender.plugins`;
docs/plugins.md shows one in twenty lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from extender.errors import InvalidConfiguration
from extender.planner.plugin import Plugin
from extender.planner.plugins.admission import NamespaceQuota, Overcommit
from extender.planner.plugins.capacity import Capacity
from extender.planner.plugins.drf import Drf
from extender.planner.plugins.gangs import Conformance, GangMinimum, Pdb, Priority, Sla
from extender.planner.plugins.nodes import Binpack, NodeOrder, Predicates
from extender.planner.plugins.proportion import Proportion
from extender.planner.plugins.volcano import PLUGINS as VOLCANO_PLUGINS
from extender.planner.policy import OURS, VOLCANO, Arguments, PluginOption, Rules

ENTRY_POINTS = "gang_extender.plugins"
_OWN: Mapping[str, type[Plugin]] = {
    "binpack": Binpack,
    "capacity": Capacity,
    "conformance": Conformance,
    "drf": Drf,
    "gang": GangMinimum,
    "nodeorder": NodeOrder,
    "overcommit": Overcommit,
    "pdb": Pdb,
    "predicates": Predicates,
    "priority": Priority,
    "proportion": Proportion,
    "resourcequota": NamespaceQuota,
    "sla": Sla,
}


def names() -> tuple[str, ...]:
    """Return the names of all available plugins, our own first."""
    return (*_OWN, *third_party())


def make(option: PluginOption, place: str, rules: Rules = OURS) -> Plugin:
    """Build the plugin that *option* names; *place* is its position in error messages."""
    arguments = Arguments(place, option.arguments)
    known = {**_OWN, **VOLCANO_PLUGINS} if rules is VOLCANO else _OWN
    kind = known.get(option.name) or _load(option.name, place)
    plugin = kind(arguments, hierarchy=option.hierarchy)
    plugin.name = option.name
    plugin.orders_namespaces = option.orders_namespaces
    return plugin


def declared(name: str) -> tuple[Sequence[str] | None, Sequence[str]]:
    """Return the arguments a plugin reads, None without a check, and those it ignores.

    A third-party plugin declares its own, even if it is a subclass of one of ours.
    """
    if name in _OWN:
        return _OWN[name].known, _OWN[name].ignored_arguments
    attributes = vars(_load(name, name))
    return attributes.get("known"), attributes.get("ignored_arguments", ())


def _load(name: str, place: str) -> type[Plugin]:
    try:
        loaded = third_party()[name].load()
    except Exception as error:
        raise InvalidConfiguration(f"{place}: plugin {name} cannot be loaded: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Plugin)):
        raise InvalidConfiguration(f"{place}: plugin {name} is not a subclass of Plugin")
    return loaded


@cache
def third_party() -> Mapping[str, EntryPoint]:
    """Return the entry points of the installed plugins, by name; read once."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
