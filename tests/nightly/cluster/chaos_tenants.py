"""The turns of tenants in a chaos run: gangs are created, changed, deleted and recreated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests import objects
from tests.cluster.api import Api, ApiError, Object

from .chaos_lane import Later
from .chaos_script import Facts

#: Turns choose among the newest so many gangs; more than the second number are deleted.
_NEWEST = 12
_MOST = 40


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang, with what is needed to create it again."""

    namespace: str
    name: str
    size: int
    minimum: int
    cpu: int
    queue: str
    priority: str
    run_s: float


class Tenants:
    """Carries out the turns of tenants."""

    def __init__(self, api: Api, scheduler_name: str, later: Later) -> None:
        self._api = api
        self._scheduler_name = scheduler_name
        self._later = later
        self.gangs: list[Gang] = []
        self.acts: dict[str, Callable[[Facts], None]] = {
            "gang": self._gang,
            "single": self._single,
            "delete members": self._delete_members,
            "delete gang": self._delete_gang,
            "group edited": self._edit_group,
            "group made anew": self._remake_group,
            "gang made anew": self._remake_gang,
            "gang moved": self._move,
            "priority changed": self._rank,
        }

    def _gang(self, facts: Facts) -> None:
        late_s = facts["late_s"]
        gang = Gang(**{key: value for key, value in facts.items() if key != "late_s"})
        self.gangs.append(gang)
        last = gang.size - 1 if late_s else gang.size
        self._create(gang, range(last))
        if late_s:
            self._later(late_s, lambda: self._api.create(self._pod(gang, last)))
        if len(self.gangs) > _MOST:
            self._clear(self.gangs.pop(0))

    def start_last(self, gang: Gang) -> None:
        """Create one more gang at the end."""
        self._create(gang, range(gang.size))

    def _create(self, gang: Gang, members: range) -> None:
        self._api.create(self._group(gang), *(self._pod(gang, index) for index in members))

    def _single(self, facts: Facts) -> None:
        self._api.create(
            objects.pod(
                facts["name"],
                facts["namespace"],
                queue=facts["queue"],
                cpu=str(facts["cpu"]),
                run_seconds=facts["run_s"],
                scheduler=self._scheduler_name,
            )
        )

    def _delete_members(self, facts: Facts) -> None:
        gang = self._chosen(facts)
        grace = 0 if facts["at_once"] else None
        for index in range(min(facts["count"], gang.size)):
            name = f"{gang.name}-{index}"
            self._api.delete("pods", name, gang.namespace, grace_seconds=grace)

    def _delete_gang(self, facts: Facts) -> None:
        gang = self._chosen(facts)
        self.gangs.remove(gang)
        self._clear(gang)

    def _edit_group(self, facts: Facts) -> None:
        gang = self._changed(facts)
        spec = {"spec": {"minMember": gang.minimum}}
        self._api.patch(objects.POD_GROUPS, gang.name, spec, gang.namespace)

    def _remake_group(self, facts: Facts) -> None:
        gang = self._changed(facts)
        self._api.delete(objects.POD_GROUPS, gang.name, gang.namespace)
        self._api.create(self._group(gang))

    def _remake_gang(self, facts: Facts) -> None:
        gang = self._chosen(facts)
        self._clear(gang)
        self._create(gang, range(gang.size))

    def _move(self, facts: Facts) -> None:
        gang = self._chosen(facts)
        self._swap(gang, replace(gang, queue=facts["queue"]))
        spec = {"spec": {"queue": facts["queue"]}}
        self._api.patch(objects.POD_GROUPS, gang.name, spec, gang.namespace)

    def _rank(self, facts: Facts) -> None:
        gang = self._chosen(facts)
        spec = {"spec": {"priorityClassName": facts["priority"]}}
        self._api.patch(objects.POD_GROUPS, gang.name, spec, gang.namespace)

    def _chosen(self, facts: Facts) -> Gang:
        newest = self.gangs[-_NEWEST:]
        if not newest:
            raise ApiError(404, "chaos", "there is no gang yet")
        # Fractions are rounded to three digits, so 1.0 is possible.
        return newest[min(int(facts["which"] * len(newest)), len(newest) - 1)]

    def _changed(self, facts: Facts) -> Gang:
        gang = self._chosen(facts)
        changed = replace(gang, minimum=max(1, gang.minimum + facts["by"]))
        self._swap(gang, changed)
        return changed

    def _swap(self, gang: Gang, changed: Gang) -> None:
        self.gangs[self.gangs.index(gang)] = changed

    def _clear(self, gang: Gang) -> None:
        self._api.delete(objects.POD_GROUPS, gang.name, gang.namespace)
        for index in range(gang.size):
            self._api.delete("pods", f"{gang.name}-{index}", gang.namespace, grace_seconds=0)

    def _group(self, gang: Gang) -> Object:
        spec = {"priorityClassName": gang.priority} if gang.priority else {}
        return objects.pod_group(gang.name, gang.namespace, gang.minimum, queue=gang.queue, **spec)

    def _pod(self, gang: Gang, index: int) -> Object:
        return objects.pod(
            f"{gang.name}-{index}",
            gang.namespace,
            gang=gang.name,
            cpu=str(gang.cpu),
            priority=gang.priority or None,
            run_seconds=gang.run_s,
            scheduler=self._scheduler_name,
        )
