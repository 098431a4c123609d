"""The programs of a control plane: command line and readiness of each."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from .api import Api, ApiError
from .processes import Program

STAGES = Path(__file__).parent / "stages"

WRITES = ("create", "update", "patch", "delete", "deletecollection")

# JSON, which is YAML too.
LEASES = {"group": "coordination.k8s.io", "resources": ["leases"]}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # With the body, which names the holder.
        {"level": "Request", "verbs": WRITES, "resources": [LEASES]},
        {"level": "Metadata", "verbs": WRITES},
        {"level": "None"},
    ],
}
AUDIT_POLICY_WITH_READS = {**AUDIT_POLICY, "rules": [{"level": "Metadata"}]}


def http_json(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    """Call a local server without TLS; None unless it answers with 200."""
    with urllib3.PoolManager(retries=False, timeout=10) as http:
        try:
            response = http.request(method, url, json=body)
        except urllib3.exceptions.HTTPError:
            return None
        return response.json() if response.status == 200 else None


def answers(url: str) -> bool:
    """Return whether a local server answers a GET with 200."""
    with urllib3.PoolManager(retries=False, timeout=2) as http:
        try:
            return http.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False


class Etcd(Program):
    """etcd. It does not wait for the disk (fsync), which is enough for tests."""

    port_count = 2

    def __init__(self, binary: Path, folder: Path, logs: Path) -> None:
        super().__init__("etcd", logs)
        self._binary = binary
        self._data = folder / "etcd"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def _member(self) -> str:
        # The name identifies this etcd, should another run have started one on the same port.
        return f"etcd-of-{self._data.parent.name}-{self.ports[1]}"

    def command(self) -> list[str | Path]:
        peers = f"http://127.0.0.1:{self.ports[1]}"
        return [
            self._binary,
            f"--name={self._member}",
            f"--data-dir={self._data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster={self._member}={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def is_ready(self) -> bool:
        answer = http_json("POST", f"{self.url}/v3/cluster/member/list", {})
        return answer is not None and answer["members"][0].get("name") == self._member

    def compact(self) -> int:
        """Discard all history; return the revision that is kept."""
        zero_key = base64.b64encode(b"\0").decode()
        answer = http_json("POST", f"{self.url}/v3/kv/range", {"key": zero_key})
        revision = int(answer["header"]["revision"])
        compaction = {"revision": revision, "physical": True}
        assert http_json("POST", f"{self.url}/v3/kv/compaction", compaction) is not None
        return revision


class ApiServer(Program):
    """kube-apiserver with TLS, RBAC and users with static tokens."""

    port_count = 1
    #: As `WatchList=false`; for tests of other API servers.
    feature_gates = ""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        logs: Path,
        *,
        etcd: Etcd,
        tokens: Path,
        admin_token: str,
        audit: bool,
        audit_reads: bool = False,
        service_accounts: bool = False,
    ) -> None:
        super().__init__("kube-apiserver", logs)
        # Both need kube-controller-manager, which creates service accounts and removes the
        # not-ready taint of new nodes.
        self._without = [*["ServiceAccount"] * (not service_accounts), "TaintNodesByCondition"]
        self.audit_log = logs / "audit.log" if audit else None
        self._audit_policy = AUDIT_POLICY_WITH_READS if audit_reads else AUDIT_POLICY
        self._binary = binary
        self._certificates = folder / "apiserver"
        self._etcd = etcd
        self._tokens = tokens
        self._admin_token = admin_token

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports[0]}"

    @property
    def certificate(self) -> Path:
        """Return its self-signed certificate, which is also the CA for clients."""
        return self._certificates / "apiserver.crt"

    @property
    def key(self) -> Path:
        """Return its TLS key; it also signs the tokens of service accounts."""
        return self._certificates / "apiserver.key"

    def command(self) -> list[str | Path]:
        command: list[str | Path] = [
            self._binary,
            f"--etcd-servers={self._etcd.url}",
            f"--cert-dir={self._certificates}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports[0]}",
            # Without these two it needs a default route, which the machine may lack.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._tokens}",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--disable-admission-plugins={','.join(self._without)}",
            "--allow-privileged=true",
            # Tests delete collections; the default deletes one object after the other.
            "--delete-collection-workers=16",
        ]
        if self.audit_log is not None:
            policy = self.audit_log.with_name("audit-policy.yaml")
            policy.write_text(json.dumps(self._audit_policy))
            command += [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
            # One file without rotation: the readers of the log know only this one.
            command.append("--audit-log-maxsize=100000")
        if self.feature_gates:
            command.append(f"--feature-gates={self.feature_gates}")
        return command

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Freeze it, as heavy swapping does: connections stay open without responses."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def is_ready(self) -> bool:
        if not self.certificate.exists():
            return False
        api = Api(self.url, self._admin_token, self.certificate)
        try:
            return api.answers("/readyz")
        except (ApiError, OSError):
            return False
        finally:
            api.close()


class Kwok(Program):
    """kwok: simulates the kubelets of all nodes, by the rules in `stages/`."""

    port_count = 1

    def __init__(self, binary: Path, logs: Path, *, kubeconfig: Path) -> None:
        super().__init__("kwok", logs)
        self._binary = binary
        self._kubeconfig = kubeconfig

    def command(self) -> list[str | Path]:
        return [
            self._binary,
            f"--kubeconfig={self._kubeconfig}",
            "--manage-all-nodes=true",
            "--cidr=10.100.0.0/14",
            "--node-ip=10.0.0.1",
            f"--server-address=127.0.0.1:{self.ports[0]}",
            *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
        ]

    def is_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.ports[0]}/healthz")


class ControllerManager(Program):
    """kube-controller-manager, for Jobs, garbage collection and the deletion of namespaces."""

    def __init__(self, binary: Path, logs: Path, *, kubeconfig: Path, key: Path, api: Api) -> None:
        super().__init__("kube-controller-manager", logs)
        self._binary = binary
        self._kubeconfig = kubeconfig
        self._key = key
        self._api = api

    def command(self) -> list[str | Path]:
        return [
            self._binary,
            f"--kubeconfig={self._kubeconfig}",
            # kwok's nodes renew no leases, so that controller would mark them as not ready.
            "--controllers=*,-node-lifecycle-controller",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self._key}",
            "--use-service-account-credentials=false",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        ]

    def is_ready(self) -> bool:
        # It has no port; its first visible action is the service account of each namespace.
        return self._api.find("serviceaccounts", "default", "default") is not None


class VolcanoControllers(Program):
    """Volcano's controllers without its scheduler: Jobs, and PodGroups for pods without one."""

    def __init__(self, binary: Path, logs: Path, *, kubeconfig: Path) -> None:
        super().__init__("volcano-controllers", logs)
        self._binary = binary
        self._kubeconfig = kubeconfig

    def command(self) -> list[str | Path]:
        return [
            self._binary,
            f"--kubeconfig={self._kubeconfig}",
            # The others need further CRDs of Volcano.
            "--controllers=job-controller,pg-controller",
            "--leader-elect=false",
            "--logtostderr",
        ]

    def is_ready(self) -> bool:
        # It has no port; each controller logs when its caches are synced.
        log = self.log_since_start()
        return all(f"{name} is running" in log for name in ("JobController", "PodgroupController"))


class Scheduler(Program):
    """kube-scheduler with a KubeSchedulerConfiguration of the test."""

    def __init__(
        self, name: str, binary: Path, logs: Path, *, config: Path, flags: Sequence[str] = ()
    ) -> None:
        super().__init__(name, logs)
        self._binary = binary
        self._config = config
        self._flags = flags

    def command(self) -> list[str | Path]:
        # Level 3 of server.go logs when its informers have synced.
        levels = ["--v=2", "--vmodule=server=3"]
        return [self._binary, f"--config={self._config}", "--secure-port=0", *levels, *self._flags]

    def is_ready(self) -> bool:
        # It has no port. Every minor from 1.28 on logs that its informers have synced.
        return '"Handlers synced"' in self.log_since_start()
