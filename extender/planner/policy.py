"""What a policy says, as values: actions, tiers of plugins, rules, patience."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from extender.errors import InvalidConfiguration
from extender.model.resources import CPU, MEMORY, PODS
from extender.text import as_text, shown

#: Whole numbers, except where Volcano's way is asked for.
Vector: TypeAlias = Mapping[str, float]
#: Volcano counts everything but these three in thousandths.
WHOLE_UNITS = frozenset({CPU, MEMORY, PODS})


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The comparisons the plugins judge by."""

    #: The difference, in its own units, below which two amounts are the same.
    tolerance: float
    #: Whether `pods` is no dimension of shares.
    skips_pods: bool

    def close(self, name: str) -> float:
        """Give the difference below which two amounts of *name* are the same."""
        return self.tolerance if name in WHOLE_UNITS else self.tolerance / 1000

    def names(self, vector: Vector) -> list[str]:
        """Name the dimensions of *vector* that take part in shares."""
        return [
            name
            for name, amount in vector.items()
            if amount > 0 and amount >= self.close(name) and self.counts(name)
        ]

    def counts(self, name: str) -> bool:
        """Ask whether *name* is a dimension of shares."""
        return not (self.skips_pods and name == PODS)

    def share(self, allocated: Vector, whole: Vector) -> float:
        """Give the dominant share: the largest part that *allocated* has of any resource."""
        largest = 0.0
        for name, amount in whole.items():
            part = allocated.get(name, 0)
            if part > 0 and amount > 0 and (name != PODS or not self.skips_pods):
                share = part / amount
                if share > largest and amount >= self.close(name):
                    largest = share
        return largest

    def within(self, left: Vector, right: Vector) -> bool:
        """Ask whether *left* is at most *right* in every dimension."""
        for name, amount in left.items():
            limit = right.get(name, 0)
            if amount > limit and amount - limit >= self.close(name) and self.counts(name):
                return False
        return True

    def is_empty(self, vector: Vector) -> bool:
        """Ask whether nothing but pods is asked for."""
        return set(self.names(vector)) <= {PODS}


EXACT = Arithmetic(tolerance=0.0, skips_pods=True)
VOLCANO_ARITHMETIC = Arithmetic(tolerance=0.1, skips_pods=False)


def excess(left: Vector, right: Vector, asked: Vector) -> list[str]:
    """Name the dimensions of *asked* in which *left* is more than *right*; pods never count."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name != PODS and left.get(name, 0) > right.get(name, 0)
    ]


def within_somewhere(maths: Arithmetic, left: Vector, right: Vector, asked: Vector) -> bool:
    """Ask whether *left* is at most *right* in some dimension of *asked* that either has."""
    for name, amount in asked.items():
        have, limit, close = left.get(name, 0), right.get(name, 0), maths.close(name)
        if amount <= 0 or name == PODS or max(have, limit) <= 0 or max(have, limit) < close:
            continue
        if have <= limit or have - limit < close:
            return True
    return False


def exceeds_somewhere(maths: Arithmetic, left: Vector, right: Vector, asked: Vector) -> bool:
    """Ask whether *left* is more than *right* in a dimension of *asked* that *right* names."""
    for name, amount in asked.items():
        if amount <= 0 or name == PODS or name not in right:
            continue
        limit = right[name]
        if name in (CPU, MEMORY) and (limit <= 0 or limit < maths.close(name)):
            continue
        if left.get(name, 0) > limit:
            return True
    return False


ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where we decide otherwise than Volcano, point by point; one key turns it all back.

    What differs by more than a yes or no is a class of its own in `plan/volcano`: the plugins, and
    who leaves for whom. Whoever makes plugins and actions chooses it once, by these rules.
    """

    #: Whole numbers, exact, `pods` no dimension of a share; Volcano's are floats with a tolerance.
    arithmetic: Arithmetic = EXACT
    #: A tier that voted and left no victim ends the vote; Volcano starts afresh in the next tier.
    vetoes_are_final: bool = True
    #: The ceilings of ancestors hold, and all queues together leave what is guaranteed to one of
    #: them; Volcano judges every queue alone.
    reservations_hold_together: bool = True
    #: A gang may carry its queue over its due when nobody within their due can use the room.
    #: Without this, two queues with one gang each of 60 % of the cluster wait for ever, and what
    #: one queue cannot use of its due is lent to nobody.
    may_overshoot: bool = True
    #: A member without requests counts once it has a node, not while it is pending.
    members_need_nodes: bool = True
    #: A gang that has room promised looks for no more until it has its minimum.
    reserved_gangs_wait: bool = True
    #: Pods that are leaving make room for another pod; Volcano counts them against a node's limit.
    terminating_pods_free_capacity: bool = True
    #: When no plugin has an opinion, a gang with waiting members wants more (as in kube-batch,
    #: whose files know no such opinion); in Volcano nobody then ever reclaims or preempts.
    waiting_is_starving: bool = True
    #: Without the enqueue action no gang is kept out of its queue; in Volcano only allocate sees
    #: it that way.
    only_enqueue_keeps_out: bool = True
    #: A gang of which only a part could be bound is first in line for room: what it has is of no
    #: use without the rest.
    partial_gangs_are_first: bool = True
    #: A gang without any pod on a node does not run, not even one that needs none.
    running_takes_a_node: bool = True
    #: Only for pods that do not exist yet is a gang kept out of its queue, and what another one
    #: said it needs keeps it out for a minute, then what that one's pods ask for. In Volcano a
    #: PodGroup that creates nothing keeps everybody out for ever.
    reservations_fade: bool = True
    #: An ordinary pod for which kube-scheduler made room comes before its equals: the room is kept
    #: for that one, and nobody else is offered it.
    freed_capacity_is_reserved: bool = True


OURS = Rules()
VOLCANO = Rules(
    arithmetic=VOLCANO_ARITHMETIC,
    vetoes_are_final=False,
    reservations_hold_together=False,
    may_overshoot=False,
    members_need_nodes=False,
    reserved_gangs_wait=False,
    terminating_pods_free_capacity=False,
    waiting_is_starving=False,
    only_enqueue_keeps_out=False,
    partial_gangs_are_first=False,
    running_takes_a_node=False,
    reservations_fade=False,
    freed_capacity_is_reserved=False,
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


_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STEP = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_STEP.pattern})+")
#: Sums and products of what is larger, or of no number at all, say nothing about anybody's turn.
_LARGEST = 1e12
_WORDS = {"true": True, "false": False}


class Arguments:
    """Named values that say who they belong to when they cannot be read."""

    __slots__ = ("_owner", "_values")

    def __init__(self, owner: str, values: Mapping[str, Any]) -> None:
        self._owner = owner
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        """Read a text."""
        return as_text(self._values.get(name, default))

    def number(self, name: str, default: float) -> float:
        """Read a number, also one that is written as a text."""
        value = self._values.get(name, default)
        try:
            number = float(value) if not isinstance(value, bool) else self._refuse(name, "a number")
        except (TypeError, ValueError, OverflowError):
            return self._refuse(name, "a number")
        if not -_LARGEST <= number <= _LARGEST:
            return self._refuse(name, "a number of ordinary size")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self._values.get(name, default)
        if isinstance(value, bool):
            return value
        known = _WORDS.get(as_text(value).lower())
        return known if known is not None else bool(self._refuse(name, "true or false"))

    def seconds(self, name: str, default: float | None = None) -> float | None:
        """Read a duration such as `90s` or `1h30m`, in seconds; *default* when it is not there."""
        value = self._values.get(name)
        if value is None:
            return default
        length = seconds(as_text(value))
        return length if length is not None else self._refuse(name, "a duration like 90s or 1h30m")

    def _refuse(self, name: str, kind: str) -> float:
        value = self._values[name]
        raise InvalidConfiguration(f"{self._owner}: {name} is {shown(value)}; write {kind}")


def seconds(text: str) -> float | None:
    """Read a Go duration; None when it is none."""
    if not _DURATION.fullmatch(text):
        return None
    length = sum(float(number) * _SECONDS[unit] for number, unit in _STEP.findall(text))
    return length if length <= _LARGEST else None
