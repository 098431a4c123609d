"""Runs the containers of an applied pod as plain processes, in place of a container runtime.

Commands, arguments, variables, files, probes and permissions are those that the API server has.
Only these differ:

- a container without a command runs the entrypoint of the Dockerfile;
- a mounted ConfigMap or Secret is a local folder, and arguments that name its mount path name the
  folder; an emptyDir at /tmp is $TMPDIR;
- there is no pod network: each port of the pod is replaced by a free one, everywhere it is named
  (arguments, files, probes) or left to its default;
- the service account credentials are replaced by a kubeconfig with a real token that is bound to
  the pod; there are no other credentials.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import yaml

from extender.settings import Settings
from tests.cluster.api import Object
from tests.cluster.binaries import ensure
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.ports import free_ports
from tests.cluster.processes import Program
from tests.cluster.users import User, write_kubeconfig

ADDRESS = re.compile(r"\b(127\.0\.0\.1|0\.0\.0\.0):(\d+)\b")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"
OWN_HOSTNAME = Path(__file__).with_name("own_hostname.py")

# A kubelet probes from outside the pod, so a container that listens on 127.0.0.1 alone fails its
# probes. On Linux all of 127/8 is this machine, so another address of it shows the difference.
POD_ADDRESS = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"

# The default ports of the programs.
SCHEDULER_PORT = 10259
HOOKS = Settings().listen

LONGEST_RUN = "24h"


class Ports(dict[int, int]):
    """The local port for each port of a pod; chosen on first use."""

    def __missing__(self, port: int) -> int:
        (self[port],) = free_ports(1)
        return self[port]

    def moved(self, text: str) -> str:
        """Return *text* with the port of every address replaced."""
        return ADDRESS.sub(lambda found: f"{found[1]}:{self[int(found[2])]}", text)


class Container(Program):
    """One container; it has started when its startup probe succeeds."""

    def __init__(
        self,
        pod: str,
        applied: Object,
        logs: Path,
        *,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        ports: Ports,
    ) -> None:
        super().__init__(f"{pod}.{applied['name']}", logs)
        # Unlike other programs of a test it inherits no variables: no settings, no credentials.
        self._environment = dict(environment)
        self._applied = applied
        self._command = command
        self._ports = ports
        self.image: str = applied["image"]
        self.container: str = applied["name"]
        startup = applied["startupProbe"]
        self.start_s = startup["periodSeconds"] * startup["failureThreshold"]

    def command(self) -> Sequence[str | Path]:
        return self._command

    def probe(self, kind: str) -> bool:
        """Run one probe; a container without it succeeds while it runs."""
        probe = self._applied.get(kind)
        return _succeeds(self.url(probe["httpGet"])) if probe else self.is_running

    def probes(self) -> dict[str, bool]:
        """Run every probe; return the results by kind."""
        return {kind: self.probe(kind) for kind in PROBES if kind in self._applied}

    def is_ready(self) -> bool:
        return self.probe("startupProbe")

    def url(self, probe: Object) -> str:
        """Return the local URL of an `httpGet` probe."""
        declared = self._applied.get("ports", [])
        by_name = {each["name"]: each["containerPort"] for each in declared if "name" in each}
        port: int = by_name[probe["port"]] if probe["port"] in by_name else probe["port"]
        scheme = probe.get("scheme", "HTTP").lower()
        return f"{scheme}://{POD_ADDRESS}:{self._ports[port]}{probe['path']}"

    def answers(self, path: str) -> bool:
        """Return whether the operations port answers *path* with 200."""
        return _succeeds(self.url({"port": "ops", "path": path}))

    def read(self, path: str) -> str:
        """Return the text that the operations port serves at *path*."""
        with _open(self.url({"port": "ops", "path": path})) as answer:
            return str(answer.read().decode())


class AppliedPod:
    """A pod of the API server that runs during the `with` block."""

    def __init__(self, plane: ControlPlane, pod: Object) -> None:
        self._plane = plane
        self._pod = pod
        self._spec = pod["spec"]
        self._namespace: str = pod["metadata"]["namespace"]
        self._account: str = self._spec["serviceAccountName"]
        self.name: str = pod["metadata"]["name"]
        self._folder: Path = plane.folder / "pods" / self.name
        self._kubeconfig = self._folder / "kubeconfig"
        self._mounted: dict[str, Path] = {}
        #: The local port for each of its ports.
        self.ports = Ports()
        self.user = f"system:serviceaccount:{self._namespace}:{self._account}"
        self.containers: list[Container] = []
        self.token = ""

    def __enter__(self) -> Self:
        self.mount()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def mount(self) -> None:
        """Write all files; raises while a ConfigMap or Secret does not exist."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._write_kubeconfig()
        for volume in self._spec["volumes"]:
            folder = self._folder / volume["name"]
            folder.mkdir()
            if "configMap" in volume:
                self._write_config(volume["configMap"]["name"], folder)
            elif "secret" in volume:
                self._write_secret(volume["secret"], folder)
            self._mounted[volume["name"]] = folder

    def prepare(self) -> None:
        """Run the init containers."""
        for applied in self._spec.get("initContainers", ()):
            command, environment = self._process(applied)
            ran = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120
            )
            assert ran.returncode == 0, f"{applied['name']} of {self.name}: {ran.stderr}"

    def start(self) -> None:
        """Start every container and wait until it has started."""
        self.prepare()
        self.containers = [self._container(applied) for applied in self._spec["containers"]]
        # The plane shows their logs when a test fails, and ends them.
        self._plane.programs.extend(self.containers)
        with ThreadPoolExecutor() as pool:
            [*pool.map(Container.start, self.containers)]

    def restart_ended(self) -> None:
        """Restart containers that have ended."""
        for container in self.containers:
            if not container.is_running:
                container.restart()

    def end(self) -> None:
        """Stop all containers at once; kill them after the pod's grace period."""
        for container in self.containers:
            container.stop_s = self._spec["terminationGracePeriodSeconds"]
        with ThreadPoolExecutor() as pool:
            [*pool.map(Container.terminate, self.containers)]

    def use_server(self, server: str) -> None:
        """Let containers that start from now on reach the API server at *server*."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = server
        self._kubeconfig.write_text(yaml.safe_dump(config))

    def is_ready(self) -> bool:
        return all(container.probe("readinessProbe") for container in self.containers)

    def container(self, name: str) -> Container:
        return next(each for each in self.containers if each.container == name)

    def _write_kubeconfig(self) -> None:
        # No kubelet renews it, and a siege lasts longer than the default hour.
        lasts = f"--duration={LONGEST_RUN}"
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={self.name}", lasts)
        token = self._plane.kubectl("create", "token", self._account, "-n", self._namespace, *bound)
        self.token = token.strip()
        server = self._plane.apiserver
        user = User(self.user, token=self.token)
        write_kubeconfig(self._kubeconfig, user, server.url, server.certificate)

    def _write_config(self, name: str, folder: Path) -> None:
        applied = self._plane.api.get("configmaps", name, self._namespace)
        for file, text in applied["data"].items():
            config = yaml.safe_load(self.ports.moved(text))
            if config["kind"] == "KubeSchedulerConfiguration":
                config["clientConnection"]["kubeconfig"] = str(self._kubeconfig)
            (folder / file).write_text(yaml.safe_dump(config, sort_keys=False))

    def _write_secret(self, volume: Object, folder: Path) -> None:
        applied = self._plane.api.get("secrets", volume["secretName"], self._namespace)
        for file, content in applied["data"].items():
            (folder / file).write_bytes(base64.b64decode(content))
            (folder / file).chmod(volume["defaultMode"])

    def _process(self, applied: Object) -> tuple[list[str | Path], dict[str, str]]:
        """Return the command line of a container on this machine, and its variables."""
        program, *arguments = applied.get("command") or entrypoint()
        arguments += applied.get("args", [])
        known = {"gang-extender": self._extender, "kube-scheduler": self._scheduler}
        path, defaults, environment = known[program](applied)
        local = [self._local(word, applied) for word in arguments]
        as_container: list[str | Path] = [sys.executable, "-IS", OWN_HOSTNAME, self.name]
        command = [*as_container, path, *local, *defaults]
        return command, {**environment, **self._variables(applied)}

    def _container(self, applied: Object) -> Container:
        command, environment = self._process(applied)
        return Container(
            self.name,
            applied,
            self._plane.logs,
            command=command,
            environment=environment,
            ports=self.ports,
        )

    def _variables(self, applied: Object) -> dict[str, str]:
        variables = {each["name"]: self._value(each) for each in applied.get("env", [])}
        for mount in applied.get("volumeMounts", []):
            if mount["mountPath"] == "/tmp":  # noqa: S108 - a path in a container
                variables["TMPDIR"] = str(self._mounted[mount["name"]])
        return variables

    def _value(self, variable: Object) -> str:
        if "value" in variable:
            return str(variable["value"])
        found: Object = self._pod
        for step in variable["valueFrom"]["fieldRef"]["fieldPath"].split("."):
            found = found[step]
        return str(found)

    def _local(self, word: str, applied: Object) -> str:
        for mount in applied.get("volumeMounts", []):
            path = re.escape(mount["mountPath"])
            word = re.sub(rf"(?<![\w/]){path}(?=/|$)", str(self._mounted[mount["name"]]), word)
        return self.ports.moved(word)

    def _extender(self, applied: Object) -> tuple[Path, list[str], dict[str, str]]:
        environment = {"PYTHONPATH": str(REPOSITORY)}
        if any(mount["mountPath"] == CREDENTIALS for mount in applied["volumeMounts"]):
            environment["KUBECONFIG"] = str(self._kubeconfig)
        if "serve" in applied["args"] and not any(
            word.startswith("--listen") for word in applied["args"]
        ):
            environment["GANG_EXTENDER_LISTEN"] = self.ports.moved(HOOKS)
        return Path(sys.executable).with_name("gang-extender"), [], environment

    def _scheduler(self, applied: Object) -> tuple[Path, list[str], dict[str, str]]:
        defaults = [
            f"--secure-port={self.ports[SCHEDULER_PORT]}",
            f"--authentication-kubeconfig={self._kubeconfig}",
            f"--authorization-kubeconfig={self._kubeconfig}",
        ]
        return ensure(SCHEDULER)[SCHEDULER], defaults, {}


def entrypoint() -> list[str]:
    """Return the entrypoint of the image."""
    (words,) = re.findall(
        r"^ENTRYPOINT (.*)$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE
    )
    program: list[str] = json.loads(words)
    return program


def _succeeds(url: str) -> bool:
    try:
        with _open(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _open(url: str) -> Any:
    # As a kubelet does: any certificate is accepted.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    # No proxy of the environment for local addresses.
    http = build_opener(ProxyHandler({}), HTTPSHandler(context=trusting))
    return http.open(url, timeout=2)
