"""The pair of the overlay `second-scheduler` as applied, monitored as a kubelet does it.

One replica, since the standby would be on another machine. Its memory is measured, its liveness
probe is called, and containers that end are restarted and counted.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from extender.planner.policy_parser import DEFAULT_TEXT
from tests import objects
from tests.cluster.api import Object
from tests.cluster.components import http_json
from tests.cluster.control_plane import MANIFESTS, RBAC_KINDS, ControlPlane
from tests.cluster.processes import NeverReady
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.nightly.cluster.applied import CREDENTIALS, SCHEDULER_PORT, AppliedPod, Container

OVERLAY = MANIFESTS / "overlays" / "second-scheduler"
#: The node of the pair.
_NODE = "keep"
_POLL_S = 0.1
#: The extension points that kube-scheduler runs for one pod at a time, without the extender.
_EXTENSION_POINTS = "scheduler_framework_extension_point_duration_seconds"
_SERIAL = ("PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "Permit")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

#: The default policy as a file.
GOOD_POLICY = DEFAULT_TEXT


def template() -> Object:
    """Return the pod template of the overlay's Deployment."""
    made: Object = yaml.safe_load((OVERLAY / "deployment.yaml").read_text())["spec"]["template"]
    return made


def memory_limit_mb() -> float:
    """Return the memory limit of the extender in the overlay."""
    (extender,) = (c for c in template()["spec"]["containers"] if c["name"] == "extender")
    written: str = extender["resources"]["limits"]["memory"]
    return int(written[:-2]) * _UNITS[written[-2:]] / 1e6


class InstalledPair:
    """Extender and kube-scheduler of one pod, for a `with` block."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.policy = plane.folder / "policy.yaml"
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._monitor, name="kubelet", daemon=True)
        #: Held while containers are restarted.
        self._restarting = threading.Lock()
        self._failures = 0
        self._workers: set[int] = set()
        self._peak_mb = 0.0
        #: The reasons why a kubelet would have restarted, or did restart, a container.
        self.restarts: list[str] = []

    def __enter__(self) -> Self:
        self.policy.write_text(GOOD_POLICY)
        self._pod = AppliedPod(self._plane, self._applied())
        self._pod.__enter__()
        self.extender: Container = self._pod.container("extender")
        wait_for(lambda: self.extender.answers("/readyz"), 60, "the pair leads")
        self._workers = set(_children(self.extender.pid))
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._watch.join()
        self._pod.end()

    def use_server(self, server: str) -> None:
        """Restart the extender with another address of the API server."""
        with self._restarting:
            self._pod.use_server(server)
            self.extender.restart()
            wait_for(lambda: self.extender.answers("/readyz"), 120, "the extender leads again")
            self._workers = set(_children(self.extender.pid))

    def slowest_calls(self) -> str:
        """Return the three slowest kinds of API calls, by their mean."""
        text, name = self._read("/metrics"), "gang_extender_api_seconds"
        sums, counts = _samples(text, f"{name}_sum"), _samples(text, f"{name}_count")
        means = {
            f"{each.labels['verb']} {each.labels['resource']}": each.value / count.value
            for each, count in zip(sums, counts, strict=True)
            if count.value
        }
        slowest = sorted(means.items(), key=lambda pair: -pair[1])[:3]
        return ", ".join(f"{what} {took:.1f} s" for what, took in slowest)

    @property
    def worker(self) -> int:
        """Return the pid of the worker process."""
        (only,) = _children(self.extender.pid)
        return only

    @property
    def ports(self) -> dict[str, int]:
        """Return the local ports of hooks and operations."""
        return {"hooks": self._pod.ports[8888], "operations": self._pod.ports[8889]}

    @property
    def ops_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['operations']}"

    def refused(self) -> dict[str, float]:
        """Return the number of refused calls so far, by port and reason."""
        name = "gang_extender_calls_refused_total"
        return {
            f"{each.labels['port']}: {each.labels['reason']}": each.value
            for each in _samples(self._read("/metrics"), name)
        }

    def scheduler_s(self) -> float:
        """Return how long kube-scheduler's loop was busy so far, without the extender."""
        own = _samples(self._of_scheduler(), f"{_EXTENSION_POINTS}_sum")
        return sum(each.value for each in own if each.labels["extension_point"] in _SERIAL)

    def cpu_s(self) -> tuple[float, float]:
        """Return the CPU seconds of the hook loop and of the whole extender so far.

        They do not depend on the load of the machine.
        """
        with suppress(OSError, ValueError):
            pid = self.worker
            return _cpu_s(f"/proc/{pid}/task/{pid}"), _cpu_s(f"/proc/{pid}")
        return 0.0, 0.0

    def _of_scheduler(self) -> str:
        admin = yaml.safe_load(self._plane.kubeconfig().read_text())["users"][0]["user"]
        token = {"Authorization": f"Bearer {admin['token']}"}
        # Its certificate is self-signed.
        with urllib3.PoolManager(retries=3, timeout=10, cert_reqs="CERT_NONE") as http:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            url = f"https://127.0.0.1:{self._pod.ports[SCHEDULER_PORT]}/metrics"
            answer = http.request("GET", url, headers=token)
        assert answer.status == 200, answer.data
        return answer.data.decode()

    def findings(self) -> list[Object]:
        return list(http_json("GET", f"{self.ops_url}/api/v1/findings") or ())

    def _read(self, path: str) -> str:
        with urllib3.PoolManager(retries=3, timeout=10) as http:
            return http.request("GET", f"{self.ops_url}{path}").data.decode()

    def reset_peak(self) -> None:
        """Measure the peak memory from now on."""
        self._peak_mb = 0.0
        for pid in self._processes():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    @property
    def peak_mb(self) -> float:
        """Return the peak memory since `reset_peak`, of all processes together."""
        self._measure_memory()
        return self._peak_mb

    def _measure_memory(self) -> None:
        now = sum(_memory_mb(pid, "VmHWM") for pid in self._processes())
        self._peak_mb = max(self._peak_mb, now)

    def _processes(self) -> list[int]:
        pid = self.extender.pid
        return [pid, *_children(pid)]

    def _applied(self) -> Object:
        """Apply the overlay without the objects for controllers, and create its pod."""
        rendered = [*yaml.safe_load_all(self._plane.kubectl("kustomize", OVERLAY))]
        ours = [thing for thing in rendered if thing["kind"] in (*RBAC_KINDS, "ConfigMap")]
        self._plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
        self._plane.kubectl("apply", "-k", MANIFESTS / "flow-control")
        (deployment,) = (thing for thing in rendered if thing["kind"] == "Deployment")
        made = deployment["spec"]["template"]
        about = {"name": "gang-scheduler-0", "namespace": EXTENDER_NAMESPACE}
        spec = {**made["spec"], "nodeName": _NODE}
        # What the service account admission plugin adds, which is off here.
        spec["volumes"].append({"name": "token", "emptyDir": {}})
        for container in spec["containers"]:
            container["volumeMounts"].append(
                {"name": "token", "mountPath": CREDENTIALS, "readOnly": True}
            )
        (extender,) = (each for each in spec["containers"] if each["name"] == "extender")
        extender["env"].append({"name": "GANG_EXTENDER_CONFIG", "value": str(self.policy)})
        self._plane.api.create(objects.node(_NODE))
        (pod,) = self._plane.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**made["metadata"], **about},
                "spec": spec,
            }
        )
        return pod

    # kubelet

    def _monitor(self) -> None:
        (extender,) = (c for c in template()["spec"]["containers"] if c["name"] == "extender")
        liveness = extender["livenessProbe"]
        probed_at = 0.0
        with urllib3.PoolManager(
            retries=False, timeout=liveness.get("timeoutSeconds", 1), maxsize=1
        ) as http:
            while not self._ends.wait(_POLL_S):
                with self._restarting:
                    self._restart_ended()
                self._measure_memory()
                if time.monotonic() >= probed_at + liveness["periodSeconds"]:
                    probed_at = time.monotonic()
                    self._probe_liveness(http, liveness)

    def _probe_liveness(self, http: urllib3.PoolManager, probe: Object) -> None:
        url = self.extender.url(probe["httpGet"])
        try:
            is_alive = http.request("GET", url, headers={"Connection": "close"}).status == 200
        except urllib3.exceptions.HTTPError:
            is_alive = False
        self._failures = 0 if is_alive else self._failures + 1
        if self._failures == probe.get("failureThreshold", 3):
            self.restarts.append("the liveness probe of extender failed")
            self._failures = 0

    def _restart_ended(self) -> None:
        for container in self._pod.containers:
            if not container.is_running:
                self.restarts.append(f"{container.container} ended")
                with suppress(NeverReady):
                    container.restart()
        workers = set(_children(self.extender.pid))
        if workers and workers != self._workers:
            self.restarts.append("the worker of extender ended")
            self._workers = workers


def _samples(text: str, name: str) -> list[Sample]:
    return [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def _cpu_s(path: str) -> float:
    fields = Path(f"{path}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _memory_mb(pid: int, field: str) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024 / 1e6
    return 0.0
