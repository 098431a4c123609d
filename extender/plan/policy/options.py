"""What a policy says, as values: actions, tiers of plugins, rules, patience."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.plan.policy.rules import OURS, Rules

ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt")
#: An argument of preempt: weigh all nodes instead of taking the first that works.
TOPOLOGY_AWARE = "enableTopologyAwarePreemption"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOption:
    """One plugin of a tier: what it must keep quiet about, and its arguments."""

    name: str
    #: Callbacks it is switched off in, such as `Preemptable`.
    silenced: frozenset[str] = frozenset()
    #: The queue tree instead of a flat list (drf, capacity).
    hierarchy: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """When room is kept for a gang that keeps losing its turn, and for how long."""

    #: Seconds it must have waited; 0 turns it off.
    after_s: float = 600.0
    #: Seconds its room is kept before others may have it again.
    hold_s: float = 1800.0
    #: How many gangs may have room kept at once.
    gangs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """What a policy file says; compared by identity, so that answers can be remembered by it."""

    actions: tuple[str, ...] = ACTIONS
    tiers: tuple[tuple[PluginOption, ...], ...] = ()
    #: Arguments of actions, by action.
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: Rules = OURS
    starvation: Starvation = field(default_factory=Starvation)
