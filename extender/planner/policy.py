"""The values of a policy: actions, tiers of plugins, rules, starvation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from extender.errors import InvalidConfiguration
from extender.model.resources import CPU, MEMORY, PODS
from extender.text import as_text, shown

#: Whole numbers, except under Volcano's arithmetic.
Vector: TypeAlias = Mapping[str, float]
#: Volcano counts all resources but these three in thousandths.
WHOLE_UNITS = frozenset({CPU, MEMORY, PODS})


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How plugins compare amounts."""

    #: Two amounts that differ by less than this, in their own units, are equal.
    tolerance: float
    #: Whether `pods` is left out of shares.
    skips_pods: bool

    def close(self, name: str) -> float:
        """Return the difference below which two amounts of *name* are equal."""
        return self.tolerance if name in WHOLE_UNITS else self.tolerance / 1000

    def names(self, vector: Vector) -> list[str]:
        """Return the dimensions of *vector* that count in shares."""
        return [
            name
            for name, amount in vector.items()
            if amount > 0 and amount >= self.close(name) and self.counts(name)
        ]

    def counts(self, name: str) -> bool:
        """Return whether *name* is a dimension of shares."""
        return not (self.skips_pods and name == PODS)

    def dominant_share(self, allocated: Vector, whole: Vector) -> float:
        """Return the dominant share: the largest part of any resource that *allocated* has."""
        largest = 0.0
        for name, amount in whole.items():
            part = allocated.get(name, 0)
            if part > 0 and amount > 0 and (name != PODS or not self.skips_pods):
                share = part / amount
                if share > largest and amount >= self.close(name):
                    largest = share
        return largest

    def within(self, left: Vector, right: Vector) -> bool:
        """Return whether *left* is at most *right* in every dimension."""
        for name, amount in left.items():
            limit = right.get(name, 0)
            if amount > limit and amount - limit >= self.close(name) and self.counts(name):
                return False
        return True

    def is_empty(self, vector: Vector) -> bool:
        """Return whether *vector* requests nothing but pods."""
        return set(self.names(vector)) <= {PODS}


EXACT = Arithmetic(tolerance=0.0, skips_pods=True)
VOLCANO_ARITHMETIC = Arithmetic(tolerance=0.1, skips_pods=False)


def excess(left: Vector, right: Vector, requested: Vector) -> list[str]:
    """Return the dimensions of *requested* in which *left* exceeds *right*; pods never count."""
    return [
        name
        for name, amount in requested.items()
        if amount > 0 and name != PODS and left.get(name, 0) > right.get(name, 0)
    ]


def within_somewhere(
    arithmetic: Arithmetic, left: Vector, right: Vector, requested: Vector
) -> bool:
    """Return whether *left* is at most *right* in a dimension of *requested* that either has."""
    for name, amount in requested.items():
        have, limit, close = left.get(name, 0), right.get(name, 0), arithmetic.close(name)
        if amount <= 0 or name == PODS or max(have, limit) <= 0 or max(have, limit) < close:
            continue
        if have <= limit or have - limit < close:
            return True
    return False


def exceeds_somewhere(
    arithmetic: Arithmetic, left: Vector, right: Vector, requested: Vector
) -> bool:
    """Return whether *left* exceeds *right* in a dimension of *requested* that *right* names."""
    for name, amount in requested.items():
        if amount <= 0 or name == PODS or name not in right:
            continue
        limit = right[name]
        if name in (CPU, MEMORY) and (limit <= 0 or limit < arithmetic.close(name)):
            continue
        if left.get(name, 0) > limit:
            return True
    return False


ACTIONS = ("enqueue", "allocate", "backfill", "reclaim", "preempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where our decisions differ from Volcano's; `compatibility: volcano` turns all of them back.

    A difference that is more than a flag is a class of its own in `plugins/volcano` or
    `actions/volcano`. The code that builds plugins and actions chooses the class once, by these
    rules.
    """

    #: Whole numbers, compared exactly, without `pods`; Volcano uses floats with a tolerance.
    arithmetic: Arithmetic = EXACT
    #: A tier that voted and allows no victim ends the vote; Volcano continues with the next tier.
    vetoes_are_final: bool = True
    #: The ceilings of ancestors hold, and no queue uses what is guaranteed to another one; Volcano
    #: checks every queue alone.
    reservations_hold_together: bool = True
    #: A gang may carry its queue over its deserved amount when no gang within its queue's deserved
    #: amount can use the capacity. Without this, two queues with one gang each of 60 % of the
    #: cluster wait for ever. No queue would borrow what another one cannot use of its deserved
    #: amount.
    may_overshoot: bool = True
    #: A member without requests counts once it has a node, not while it is pending.
    members_need_nodes: bool = True
    #: A gang with a reservation does not look for more capacity until it has its minimum.
    reserved_gangs_wait: bool = True
    #: Terminating pods free capacity for other pods; Volcano counts them against a node's pod
    #: limit.
    terminating_pods_free_capacity: bool = True
    #: When no plugin votes, a gang with waiting members is starving, as in kube-batch, whose policy
    #: files do not have this vote. In Volcano such a gang never reclaims or preempts.
    waiting_is_starving: bool = True
    #: Without the enqueue action no gang waits outside its queue; in Volcano only allocate works
    #: so.
    only_enqueue_keeps_out: bool = True
    #: A gang that could only be bound in part comes first: what it uses is of no use without the
    #: rest.
    partial_gangs_are_first: bool = True
    #: A gang without any pod on a node is not running, even if its minimum is zero.
    running_takes_a_node: bool = True
    #: A gang waits outside its queue only for capacity of pods that do not exist yet. The
    #: `minResources` of another gang keep it out for a minute; then only the requests of that
    #: gang's pods do. In Volcano a PodGroup that creates no pods keeps all others out for ever.
    reservations_fade: bool = True
    #: A pod without a gang for which kube-scheduler preempted others comes before its equals: the
    #: freed capacity is reserved for it.
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
    """One plugin of a tier: the callbacks it is disabled in, and its arguments."""

    name: str
    #: Callbacks it is disabled in, such as `Preemptable`.
    silenced: frozenset[str] = frozenset()
    #: Use the queue tree instead of a flat list (drf, capacity).
    hierarchy: bool = False
    #: Order namespaces before queues (drf).
    orders_namespaces: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """When capacity is reserved for a gang that waits too long, and for how long."""

    #: Seconds a gang must have waited; 0 turns reservations off.
    after_s: float = 600.0
    #: Seconds a reservation is held before others may use the capacity again.
    hold_s: float = 1800.0
    #: How many gangs may have a reservation at once.
    gangs: int = 1
    #: Gangs that end within so many seconds in any case may use reserved capacity until it could be
    #: needed; 0 allows no gang. If other gangs stated wrong durations, a gang waits longer by this
    #: time at most.
    backfill_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """What a policy file sets; compared by identity, so that it can be a key of cached results."""

    actions: tuple[str, ...] = ACTIONS
    tiers: tuple[tuple[PluginOption, ...], ...] = ()
    #: Volcano's preempt compares all nodes instead of taking the first that works.
    weighs_nodes: bool = False
    rules: Rules = OURS
    starvation: Starvation = field(default_factory=Starvation)
    #: What has no effect in the file, one sentence each.
    remarks: tuple[str, ...] = ()

    @property
    def plugins(self) -> frozenset[str]:
        """Return the names of the plugins of all tiers."""
        return frozenset(option.name for tier in self.tiers for option in tier)

    @property
    def divides_a_tree(self) -> bool:
        """Return whether deserved amounts are divided down the queue tree."""
        return any(option.hierarchy for tier in self.tiers for option in tier)


_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STEP = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_STEP.pattern})+")
#: Larger values, infinity and NaN would make orders meaningless.
_LARGEST = 1e12
_WORDS = {"true": True, "false": False}


class Arguments:
    """Named values; an error names their owner."""

    __slots__ = ("_owner", "_values")

    def __init__(self, owner: str, values: Mapping[str, Any]) -> None:
        self._owner = owner
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        return as_text(self._values.get(name, default))

    def number(self, name: str, default: float) -> float:
        """Return a number, also one that is written as a text."""
        value = self._values.get(name, default)
        try:
            number = float(value) if not isinstance(value, bool) else self._refuse(name, "a number")
        except (TypeError, ValueError, OverflowError):
            return self._refuse(name, "a number")
        if not -_LARGEST <= number <= _LARGEST:
            return self._refuse(name, "a number of ordinary size")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._values.get(name, default)
        if isinstance(value, bool):
            return value
        known = _WORDS.get(as_text(value).lower())
        return known if known is not None else bool(self._refuse(name, "true or false"))

    def seconds(self, name: str, default: float | None = None) -> float | None:
        """Return the seconds of a duration such as `90s` or `1h30m`; *default* without one."""
        value = self._values.get(name)
        if value is None:
            return default
        length = seconds(as_text(value))
        return length if length is not None else self._refuse(name, "a duration like 90s or 1h30m")

    def _refuse(self, name: str, kind: str) -> float:
        value = self._values[name]
        raise InvalidConfiguration(f"{self._owner}: {name} is {shown(value)}; write {kind}")


def seconds(text: str) -> float | None:
    """Return the seconds of a Go duration; None when *text* is not one."""
    if not _DURATION.fullmatch(text):
        return None
    length = sum(float(number) * _SECONDS[unit] for number, unit in _STEP.findall(text))
    return length if length <= _LARGEST else None
