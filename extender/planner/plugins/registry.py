"""Which plugins there are: ours, and those that others bring.

Anybody may bring one through the entry-point group `gang_extender.plugins`; see docs/plugins.md
for one in twenty lines.
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
from extender.planner.plugins.volcano import PLUGINS as VOLCANOS
from extender.planner.policy import OURS, VOLCANO, Arguments, PluginOption, Rules

ENTRY_POINTS = "gang_extender.plugins"
_OURS: Mapping[str, type[Plugin]] = {
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
    """Name all plugins there are, ours first."""
    return (*_OURS, *_brought())


def make(option: PluginOption, place: str, rules: Rules = OURS) -> Plugin:
    """Build the plugin *option* names; *place* is where errors say it stands."""
    arguments = Arguments(place, option.arguments)
    known = {**_OURS, **VOLCANOS} if rules is VOLCANO else _OURS
    kind = known.get(option.name) or _load(option.name, place)
    plugin = kind(arguments, hierarchy=option.hierarchy)
    plugin.name = option.name
    plugin.orders_namespaces = option.orders_namespaces
    return plugin


def declared(name: str) -> tuple[Sequence[str] | None, Sequence[str]]:
    """Give the arguments that a plugin reads, and those without effect; None when it does not say.

    One that others bring speaks for itself, even if it is made from one of ours.
    """
    if name in _OURS:
        return _OURS[name].known, _OURS[name].ignored_arguments
    says = vars(_load(name, name))
    return says.get("known"), says.get("ignored_arguments", ())


def _load(name: str, place: str) -> type[Plugin]:
    try:
        loaded = _brought()[name].load()
    except Exception as error:
        raise InvalidConfiguration(f"{place}: plugin {name} cannot be loaded: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Plugin)):
        raise InvalidConfiguration(f"{place}: plugin {name} is not a subclass of Plugin")
    return loaded


@cache
def _brought() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
