"""Stories that need a permission: the effect with it, and the reported problem without it.

A story begins with an action of a user or an administrator. With the permission its effect is seen;
without it there is no effect, and /readyz names the missing permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from extender.errors import ApiError as Refusal
from extender.kube.client import ApiClient
from extender.kube.write.status import ApiStatusWriter
from extender.model.annotations import LEADER
from extender.model.gang import COSCHEDULING, VERSIONS, VOLCANO
from extender.ports import ObjectReference
from tests import objects
from tests.cluster.api import Object
from tests.cluster.binding_webhook import BindingWebhook
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.permissions import Account, AuditRecord, Permission
from tests.cluster.replicas import Replica
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

TEAM = "team"
POOL = "gang-extender.test/pool"
URGENT = "urgent"
WOKEN = "gang-extender.io/woken"
THE_LEADER = "the-leader"
LEASES = "leases.coordination.k8s.io/v1"
CRDS = "customresourcedefinitions.apiextensions.k8s.io/v1"
#: Timeout of every wait; the machine may be busy.
TIMEOUT_S = 60


@dataclass
class World:
    """One extender with one account, its kube-scheduler, and some nodes."""

    plane: ControlPlane
    account: Account
    extender: Extender
    _numbers: Iterator[int] = field(default_factory=count)

    def new_name(self) -> str:
        return f"story-{next(self._numbers)}"

    def gang(self, name: str, size: int, *, group: str = VOLCANO, pool: str, **pod: Any) -> None:
        priority = pod.get("priority")
        made = objects.pod_group(name, TEAM, size)
        made["apiVersion"] = f"{group}/{VERSIONS[group]}"
        if priority:
            made["spec"]["priorityClassName"] = priority
        self.plane.api.create(made)
        self.pods(name, size, pool=pool, **pod)

    def pods(self, name: str, size: int, *, pool: str, **rest: Any) -> None:
        rest = {"gang": name, "node_selector": {POOL: pool}, **rest}
        self.plane.api.create(*objects.pods(size, name, TEAM, **rest))

    def members(self, name: str) -> list[Object]:
        pods = self.plane.api.list("pods", TEAM)
        return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]

    def is_bound(self, name: str) -> bool:
        members = self.members(name)
        return bool(members) and all(objects.node_of(pod) for pod in members)

    def group(self, name: str, group: str = VOLCANO) -> Object:
        return self.plane.api.get(f"podgroups.{group}/{VERSIONS[group]}", name, TEAM)

    def phase(self, name: str, group: str = VOLCANO) -> str:
        return str(self.group(name, group).get("status", {}).get("phase", ""))

    def events(self, name: str) -> list[Object]:
        """Return the extender's events about an object."""
        found = self.plane.api.list("events", TEAM, fields=f"involvedObject.name={name}")
        return [each for each in found if each["source"].get("component") == "gang-extender"]

    def delete(self, *names: str) -> None:
        """Delete gangs with all their pods."""
        for name in names:
            for pod in self.members(name):
                self.plane.api.delete("pods", pod["metadata"]["name"], TEAM, grace_seconds=0)
            for group, version in VERSIONS.items():
                self.plane.api.delete(f"podgroups.{group}/{version}", name, TEAM)


class Story:
    """A gang starts, and its status says so; other stories override parts."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(name, 2, group=self.dialect(right), pool="wide")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.phase(name, self.dialect(right)) == "Running"

    def problem(self, world: World) -> str:
        """Return the /readyz of the extender."""
        return world.extender.page("/readyz")

    def wait_for_consequences(self, world: World) -> None:
        """Wait for later consequences of the missing permission."""

    def end(self, world: World, name: str) -> None:
        world.delete(name)

    @staticmethod
    def dialect(right: Permission) -> str:
        return right.group if right.group in VERSIONS else VOLCANO


class Starts(Story):
    """A gang starts."""

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.is_bound(name)


class IsWoken(Story):
    """A waiting gang is woken when it fits."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        # Bound by the test: a gang might need to be woken to start.
        world.pods(f"{name}x", 2, pool="narrow-1", gang=None, nodeName="narrow-1")
        world.gang(name, 2, pool="narrow-1")
        wait_for(lambda: world.events(name), TIMEOUT_S, "an event says that the gang waits")
        world.delete(f"{name}x")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return any(WOKEN in pod["metadata"]["annotations"] for pod in world.members(name))

    def end(self, world: World, name: str) -> None:
        world.delete(name, f"{name}x")


class EvictsVictims(Story):
    """A gang starts after victims are evicted."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(f"{name}x", 2, pool="narrow-2")
        wait_for(lambda: world.is_bound(f"{name}x"), TIMEOUT_S, "the victims run")
        world.gang(name, 2, pool="narrow-2", priority=URGENT)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.is_bound(name)

    def end(self, world: World, name: str) -> None:
        world.delete(name, f"{name}x")


class HasEvent(Story):
    """A waiting gang has an event with the reason."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(name, 2, pool="nowhere")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return bool(world.events(name))


class EventIsCounted(Story):
    """A gang that waits again for the same reason increases the count of the event."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.plane.api.create(objects.pod_group(name, TEAM, 2))
        world.pods(name, 1, pool="wide")
        wait_for(
            lambda: self._missing_members(world, name),
            TIMEOUT_S,
            "an event says that a member is missing",
        )
        # An event may have said before that its group is missing.
        known = len(world.events(name))
        world.pods(f"{name}-b", 1, pool="nowhere", gang=name)
        wait_for(lambda: len(world.events(name)) > known, TIMEOUT_S, "there is another event")
        world.plane.api.delete("pods", f"{name}-b-0", TEAM, grace_seconds=0)

    @staticmethod
    def _missing_members(world: World, name: str) -> list[Object]:
        return [each for each in world.events(name) if each["reason"] == "NotEnoughMembers"]

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return any(each["count"] > 1 for each in self._missing_members(world, name))


class QueueIsOpen(Story):
    """The status of a new queue is Open."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.plane.api.create(objects.queue(name))

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        queue = world.plane.api.get(objects.QUEUES, name)
        return bool(queue.get("status", {}).get("state"))

    def end(self, world: World, name: str) -> None:
        world.plane.api.delete(objects.QUEUES, name)


class PodIsRead(Story):
    """A pod that is deleted while its binding is sent is read: the response is ambiguous."""

    _record: AuditRecord

    def begin(self, world: World, name: str, right: Permission) -> None:
        self._record = AuditRecord(world.plane, world.account.user)
        with BindingWebhook(world.plane.api, world.plane.apiserver, TEAM) as webhook:
            webhook.delay(f"{name}-0")
            world.gang(name, 1, pool="wide")
            webhook.wait_until_delayed(f"{name}-0")
            world.plane.api.delete("pods", f"{name}-0", TEAM, grace_seconds=0)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return self._record.was_allowed(right)


class IsWritten(Story):
    """The status of a PodGroup is written by a client that does not know its CRD yet."""

    def __init__(self, *, with_subresource: bool) -> None:
        self._with_subresource = with_subresource
        self._access: ApiClient
        self._writer: ApiStatusWriter
        self._writing: Future[Any]

    def begin(self, world: World, name: str, right: Permission) -> None:
        dialect = self.dialect(right)
        made = objects.pod_group(name, TEAM, 1)
        made["apiVersion"] = f"{dialect}/{VERSIONS[dialect]}"
        (made,) = world.plane.api.create(made)
        uid = made["metadata"]["uid"]
        about = {"kind": "PodGroup", "namespace": TEAM, "name": name, "dialect": dialect}
        self._access = ApiClient.load(str(world.account.kubeconfig))
        self._writer = ApiStatusWriter(self._access)
        with self._crd(world, dialect):
            self._writing = self._writer.write(ObjectReference(uid=uid, **about), {"phase": "Odd"})
            self._writing.exception(TIMEOUT_S)

    @contextmanager
    def _crd(self, world: World, dialect: str) -> Iterator[None]:
        """Use the CRD without the status subresource, as in its project."""
        crd = f"podgroups.{dialect}"
        had = world.plane.api.get(CRDS, crd)["spec"]["versions"]
        if self._with_subresource or not any("subresources" in version for version in had):
            yield
            return
        bare = [{k: v for k, v in version.items() if k != "subresources"} for version in had]
        world.plane.api.patch(CRDS, crd, {"spec": {"versions": bare}})
        path = f"/apis/{dialect}/{VERSIONS[dialect]}"
        try:
            wait_for(
                lambda: (
                    not any(
                        each["name"] == "podgroups/status"
                        for each in world.plane.api.request("GET", path)["resources"]
                    )
                ),
                TIMEOUT_S,
                f"{crd} has no status subresource",
            )
            yield
        finally:
            world.plane.api.patch(CRDS, crd, {"spec": {"versions": had}})

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return self._writing.exception() is None and self._writing.result()["phase"] == "Odd"

    def problem(self, world: World) -> str:
        assert isinstance(self._writing.exception() or Refusal(""), Refusal)
        return "".join(f"{each.why}\n" for each in self._access.missing_permissions.recent())

    def end(self, world: World, name: str) -> None:
        self._writer.stop()
        world.delete(name)


class Leads(Story):
    """An extender with its own lease keeps leading."""

    def __init__(self, replica: Replica, *, without_lease: bool) -> None:
        self._replica = replica
        self._without_lease = without_lease
        self._renewed = ""

    def begin(self, world: World, name: str, right: Permission) -> None:
        self._renewed = self._renewal(world)
        if self._without_lease:
            world.plane.api.delete(LEASES, "gang-extender", EXTENDER_NAMESPACE)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return self._renewal(world) not in ("", self._renewed)

    @staticmethod
    def _renewal(world: World) -> str:
        lease = world.plane.api.find(LEASES, "gang-extender", EXTENDER_NAMESPACE)
        return str(lease["spec"]["renewTime"]) if lease else ""

    def wait_for_consequences(self, world: World) -> None:
        wait_for(lambda: not self._replica.leads, TIMEOUT_S, "it leads no more")

    def problem(self, world: World) -> str:
        return self._replica.page("/readyz")

    def end(self, world: World, name: str) -> None:
        """There is nothing to delete."""


def leader_pod() -> Object:
    """Return a pod that is never scheduled, which the pod security of its namespace admits."""
    pod = objects.pod(THE_LEADER, EXTENDER_NAMESPACE, scheduler="none")
    pod["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["spec"]["containers"]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return pod


class IsLabelled(Story):
    """The leader's pod has the leader label, also after it was removed."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def begin(self, world: World, name: str, right: Permission) -> None:
        off = {"metadata": {"labels": {LEADER: None}}}
        world.plane.api.patch("pods", THE_LEADER, off, EXTENDER_NAMESPACE)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        pod = world.plane.api.get("pods", THE_LEADER, EXTENDER_NAMESPACE)
        return bool(pod["metadata"].get("labels", {}).get(LEADER) == "true")

    def problem(self, world: World) -> str:
        return self._replica.page("/readyz")

    def end(self, world: World, name: str) -> None:
        """The leader restores the label."""


STORIES = {
    "create pods/binding": Starts(),
    "get podgroups": Starts(),
    "patch pods/status": IsWoken(),
    "create pods/eviction": EvictsVictims(),
    "get pods": PodIsRead(),
    "create events": HasEvent(),
    "patch events": EventIsCounted(),
    "get queues": QueueIsOpen(),
    "patch queues/status": QueueIsOpen(),
    "patch podgroups/status": Story(),
    "patch podgroups": Story(),
    # When the extender knows the CRD, it does not send this request any more.
    "patch podgroups/status scheduling.sigs.dev": IsWritten(with_subresource=False),
    "patch podgroups/status scheduling.incubator.k8s.io": IsWritten(with_subresource=False),
    "patch podgroups scheduling.volcano.sh": IsWritten(with_subresource=False),
}


def story_of(right: Permission) -> Story:
    """Return the story that needs *right*, or a general one."""
    general = f"{right.verb} {right.resource}"
    return STORIES.get(f"{general} {right.group}") or STORIES.get(general) or Story()


def is_needed(
    world: World, account: Account, right: Permission, story: Story | None = None
) -> bool:
    """Return whether an effect is missing, and reported, without *right*."""
    story, name = story or story_of(right), world.new_name()
    with account.without(right):
        record = AuditRecord(world.plane, account.user)

        def is_reported() -> bool:
            # It is reported for a while; here the request was refused just now.
            return record.was_forbidden(right) and f"may not {right};" in story.problem(world)

        try:
            story.begin(world, name, right)
            wait_for(
                lambda: is_reported() or story.is_seen(world, name, right),
                TIMEOUT_S,
                f"the effect of `{right}` is seen, or its absence is reported",
                seeing=lambda: story.problem(world),
                every_s=0.05,
            )
            if not is_reported():
                return False
            story.wait_for_consequences(world)
            return not story.is_seen(world, name, right)
        finally:
            story.end(world, name)


def foreign_crd(group: str, plural: str) -> Object:
    """Return the CRD of another project, without validation.

    That of coscheduling has the status subresource, those of kube-batch do not.
    """
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: Object = {
        "name": VERSIONS[group],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    if group == COSCHEDULING:
        served["subresources"] = {"status": {}}
    kind = {"podgroups": "PodGroup", "queues": "Queue"}[plural]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced" if kind == "PodGroup" else "Cluster",
            "names": {"kind": kind, "plural": plural},
            "versions": [served],
        },
    }
