"""Two sides that could lead: two extenders behind a Service, or two pairs with kube-scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from .api import Object
from .binaries import ensure
from .components import Scheduler
from .control_plane import SCHEDULER, ControlPlane
from .extender_process import Extender
from .processes import Program
from .referee import Referee
from .replicas import Cable, Replica, Service
from .users import EXTENDER_NAMESPACE, everyone
from .waiting import wait_for

LABEL = "gang-extender.io/leader=true"
#: How often kube-scheduler looks whether the lease is free, and up to 2.2 times as seldom. By
#: default 2 s, too long for somebody who waits three.
RETRY_PERIOD = "500ms"


@dataclass
class Side:
    """What lives and dies together: an extender, in a pair with its kube-scheduler."""

    #: The pod it would live in, and the name of its host.
    pod: str
    extender: Replica
    #: Its way to the API server.
    cable: Cable
    scheduler: Scheduler | None = None

    @property
    def programs(self) -> Sequence[Program]:
        return [each for each in (self.scheduler, self.extender) if each is not None]

    @property
    def leads(self) -> bool:
        return self.extender.is_running and self.extender.leads

    @property
    def has_ended(self) -> bool:
        return not any(program.is_running for program in self.programs)

    def start(self) -> None:
        # The extender first: kube-scheduler, once it leads, asks it.
        for program in reversed(self.programs):
            if not program.is_running:
                program.start()

    def tell(self, what: signal.Signals) -> None:
        """Signal all of it at once, as a kubelet or a machine does."""
        for program in self.programs:
            if program.is_running:
                os.killpg(program.pid, what)

    def kill(self) -> None:
        self.tell(signal.SIGKILL)
        for program in self.programs:
            program.kill()


@dataclass
class Rivals:
    """Two sides, and who judges them."""

    plane: ControlPlane
    scheduler_name: str
    sides: list[Side]
    referee: Referee
    #: Whether the leader's pod is labelled.
    is_labelled: bool = False

    def leader(self) -> Side:
        """Give the only one that is ready."""

        def leading() -> list[Side]:
            return [side for side in self.sides if side.leads]

        (one,) = wait_for(lambda: len(found := leading()) == 1 and found, 60, "one leads")
        return one

    def other(self, side: Side) -> Side:
        return next(each for each in self.sides if each is not side)

    def restore(self) -> None:
        for side in self.sides:
            side.start()

    def labelled(self) -> list[str]:
        """Those of the two pods that carry the label of the leader."""
        found = self.plane.api.list("pods", EXTENDER_NAMESPACE, labels=LABEL)
        names = [pod["metadata"]["name"] for pod in found]
        return [name for name in names if name in {side.pod for side in self.sides}]


class HasUrl(Protocol):
    """Where kube-scheduler asks."""

    @property
    def url(self) -> str: ...


@contextmanager
def behind_a_service(
    plane: ControlPlane,
    name: str = "ha",
    *,
    kind: type[Replica] = Replica,
    before: Callable[[Service], AbstractContextManager[HasUrl]] = nullcontext,
) -> Iterator[Rivals]:
    """Run two extenders with a lease of their own; a Service follows the leader's label.

    *before* puts something between kube-scheduler and it.
    """
    scheduler_name, lease = f"{name}-scheduler", f"{EXTENDER_NAMESPACE}/{name}"
    plane.api.create(
        *_rights(name, ["get", "patch"], list(_pods(name))), *map(_pod, _pods(name).values())
    )
    with ExitStack() as running:
        sides = []
        for user, pod in _pods(name).items():
            cable = running.enter_context(Cable(plane.apiserver.ports[0]))
            extender = kind(
                f"gang-extender-{pod}",
                plane.logs,
                kubeconfig=_by_cable(plane, user, name, cable),
                arguments=(
                    f"--scheduler-name={scheduler_name}",
                    "--lease=own",
                    f"--lease-name={name}",
                    f"--lease-namespace={EXTENDER_NAMESPACE}",
                    f"--lease-identity={pod}",
                    f"--pod-name={pod}",
                    f"--pod-namespace={EXTENDER_NAMESPACE}",
                ),
            )
            plane.programs.append(extender)
            sides.append(Side(pod, running.enter_context(extender), cable))
        rivals = Rivals(
            plane, scheduler_name, sides, _referee(plane, lease, name), is_labelled=True
        )
        service = running.enter_context(
            Service({side.pod: side.extender for side in sides}, rivals.labelled)
        )
        asked: Any = running.enter_context(before(service))
        config = plane.scheduler_config(asked, f"--scheduler-name={scheduler_name}")
        running.enter_context(plane.scheduler(config))
        yield rivals
        for pod in _pods(name).values():
            plane.api.delete("pods", pod, EXTENDER_NAMESPACE, grace_seconds=0)


@contextmanager
def in_pairs(
    plane: ControlPlane, name: str = "pair", *, retry_period: str = RETRY_PERIOD
) -> Iterator[Rivals]:
    """Run two pairs of kube-scheduler and extender, each on a host name of its own as in a pod."""
    scheduler_name = f"{name}-scheduler"
    lease = f"{EXTENDER_NAMESPACE}/{scheduler_name}"
    plane.api.create(*_rights(scheduler_name, ["get"], list(_pods(name))))
    plane.api.create(*_rights(f"{scheduler_name}-s", ["get", "create", "update"]))
    with ExitStack() as running:
        sides = []
        for user, pod in _pods(name).items():
            cable = running.enter_context(Cable(plane.apiserver.ports[0]))
            extender = OnHost(
                f"gang-extender-{pod}",
                plane.logs,
                kubeconfig=_by_cable(plane, user, name, cable),
                arguments=(
                    f"--scheduler-name={scheduler_name}",
                    "--lease=scheduler",
                    f"--lease-name={scheduler_name}",
                    f"--lease-namespace={EXTENDER_NAMESPACE}",
                ),
            )
            extender.host = pod
            plane.programs.append(extender)
            running.enter_context(extender)
            scheduler = SchedulerOnHost(
                f"kube-scheduler-{pod}",
                ensure(SCHEDULER)[SCHEDULER],
                plane.logs,
                config=_election(plane, extender, scheduler_name, cable, pod, retry_period),
            )
            scheduler.host = pod
            plane.programs.append(scheduler)
            sides.append(Side(pod, extender, cable, running.enter_context(scheduler)))
        yield Rivals(plane, scheduler_name, sides, _referee(plane, lease, name))


class OnHost(Replica):
    """An extender on a host name of its own."""

    host = ""

    def command(self) -> list[str | Path]:
        return on_host(self.host, super().command())


class SchedulerOnHost(Scheduler):
    """A kube-scheduler on a host name of its own: it names itself by it in its lease."""

    host = ""

    def command(self) -> list[str | Path]:
        return on_host(self.host, super().command())


def on_host(name: str, command: Sequence[str | Path]) -> list[str | Path]:
    """Run *command* where the host is called *name*, as the containers of a pod are."""
    unshare = ["unshare", "--uts"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    return [*unshare, "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]


def _pods(name: str) -> dict[str, str]:
    """Name the pods of the two by their users, which are theirs alone for the audit log's sake."""
    return {f"{name}-{letter}": f"{name}-{letter}" for letter in "ab"}


def _referee(plane: ControlPlane, lease: str, name: str) -> Referee:
    assert plane.apiserver.audit_log is not None
    users = everyone()
    sides = {users[user].name: f"{pod}_" for user, pod in _pods(name).items()}
    return Referee(plane.apiserver.audit_log, lease, sides)


def _by_cable(plane: ControlPlane, user: str, name: str, cable: Cable) -> Path:
    about = yaml.safe_load(plane.kubeconfig(user).read_text())
    about["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{cable.port}"
    kubeconfig = plane.folder / f"{user}-{name}-{cable.port}.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(about))
    return kubeconfig


def _election(
    plane: ControlPlane,
    extender: Extender,
    scheduler_name: str,
    cable: Cable,
    pod: str,
    retry_period: str,
) -> Path:
    """What our command line prints for pairs, by the cable and with a quicker look."""
    text = plane.scheduler_config(
        extender,
        f"--scheduler-name={scheduler_name}",
        "--leader-elect",
        f"--lease-namespace={EXTENDER_NAMESPACE}",
    )
    config = yaml.safe_load(text)
    by_cable = _by_cable(plane, "scheduler", scheduler_name, cable)
    config["clientConnection"]["kubeconfig"] = str(by_cable)
    config["leaderElection"]["retryPeriod"] = retry_period
    path = plane.folder / f"{scheduler_name}-{pod}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _pod(name: str) -> Object:
    """The pod in which an extender would run; nobody schedules it."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "extender", "image": "gang-extender", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": EXTENDER_NAMESPACE},
        "spec": {
            "schedulerName": "nobody",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }


def _rights(name: str, verbs: list[str], extenders: Sequence[str] = ()) -> list[Object]:
    """What two need besides what one needs: their lease, and here users of their own."""
    group = "rbac.authorization.k8s.io"
    users = extenders or ("system:kube-scheduler",)
    subjects = [{"kind": "User", "name": user} for user in users]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rules = [{**leases, "verbs": ["create"]}, {**leases, "verbs": verbs}]
    about = {"name": name, "namespace": EXTENDER_NAMESPACE}
    made: list[Object] = [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": subjects,
        },
    ]
    if extenders:
        everywhere = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gang-extender"},
            "subjects": subjects,
        }
        made += [everywhere]
    return made
