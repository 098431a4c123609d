"""overcommit: only so many gangs are let in as the cluster could hold, and a bit more."""

from __future__ import annotations

from collections.abc import Iterable

from extender.model.gang import Gang, Phase
from extender.model.pod import VALID_SET
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, PODS, Resources, total, write_amount
from extender.model.snapshot import ResourceQuota
from extender.planner.accounting import awaited, without_gated
from extender.planner.plugin import Plugin, View, Vote
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState

_USUAL = 1.2


class Overcommit(Plugin):
    """Compares what was promised at the door with what is idle, times a factor."""

    known = ("overcommit-factor",)

    def configure(self) -> None:
        """Read how much more may be let in than is idle."""
        factor = self.arguments.number("overcommit-factor", _USUAL)
        self._factor = factor if factor >= 1 else _USUAL

    def open(self, session: View) -> None:
        """Add up what is idle and what was promised."""
        super().open(session)
        table = session.snapshot.nodes
        used = table.used[session.accounting.ready_nodes].sum(axis=0).tolist()
        self._idle: Vector = {
            name: session.total[name] * self._factor - amount
            for name, amount in zip(table.dimensions, used, strict=True)
        }
        self._promised = NOTHING
        doubts, lately = session.rules.reservations_fade, session.snapshot.recently_admitted
        for key, gang in session.snapshot.gangs.items():
            least = gang.group.min_resources
            if least is None or gang.queue not in session.queues:
                continue
            inqueue = gang.group.phase is Phase.INQUEUE
            said = without_gated(gang, least) if inqueue else awaited(gang)
            is_doubted = doubts and key not in lately
            self._promised += said - said.beyond(gang.pending) if is_doubted else said

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum fits beside what was promised already."""
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        short = excess(self._promised + least, self._idle, least)
        if not short:
            return Vote.PERMIT
        name = short[0]
        idle = write_amount(name, max(0, int(self._idle.get(name, 0))))
        promised = write_amount(name, self._promised.amount(name))
        message = (
            f"asks for {write_amount(name, least[name])} {name}; {idle} idle with overcommit,"
            f" {promised} of it promised to gangs let in before"
        )
        return Problem(Reason.NOT_ENQUEUED, message)

    def enqueued(self, gang: GangState) -> None:
        """Remember what *gang* was promised."""
        least = gang.gang.group.min_resources
        if least is not None:
            self._promised += without_gated(gang.gang, least)


#: Two names for the number of pods.
_COUNTS = (PODS, "count/pods")
_REQUESTS = "requests."


class NamespaceQuota(Plugin):
    """Compares what is used and asked for with what the namespace's quotas allow."""

    known = ()

    def open(self, session: View) -> None:
        """Add up what gangs that were let in before are still to create.

        Not for ever: a PodGroup that was left behind keeps nobody else out.
        """
        super().open(session)
        #: Promised at the door, by namespace.
        self._promised: dict[str, Resources] = {}
        snapshot = session.snapshot
        for key in snapshot.recently_admitted if snapshot.quotas else ():
            gang = snapshot.gangs.get(key)
            if gang and gang.group.namespace in snapshot.quotas and self._is_awaited(gang):
                self._promise(gang)

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose pods every quota of its namespace would admit."""
        namespace = gang.gang.group.namespace
        quotas = self.session.snapshot.quotas.get(namespace, ())
        promised = self._promised.get(namespace, NOTHING)
        for quota in quotas:
            if self._concerns(quota):
                asked = self._asked(gang.gang, quota.hard)
                problem = _excess(quota, asked, promised)
                if problem is not None:
                    return problem
        return Vote.PERMIT

    def enqueued(self, gang: GangState) -> None:
        """Remember what *gang* is still to create."""
        if gang.gang.group.namespace in self.session.snapshot.quotas:
            self._promise(gang.gang)

    def _promise(self, gang: Gang) -> None:
        namespace = gang.group.namespace
        quotas = self.session.snapshot.quotas[namespace]
        names = {name for quota in quotas for name in quota.hard}
        before = self._promised.get(namespace, NOTHING)
        self._promised[namespace] = before + self._asked(gang, names)

    def _is_awaited(self, gang: Gang) -> bool:
        """Ask whether *gang*, let in a moment ago, may still create pods."""
        return gang.problem is None

    def _concerns(self, quota: ResourceQuota) -> bool:
        """Ask whether *quota* is for all pods; whom a scope means the group does not tell."""
        return not quota.is_scoped

    def _asked(self, gang: Gang, names: Iterable[str]) -> Resources:
        """Give what is still to be created of the minimum, in the words of quotas."""
        least = gang.group.min_resources
        if least is None:
            return NOTHING
        here = [pod for pod in gang.pods if pod.status in VALID_SET and not pod.is_placeholder]
        used = total(pod.requests for pod in here)
        size = gang.group.min_member
        rest = max(0, size - len(here))
        asked = {}
        for name in names:
            if name in _COUNTS:
                asked[name] = stated(gang, name, size) - len(here)
            elif name in gang.group.min_limits:
                # What its pods are limited to is not known here: the part of those missing.
                asked[name] = -(-gang.group.min_limits[name] * rest // max(1, size))
            else:
                kind = name.removeprefix(_REQUESTS)
                asked[name] = least.amount(kind) - used.amount(kind)
        return Resources(asked).positive()


def stated(gang: Gang, name: str, otherwise: int = 0) -> int:
    """Give what the group of *gang* says it needs of what a quota calls *name*."""
    group = gang.group
    least = group.min_resources or NOTHING
    if name in _COUNTS:
        said = [each for each in (group.min_limits.get(name), least.get(PODS)) if each is not None]
        return int(said[0]) if said else otherwise
    if name in group.min_limits:
        return group.min_limits[name]
    return least.amount(name.removeprefix(_REQUESTS))


def _excess(quota: ResourceQuota, asked: Resources, promised: Resources) -> Problem | None:
    for name, amount in asked.items():
        used, hard = quota.used.amount(name), quota.hard[name]
        before = promised.amount(name)
        if used + before + amount > hard:
            asks, allows, uses, gave = (write_amount(name, n) for n in (amount, hard, used, before))
            also = f" and {gave} promised to gangs let in before" if before else ""
            message = (
                f"its minimum asks for {asks} {name} for pods that do not exist yet; ResourceQuota"
                f" {quota.namespace}/{quota.name} allows {allows}, of which {uses} in use{also}"
            )
            return Problem(Reason.NOT_ENQUEUED, message)
    return None
