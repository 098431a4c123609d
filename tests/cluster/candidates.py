"""Two candidates for one lease: extenders behind a Service, or pairs with kube-scheduler."""

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
from .lease_audit import LeaseAudit
from .processes import Program
from .replicas import Replica, ServerLink, Service
from .users import EXTENDER_NAMESPACE, all_users
from .waiting import wait_for

LABEL = "gang-extender.io/leader=true"
#: How often kube-scheduler tries to acquire the lease (with jitter up to 2.2 times as long). The
#: default of 2 s is too long for a limit of three.
RETRY_PERIOD = "500ms"


@dataclass
class Candidate:
    """An extender, in a pair with its kube-scheduler; they are started and killed together."""

    #: The name of its pod, and its host name.
    pod: str
    extender: Replica
    #: Its connection to the API server.
    link: ServerLink
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
        # The extender first: kube-scheduler calls it when it leads.
        for program in reversed(self.programs):
            if not program.is_running:
                program.start()

    def send_signal(self, what: signal.Signals) -> None:
        """Signal all programs at once, as a kubelet does."""
        for program in self.programs:
            if program.is_running:
                os.killpg(program.pid, what)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        for program in self.programs:
            program.kill()


@dataclass
class Candidates:
    """Two candidates, and the audit of their writes."""

    plane: ControlPlane
    scheduler_name: str
    members: list[Candidate]
    audit: LeaseAudit
    #: Whether the leader's pod is labelled.
    is_labelled: bool = False

    def leader(self) -> Candidate:
        """Wait until exactly one is ready, and return it."""

        def leading() -> list[Candidate]:
            return [candidate for candidate in self.members if candidate.leads]

        (one,) = wait_for(lambda: len(found := leading()) == 1 and found, 60, "one leads")
        return one

    def other(self, candidate: Candidate) -> Candidate:
        return next(each for each in self.members if each is not candidate)

    def start_all(self) -> None:
        for candidate in self.members:
            candidate.start()

    def labelled(self) -> list[str]:
        """Return which of the two pods have the leader label."""
        found = self.plane.api.list("pods", EXTENDER_NAMESPACE, labels=LABEL)
        names = [pod["metadata"]["name"] for pod in found]
        return [name for name in names if name in {candidate.pod for candidate in self.members}]


class HasUrl(Protocol):
    """Anything with the URL of the hooks."""

    @property
    def url(self) -> str: ...


@contextmanager
def behind_a_service(
    plane: ControlPlane,
    name: str = "ha",
    *,
    kind: type[Replica] = Replica,
    before: Callable[[Service], AbstractContextManager[HasUrl]] = nullcontext,
) -> Iterator[Candidates]:
    """Run two extenders with their own lease, behind a Service that selects the leader label.

    *before* wraps the Service, for example in a proxy.
    """
    scheduler_name, lease = f"{name}-scheduler", f"{EXTENDER_NAMESPACE}/{name}"
    plane.api.create(
        *_rbac(name, ["get", "patch"], list(_pods(name))), *map(_pod, _pods(name).values())
    )
    with ExitStack() as running:
        sides = []
        for user, pod in _pods(name).items():
            link = running.enter_context(ServerLink(plane.apiserver.ports[0]))
            extender = kind(
                f"gang-extender-{pod}",
                plane.logs,
                kubeconfig=_kubeconfig_by(plane, user, name, link),
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
            sides.append(Candidate(pod, running.enter_context(extender), link))
        candidates = Candidates(
            plane, scheduler_name, sides, _audit(plane, lease, name), is_labelled=True
        )
        service = running.enter_context(
            Service({candidate.pod: candidate.extender for candidate in sides}, candidates.labelled)
        )
        target: Any = running.enter_context(before(service))
        config = plane.scheduler_config(target, f"--scheduler-name={scheduler_name}")
        running.enter_context(plane.scheduler(config))
        yield candidates
        for pod in _pods(name).values():
            plane.api.delete("pods", pod, EXTENDER_NAMESPACE, grace_seconds=0)


@contextmanager
def in_pairs(
    plane: ControlPlane, name: str = "pair", *, retry_period: str = RETRY_PERIOD
) -> Iterator[Candidates]:
    """Run two pairs of kube-scheduler and extender, each with its own host name as in a pod."""
    scheduler_name = f"{name}-scheduler"
    lease = f"{EXTENDER_NAMESPACE}/{scheduler_name}"
    plane.api.create(*_rbac(scheduler_name, ["get"], list(_pods(name))))
    plane.api.create(*_rbac(f"{scheduler_name}-s", ["get", "create", "update"]))
    with ExitStack() as running:
        sides = []
        for user, pod in _pods(name).items():
            link = running.enter_context(ServerLink(plane.apiserver.ports[0]))
            extender = ExtenderOnHost(
                f"gang-extender-{pod}",
                plane.logs,
                kubeconfig=_kubeconfig_by(plane, user, name, link),
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
                config=_election(plane, extender, scheduler_name, link, pod, retry_period),
            )
            scheduler.host = pod
            plane.programs.append(scheduler)
            sides.append(Candidate(pod, extender, link, running.enter_context(scheduler)))
        yield Candidates(plane, scheduler_name, sides, _audit(plane, lease, name))


class ExtenderOnHost(Replica):
    """An extender with its own host name."""

    host = ""

    def command(self) -> list[str | Path]:
        return on_host(self.host, super().command())


class SchedulerOnHost(Scheduler):
    """A kube-scheduler with its own host name, which it writes into its lease."""

    host = ""

    def command(self) -> list[str | Path]:
        return on_host(self.host, super().command())


def on_host(name: str, command: Sequence[str | Path]) -> list[str | Path]:
    """Return *command* with *name* as host name, as in the containers of a pod."""
    unshare = ["unshare", "--uts"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    return [*unshare, "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]


def _pods(name: str) -> dict[str, str]:
    """Return the pods by user; each has its own user, so that the audit log distinguishes them."""
    return {f"{name}-{letter}": f"{name}-{letter}" for letter in "ab"}


def _audit(plane: ControlPlane, lease: str, name: str) -> LeaseAudit:
    assert plane.apiserver.audit_log is not None
    users = all_users()
    sides = {users[user].name: f"{pod}_" for user, pod in _pods(name).items()}
    return LeaseAudit(plane.apiserver.audit_log, lease, sides)


def _kubeconfig_by(plane: ControlPlane, user: str, name: str, link: ServerLink) -> Path:
    about = yaml.safe_load(plane.kubeconfig(user).read_text())
    about["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
    kubeconfig = plane.folder / f"{user}-{name}-{link.port}.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(about))
    return kubeconfig


def _election(
    plane: ControlPlane,
    extender: Extender,
    scheduler_name: str,
    link: ServerLink,
    pod: str,
    retry_period: str,
) -> Path:
    """Write the printed configuration for pairs, with its own connection and a shorter retry."""
    text = plane.scheduler_config(
        extender,
        f"--scheduler-name={scheduler_name}",
        "--leader-elect",
        f"--lease-namespace={EXTENDER_NAMESPACE}",
    )
    config = yaml.safe_load(text)
    kubeconfig = _kubeconfig_by(plane, "scheduler", scheduler_name, link)
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    config["leaderElection"]["retryPeriod"] = retry_period
    path = plane.folder / f"{scheduler_name}-{pod}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _pod(name: str) -> Object:
    """Return the pod of an extender; it is never scheduled."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "extender", "image": "gang-extender", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": EXTENDER_NAMESPACE},
        "spec": {
            "schedulerName": "none",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }


def _rbac(name: str, verbs: list[str], extenders: Sequence[str] = ()) -> list[Object]:
    """Return the RBAC objects for the lease, and for the users of the two."""
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
