"""Small stories, each of which needs some right: what it brings about, and who complains without.

A story begins with something a user or an administrator does. With the right its effect is seen;
without it the effect is missed, and the probe of the extender says which right it lacks.
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
from extender.kube.write import leader
from extender.kube.write.status import ApiStatusWriter
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
#: How long anybody is given for anything; the machine may be busy.
LONG_S = 60


@dataclass
class World:
    """One extender with one account, the kube-scheduler that asks it, and some nodes."""

    plane: ControlPlane
    account: Account
    extender: Extender
    _numbers: Iterator[int] = field(default_factory=count)

    def a_name(self) -> str:
        return f"story-{next(self._numbers)}"

    def gang(self, name: str, size: int, *, group: str = VOLCANO, pool: str, **pod: Any) -> None:
        urgency = pod.get("priority")
        made = objects.pod_group(name, TEAM, size)
        made["apiVersion"] = f"{group}/{VERSIONS[group]}"
        if urgency:
            made["spec"]["priorityClassName"] = urgency
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
        """Our events about an object."""
        found = self.plane.api.list("events", TEAM, fields=f"involvedObject.name={name}")
        return [each for each in found if each["source"].get("component") == "gang-extender"]

    def forget(self, *names: str) -> None:
        """Delete gangs with all their pods."""
        for name in names:
            for pod in self.members(name):
                self.plane.api.delete("pods", pod["metadata"]["name"], TEAM, grace_seconds=0)
            for group, version in VERSIONS.items():
                self.plane.api.delete(f"podgroups.{group}/{version}", name, TEAM)


class Story:
    """A gang that starts, and says so; other stories change what they need."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(name, 2, group=self.dialect(right), pool="wide")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.phase(name, self.dialect(right)) == "Running"

    def told(self, world: World) -> str:
        """What the extender says of itself."""
        return world.extender.page("/readyz")

    def suffer(self, world: World) -> None:
        """Wait for what comes later, if the effect is missed."""

    def end(self, world: World, name: str) -> None:
        world.forget(name)

    @staticmethod
    def dialect(right: Permission) -> str:
        return right.group if right.group in VERSIONS else VOLCANO


class Starts(Story):
    """A gang that starts."""

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.is_bound(name)


class IsWoken(Story):
    """A parked gang is woken when there is room for it."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        # Put there by hand: to start, a gang might have to be woken itself.
        world.pods(f"{name}x", 2, pool="narrow-1", gang=None, nodeName="narrow-1")
        world.gang(name, 2, pool="narrow-1")
        wait_for(lambda: world.events(name), LONG_S, "the gang is said to wait")
        world.forget(f"{name}x")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return any(WOKEN in pod["metadata"]["annotations"] for pod in world.members(name))

    def end(self, world: World, name: str) -> None:
        world.forget(name, f"{name}x")


class MakesRoom(Story):
    """A gang for which others have to leave starts in their place."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(f"{name}x", 2, pool="narrow-2")
        wait_for(lambda: world.is_bound(f"{name}x"), LONG_S, "the room is taken")
        world.gang(name, 2, pool="narrow-2", priority=URGENT)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return world.is_bound(name)

    def end(self, world: World, name: str) -> None:
        world.forget(name, f"{name}x")


class IsTold(Story):
    """A gang that waits has an event that says why."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.gang(name, 2, pool="nowhere")

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return bool(world.events(name))


class IsToldAgain(Story):
    """A gang that waits for the same reason as before has an event that counts."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.plane.api.create(objects.pod_group(name, TEAM, 2))
        world.pods(name, 1, pool="wide")
        wait_for(lambda: self._said(world, name), LONG_S, "a member is said to be missing")
        # Its group may have been said to be missing before.
        said = len(world.events(name))
        world.pods(f"{name}-b", 1, pool="nowhere", gang=name)
        wait_for(lambda: len(world.events(name)) > said, LONG_S, "something else is said")
        world.plane.api.delete("pods", f"{name}-b-0", TEAM, grace_seconds=0)

    @staticmethod
    def _said(world: World, name: str) -> list[Object]:
        return [each for each in world.events(name) if each["reason"] == "NotEnoughMembers"]

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return any(each["count"] > 1 for each in self._said(world, name))


class IsFoundOpen(Story):
    """A new queue says that it is open."""

    def begin(self, world: World, name: str, right: Permission) -> None:
        world.plane.api.create(objects.queue(name))

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        queue = world.plane.api.get(objects.QUEUES, name)
        return bool(queue.get("status", {}).get("state"))

    def end(self, world: World, name: str) -> None:
        world.plane.api.delete(objects.QUEUES, name)


class IsLookedUp(Story):
    """A pod that goes away while it is bound is looked up: the answer alone tells too little."""

    _record: AuditRecord

    def begin(self, world: World, name: str, right: Permission) -> None:
        self._record = AuditRecord(world.plane, world.account.user)
        with BindingWebhook(world.plane.api, world.plane.apiserver, TEAM) as doorman:
            doorman.delay(f"{name}-0")
            world.gang(name, 1, pool="wide")
            doorman.wait_until_delayed(f"{name}-0")
            world.plane.api.delete("pods", f"{name}-0", TEAM, grace_seconds=0)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return self._record.was_allowed(right)


class IsWritten(Story):
    """The status of a PodGroup is written by somebody who does not know its CRD yet."""

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
            self._writing.exception(LONG_S)

    @contextmanager
    def _crd(self, world: World, dialect: str) -> Iterator[None]:
        """Have the CRD without a status subresource, as its project has it."""
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
                LONG_S,
                f"{crd} has no status subresource",
            )
            yield
        finally:
            world.plane.api.patch(CRDS, crd, {"spec": {"versions": had}})

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        return self._writing.exception() is None and self._writing.result()["phase"] == "Odd"

    def told(self, world: World) -> str:
        assert isinstance(self._writing.exception() or Refusal(""), Refusal)
        return "".join(f"{each.why}\n" for each in self._access.missing_permissions.recent())

    def end(self, world: World, name: str) -> None:
        self._writer.stop()
        world.forget(name)


class Leads(Story):
    """An extender with a lease of its own goes on leading."""

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

    def suffer(self, world: World) -> None:
        wait_for(lambda: not self._replica.leads, LONG_S, "it leads no more")

    def told(self, world: World) -> str:
        return self._replica.page("/readyz")

    def end(self, world: World, name: str) -> None:
        """Nothing is left behind."""


def the_leaders_pod() -> Object:
    """A pod that nobody runs; its namespace lets in what is locked up."""
    pod = objects.pod(THE_LEADER, EXTENDER_NAMESPACE, scheduler="nobody")
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
    """The pod of whoever leads carries the label of the leader, also after somebody took it off."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def begin(self, world: World, name: str, right: Permission) -> None:
        off = {"metadata": {"labels": {leader.LABEL: None}}}
        world.plane.api.patch("pods", THE_LEADER, off, EXTENDER_NAMESPACE)

    def is_seen(self, world: World, name: str, right: Permission) -> bool:
        pod = world.plane.api.get("pods", THE_LEADER, EXTENDER_NAMESPACE)
        return bool(pod["metadata"].get("labels", {}).get(leader.LABEL) == "true")

    def told(self, world: World) -> str:
        return self._replica.page("/readyz")

    def end(self, world: World, name: str) -> None:
        """Whoever leads puts it on again."""


STORIES = {
    "create pods/binding": Starts(),
    "get podgroups": Starts(),
    "patch pods/status": IsWoken(),
    "create pods/eviction": MakesRoom(),
    "get pods": IsLookedUp(),
    "create events": IsTold(),
    "patch events": IsToldAgain(),
    "get queues": IsFoundOpen(),
    "patch queues/status": IsFoundOpen(),
    "patch podgroups/status": Story(),
    "patch podgroups": Story(),
    # Once the extender knows the CRD, it does not ask this way any more.
    "patch podgroups/status scheduling.sigs.dev": IsWritten(with_subresource=False),
    "patch podgroups/status scheduling.incubator.k8s.io": IsWritten(with_subresource=False),
    "patch podgroups scheduling.volcano.sh": IsWritten(with_subresource=False),
}


def story_of(right: Permission) -> Story:
    """The story that needs *right*; of what nobody needs, one that needs nothing special."""
    general = f"{right.verb} {right.resource}"
    return STORIES.get(f"{general} {right.group}") or STORIES.get(general) or Story()


def is_missed(
    world: World, account: Account, right: Permission, story: Story | None = None
) -> bool:
    """Whether anybody misses *right* when it is taken away."""
    story, name = story or story_of(right), world.a_name()
    with account.without(right):
        record = AuditRecord(world.plane, account.user)

        def is_told() -> bool:
            # Said once, it is said for a while; but here somebody was refused just now.
            return record.was_forbidden(right) and f"may not {right};" in story.told(world)

        try:
            story.begin(world, name, right)
            wait_for(
                lambda: is_told() or story.is_seen(world, name, right),
                LONG_S,
                f"the effect of `{right}` is seen, or somebody complains",
                seeing=lambda: story.told(world),
                every_s=0.05,
            )
            if not is_told():
                return False
            story.suffer(world)
            return not story.is_seen(world, name, right)
        finally:
            story.end(world, name)


def foreign_crd(group: str, plural: str) -> Object:
    """The CRD of another project, without rules about its fields.

    Coscheduling's has a status subresource, kube-batch's have none.
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
