"""A control plane: etcd, kube-apiserver and kwok on loopback, with real TLS and RBAC.

kwok simulates kubelets and container runtimes. Tests start kube-scheduler, the extender and
kube-controller-manager as they need them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

import yaml
from click.testing import CliRunner

from extender.cli.main import main
from tests.objects import is_ready

from .api import Api, Object
from .binaries import ensure
from .components import (
    WRITES,
    ApiServer,
    ControllerManager,
    Etcd,
    Kwok,
    Scheduler,
    VolcanoControllers,
)
from .extender_process import REPOSITORY, Extender
from .observer import BindObserver
from .processes import Program
from .users import EXTENDER_NAMESPACE, all_users, write_kubeconfig, write_tokens
from .waiting import wait_for

MANIFESTS = REPOSITORY / "manifests"
OVERLAYS = sorted(path.parent for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
SECOND_SCHEDULER = MANIFESTS / "overlays" / "second-scheduler"
RBAC_KINDS = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
)

PLAIN_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 5000}}
leaderElection: {{leaderElect: false}}
"""

AnyProgram = TypeVar("AnyProgram", bound=Program)


#: The compatibility matrix sets other minors, as kube-scheduler@1.30.
SCHEDULER = os.environ.get("TEST_KUBE_SCHEDULER", "kube-scheduler")
#: Flags that a minor needs by docs/compatibility.md.
SCHEDULER_FLAGS = {"kube-scheduler@1.32": ["--feature-gates=SchedulerQueueingHints=false"]}
API_SERVER = os.environ.get("TEST_KUBE_APISERVER", "kube-apiserver")


class ControlPlane:
    """One cluster in its own folder, for a `with` block; its logs stay."""

    #: All control planes of this process, ended ones too: a failed test shows their logs.
    started: ClassVar[list[ControlPlane]] = []

    api: Api  # as the administrator
    etcd: Etcd
    apiserver: ApiServer
    kwok: Kwok

    def __init__(
        self,
        folder: Path,
        *,
        audit: bool = True,
        audit_reads: bool = False,
        kwok: bool = True,
        service_accounts: bool = False,
    ) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        # All programs, ended ones too: a failed test shows their logs.
        self.programs: list[Program] = []
        self._runs_kwok = kwok
        self._audits = audit
        self._audits_reads = audit_reads
        # Whether pods get service accounts, which kube-controller-manager creates.
        self._has_service_accounts = service_accounts
        self._users = all_users()
        self._apis: list[Api] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self.started.append(self)
        found = ensure("etcd", API_SERVER, *["kwok"] * self._runs_kwok)
        self.logs.mkdir(parents=True)
        tokens = self.folder / "tokens.csv"
        write_tokens(tokens, self._users)
        self.etcd = self._run(Etcd(found["etcd"], self.folder, self.logs))
        self.apiserver = self._run(
            ApiServer(
                found[API_SERVER],
                self.folder,
                self.logs,
                etcd=self.etcd,
                tokens=tokens,
                admin_token=self._users["admin"].token,
                audit=self._audits,
                audit_reads=self._audits_reads,
                service_accounts=self._has_service_accounts,
            )
        )
        for role, user in self._users.items():
            certificate = self.apiserver.certificate
            write_kubeconfig(self.kubeconfig(role), user, self.apiserver.url, certificate)
        self.api = self.api_as("admin")
        if self._runs_kwok:
            self.kwok = self._run(
                Kwok(found["kwok"], self.logs, kubeconfig=self.kubeconfig("kwok"))
            )

    def _run(self, program: AnyProgram) -> AnyProgram:
        self.programs.append(program)
        program.start()
        return program

    def stop(self) -> None:
        """Stop all programs in the reverse order of their start; only the logs stay."""
        for program in reversed(self.programs):
            program.terminate()
        for api in self._apis:
            api.close()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def kubeconfig(self, role: str = "admin") -> Path:
        """Return the kubeconfig of admin, extender, scheduler, controller-manager or kwok."""
        return self.folder / f"{role}.kubeconfig"

    def api_as(self, role: str) -> Api:
        """Return a client with the permissions of that role."""
        api = Api(self.apiserver.url, self._users[role].token, self.apiserver.certificate)
        self._apis.append(api)
        return api

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run kubectl as the administrator; return its output."""
        kubectl = ensure("kubectl")["kubectl"]
        command = [kubectl, f"--kubeconfig={self.kubeconfig()}", *arguments]
        # Its discovery cache is in the home directory by default, one for every port.
        cache = f"--cache-dir={self.folder / 'kubectl-cache'}"
        ran = subprocess.run([*command, cache], input=stdin, capture_output=True, text=True)
        assert ran.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {ran.stderr}"
        return ran.stdout

    def install(self) -> None:
        """Apply the CRDs, and the namespace and RBAC objects of the base manifests."""
        if crds := _manifests(MANIFESTS / "crds"):
            self.kubectl("apply", *(f"--filename={path}" for path in crds))
            self.wait_until_established("crd", "--all")
            self._wait_until_custom_resources_are_served()
        rights = [
            thing for thing in self.rendered(MANIFESTS / "base") if thing["kind"] in RBAC_KINDS
        ]
        home = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": EXTENDER_NAMESPACE}}
        namespaces = [thing for thing in rights if thing["kind"] == "Namespace"] or [home]
        rest = [thing for thing in rights if thing["kind"] != "Namespace"]
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all([*namespaces, *rest]))

    def wait_until_established(self, *kinds: str) -> None:
        """Wait for CRDs; kubectl fails for one that has no status yet, so it is retried."""

        def is_established() -> str:
            return self.kubectl("wait", "--for=condition=Established", *kinds, "--timeout=30s")

        wait_for(is_established, 60, "custom kinds are established", every_s=0.2)

    def _wait_until_custom_resources_are_served(self) -> None:
        # For a moment after a CRD is established, its API answers "too many requests".
        for crd in self.api.list("customresourcedefinitions.apiextensions.k8s.io/v1"):
            about = crd["spec"]
            for version in about["versions"]:
                resource = f"{about['names']['plural']}.{about['group']}/{version['name']}"
                wait_for(partial(self.api.listing, resource), 10, f"{resource} is served")

    def scheduler(self, config: str | Path | None = None, *, binary: str = SCHEDULER) -> Scheduler:
        """Return a kube-scheduler for a `with` block; *config* is a text or a file."""
        name = self._name_for("kube-scheduler")
        if not isinstance(config, Path):
            text = config or PLAIN_SCHEDULER.format(kubeconfig=self.kubeconfig("scheduler"))
            config = self.folder / f"{name}.yaml"
            config.write_text(text)
        scheduler = Scheduler(
            name,
            ensure(binary)[binary],
            self.logs,
            config=config,
            flags=SCHEDULER_FLAGS.get(binary, ()),
        )
        self.programs.append(scheduler)
        return scheduler

    def controllers(self) -> ControllerManager:
        """Return a kube-controller-manager for a `with` block."""
        manager = ControllerManager(
            ensure("kube-controller-manager")["kube-controller-manager"],
            self.logs,
            kubeconfig=self.kubeconfig("controller-manager"),
            key=self.apiserver.key,
            api=self.api,
        )
        self.programs.append(manager)
        return manager

    def volcano_controllers(self) -> VolcanoControllers:
        """Return Volcano's controllers for a `with` block; they act as administrators."""
        kubeconfig = self.kubeconfig("controller-manager")
        binary = ensure("controller-manager")["controller-manager"]
        manager = VolcanoControllers(binary, self.logs, kubeconfig=kubeconfig)
        self.programs.append(manager)
        return manager

    def extender(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Extender:
        """Return an extender for a `with` block; *arguments* go to `serve`."""
        extender = Extender(
            self._name_for("gang-extender"),
            self.logs,
            kubeconfig=self.kubeconfig("extender"),
            arguments=arguments,
            environment=environment,
        )
        self.programs.append(extender)
        return extender

    def scheduler_config(self, extender: Extender, *arguments: str) -> str:
        """Return what `gang-extender scheduler-config` prints for this extender."""
        words = [f"--url={extender.url}", f"--kubeconfig={self.kubeconfig('scheduler')}"]
        ran = CliRunner().invoke(main, ["scheduler-config", *words, *arguments])
        assert ran.exit_code == 0, f"gang-extender scheduler-config: {ran.output}"
        return ran.stdout

    def binds(self, namespace: str | None = None) -> BindObserver:
        """Return an external observer of binds for a `with` block."""
        return BindObserver(self.api, namespace)

    def wait_until_nodes_are_ready(self, names: list[str], seconds: float = 20) -> None:
        def unready() -> list[str]:
            ready = {n["metadata"]["name"] for n in self.api.list("nodes") if is_ready(n)}
            return [name for name in names if name not in ready]

        wait_for(lambda: not unready(), seconds, "all nodes Ready", seeing=unready)

    def writes(self, role: str) -> list[Object]:
        """Return the audit events of all writes of one user so far."""
        return [e for e in self.audited(self._users[role].name) if e["verb"] in WRITES]

    def writes_about(self, namespace: str, *queues: str) -> Counter[str]:
        """Count the extender's writes in a namespace and to queues, by resource."""
        return Counter(
            "/".join(filter(None, (about["resource"], about.get("subresource"))))
            for about in (request["objectRef"] for request in self.writes("extender"))
            if about.get("namespace") == namespace or about.get("name") in queues
        )

    def rendered(self, overlay: Path) -> list[Object]:
        """Return the objects that kustomize renders for an overlay."""
        return [thing for thing in yaml.safe_load_all(self.kubectl("kustomize", overlay)) if thing]

    def audited(self, user: str) -> list[Object]:
        """Return the audit events of one user: writes, and reads where they are audited."""
        # A request that was refused before it was authenticated has a user without a name.
        return [e for e in self.audit_events() if e["user"].get("username") == user]

    def audit_events(self) -> list[Object]:
        """Return all audit events so far."""
        assert self.apiserver.audit_log is not None, "this control plane has no audit log"
        with self.apiserver.audit_log.open() as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    def _name_for(self, program: str) -> str:
        """Return *program*, with a number from the second on: each has its own log file."""
        earlier = sum(p.name.startswith(program) for p in self.programs)
        return f"{program}-{earlier + 1}" if earlier else program


def _manifests(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
