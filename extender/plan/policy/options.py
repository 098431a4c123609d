"""What a policy says, as values: actions, tiers of plugins, rules, patience."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.plan.arithmetic import EXACT, VOLCANOS, Arithmetic

ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where we decide otherwise than Volcano, point by point; one key turns it all back.

    What differs by more than a yes or no is a class of its own in `plan/volcano`: the plugins, and
    who leaves for whom. Whoever makes plugins and actions chooses it once, by these rules.
    """

    #: Whole numbers, exact, `pods` no dimension of a share; Volcano's are floats with a tolerance.
    maths: Arithmetic = EXACT
    #: A tier that voted and left no victim ends the vote; Volcano starts afresh in the next tier.
    vetoes_are_final: bool = True
    #: The ceilings of ancestors hold, and all queues together leave what is guaranteed to one of
    #: them; Volcano judges every queue alone.
    promises_hold_together: bool = True
    #: A gang may carry its queue over its due when nobody within their due can use the room.
    #: Without this, two queues with one gang each of 60 % of the cluster wait for ever, and what
    #: one queue cannot use of its due is lent to nobody.
    may_overshoot: bool = True
    #: A member without requests counts once it has a node, not while it is pending.
    members_need_nodes: bool = True
    #: A gang that has room promised looks for no more until it has its minimum.
    promised_gangs_wait: bool = True
    #: Pods that are leaving make room for another pod; Volcano counts them against a node's limit.
    leaving_pods_make_room: bool = True
    #: When no plugin has an opinion, a gang with waiting members wants more (as in kube-batch,
    #: whose files know no such opinion); in Volcano nobody then ever reclaims or preempts.
    waiting_is_starving: bool = True
    #: Without the enqueue action no gang is kept out of its queue; in Volcano only allocate sees
    #: it that way.
    only_enqueue_keeps_out: bool = True
    #: A gang of which only a part could be bound is first in line for room: what it has is of no
    #: use without the rest.
    torn_gangs_are_first: bool = True
    #: A gang without any pod on a node does not run, not even one that needs none.
    running_takes_a_node: bool = True
    #: Only for pods that do not exist yet is a gang kept out of its queue, and what another one
    #: said it needs keeps it out for a minute, then what that one's pods ask for. In Volcano a
    #: PodGroup that creates nothing keeps everybody out for ever.
    promises_fade: bool = True
    #: An ordinary pod for which kube-scheduler made room comes before its equals: the room is kept
    #: for that one, and nobody else is offered it.
    cleared_room_is_theirs: bool = True


OURS = Rules()
VOLCANO = Rules(
    maths=VOLCANOS,
    vetoes_are_final=False,
    promises_hold_together=False,
    may_overshoot=False,
    members_need_nodes=False,
    promised_gangs_wait=False,
    leaving_pods_make_room=False,
    waiting_is_starving=False,
    only_enqueue_keeps_out=False,
    torn_gangs_are_first=False,
    running_takes_a_node=False,
    promises_fade=False,
    cleared_room_is_theirs=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOption:
    """One plugin of a tier: what it must keep quiet about, and its arguments."""

    name: str
    #: Callbacks it is switched off in, such as `Preemptable`.
    silenced: frozenset[str] = frozenset()
    #: The queue tree instead of a flat list (drf, capacity).
    hierarchy: bool = False
    #: Namespaces come before queues (drf).
    orders_namespaces: bool = False
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
    #: Gangs that are ended within so many seconds, whatever they do, may use that room until it
    #: could be needed; 0 lets nobody. That long a gang waits longer at most if others lied.
    backfill_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """What a policy file says; compared by identity, so that answers can be remembered by it."""

    actions: tuple[str, ...] = ACTIONS
    tiers: tuple[tuple[PluginOption, ...], ...] = ()
    #: Preempt, in Volcano's way, weighs all nodes instead of taking the first that works.
    weighs_nodes: bool = False
    rules: Rules = OURS
    starvation: Starvation = field(default_factory=Starvation)
    #: What of the file has no effect, in a sentence each.
    remarks: tuple[str, ...] = ()

    @property
    def plugins(self) -> frozenset[str]:
        """Name the plugins of all tiers."""
        return frozenset(option.name for tier in self.tiers for option in tier)

    @property
    def is_of_a_tree(self) -> bool:
        """Ask whether dues are divided down a tree of queues, a parent's for its whole family."""
        return any(option.hierarchy for tier in self.tiers for option in tier)
