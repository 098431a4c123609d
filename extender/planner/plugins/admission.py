"""overcommit and resourcequota: which gangs are admitted to their queue."""

from __future__ import annotations

from collections.abc import Iterable

from extender.model.gang import Gang, Phase
from extender.model.pod import VALID_SET
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, PODS, Resources, total, write_amount
from extender.model.snapshot import ResourceQuota
from extender.planner.accounting import reserved_minimum, without_gated
from extender.planner.plugin import Plugin, View, Vote
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState

_DEFAULT_FACTOR = 1.2


class Overcommit(Plugin):
    """Compares the reservations of admitted gangs with the free capacity, times a factor."""

    known = ("overcommit-factor",)

    def configure(self) -> None:
        """Read by what factor admissions may exceed the free capacity."""
        factor = self.arguments.number("overcommit-factor", _DEFAULT_FACTOR)
        self._factor = factor if factor >= 1 else _DEFAULT_FACTOR

    def open(self, session: View) -> None:
        """Add up what is free and what admitted gangs have reserved."""
        super().open(session)
        table = session.snapshot.nodes
        used = table.used[session.accounting.ready_nodes].sum(axis=0).tolist()
        self._free: Vector = {
            name: session.total[name] * self._factor - amount
            for name, amount in zip(table.dimensions, used, strict=True)
        }
        self._reserved = NOTHING
        fades, recent = session.rules.reservations_fade, session.snapshot.recently_admitted
        for key, gang in session.snapshot.gangs.items():
            least = gang.group.min_resources
            if least is None or gang.queue not in session.queues:
                continue
            is_inqueue = gang.group.phase is Phase.INQUEUE
            stated_amount = without_gated(gang, least) if is_inqueue else reserved_minimum(gang)
            is_limited = fades and key not in recent
            self._reserved += (
                stated_amount - stated_amount.beyond(gang.pending) if is_limited else stated_amount
            )

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum fits beside what is reserved already."""
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        short = excess(self._reserved + least, self._free, least)
        if not short:
            return Vote.PERMIT
        name = short[0]
        free = write_amount(name, max(0, int(self._free.get(name, 0))))
        reserved = write_amount(name, self._reserved.amount(name))
        message = (
            f"requests {write_amount(name, least[name])} {name}; {free} free with overcommit,"
            f" {reserved} of it reserved for gangs admitted before"
        )
        return Problem(Reason.NOT_ENQUEUED, message)

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* has reserved."""
        least = gang.gang.group.min_resources
        if least is not None:
            self._reserved += without_gated(gang.gang, least)


#: Two names for the number of pods.
_COUNTS = (PODS, "count/pods")
_REQUESTS = "requests."


class NamespaceQuota(Plugin):
    """Compares what is used and requested with the quotas of the namespace."""

    known = ()

    def open(self, session: View) -> None:
        """Add up what gangs admitted before have still to create.

        Only for a while: a PodGroup that was left behind keeps no other gang out.
        """
        super().open(session)
        #: Reserved at admission, by namespace.
        self._reserved: dict[str, Resources] = {}
        snapshot = session.snapshot
        for key in snapshot.recently_admitted if snapshot.quotas else ():
            gang = snapshot.gangs.get(key)
            if gang and gang.group.namespace in snapshot.quotas and self._is_incomplete(gang):
                self._reserve(gang)

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose pods every quota of its namespace would admit."""
        namespace = gang.gang.group.namespace
        quotas = self.session.snapshot.quotas.get(namespace, ())
        reserved = self._reserved.get(namespace, NOTHING)
        for quota in quotas:
            if self._applies(quota):
                requested = self._missing_requests(gang.gang, quota.hard)
                problem = _excess(quota, requested, reserved)
                if problem is not None:
                    return problem
        return Vote.PERMIT

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* has still to create."""
        if gang.gang.group.namespace in self.session.snapshot.quotas:
            self._reserve(gang.gang)

    def _reserve(self, gang: Gang) -> None:
        namespace = gang.group.namespace
        quotas = self.session.snapshot.quotas[namespace]
        names = {name for quota in quotas for name in quota.hard}
        before = self._reserved.get(namespace, NOTHING)
        self._reserved[namespace] = before + self._missing_requests(gang, names)

    def _is_incomplete(self, gang: Gang) -> bool:
        """Return whether *gang*, admitted a moment ago, may still create pods."""
        return gang.problem is None

    def _applies(self, quota: ResourceQuota) -> bool:
        """Return whether *quota* is for all pods; a group does not state which scopes fit."""
        return not quota.is_scoped

    def _missing_requests(self, gang: Gang, names: Iterable[str]) -> Resources:
        """Return what of the minimum is still to be created, in the resource names of quotas."""
        least = gang.group.min_resources
        if least is None:
            return NOTHING
        here = [pod for pod in gang.pods if pod.status in VALID_SET and not pod.is_placeholder]
        used = total(pod.requests for pod in here)
        size = gang.group.min_member
        rest = max(0, size - len(here))
        requested = {}
        for name in names:
            if name in _COUNTS:
                requested[name] = stated(gang, name, size) - len(here)
            elif name in gang.group.min_limits:
                # The limits of its pods are not known here: assume the part of the missing ones.
                requested[name] = -(-gang.group.min_limits[name] * rest // max(1, size))
            else:
                kind = name.removeprefix(_REQUESTS)
                requested[name] = least.amount(kind) - used.amount(kind)
        return Resources(requested).positive()


def stated(gang: Gang, name: str, otherwise: int = 0) -> int:
    """Return what the group of *gang* states it needs of what a quota calls *name*."""
    group = gang.group
    least = group.min_resources or NOTHING
    if name in _COUNTS:
        stated_amount = [
            each for each in (group.min_limits.get(name), least.get(PODS)) if each is not None
        ]
        return int(stated_amount[0]) if stated_amount else otherwise
    if name in group.min_limits:
        return group.min_limits[name]
    return least.amount(name.removeprefix(_REQUESTS))


def _excess(quota: ResourceQuota, requested: Resources, reserved: Resources) -> Problem | None:
    for name, amount in requested.items():
        used, hard = quota.used.amount(name), quota.hard[name]
        before = reserved.amount(name)
        if used + before + amount > hard:
            requests, allows, uses, reserved_before = (
                write_amount(name, n) for n in (amount, hard, used, before)
            )
            also = f" and {reserved_before} reserved for gangs admitted before" if before else ""
            message = (
                f"its minimum requests {requests} {name} for pods that do not exist yet;"
                f" ResourceQuota {quota.namespace}/{quota.name} allows {allows}, of which {uses} in"
                f" use{also}"
            )
            return Problem(Reason.NOT_ENQUEUED, message)
    return None
