"""Runs a pod as it was applied: its containers as plain processes, in place of a kubelet.

Commands, arguments, files, probes and rights are those that the API server has. Changed is only
what a kubelet and a container runtime would provide and one shared machine cannot:

- a container without a command runs the entrypoint of our Dockerfile;
- a mounted ConfigMap is a folder of ours, and arguments that name its mount path name the folder;
- the pod has a loopback of its own, we do not: each of its ports becomes a free one, the same
  wherever it is named (arguments, files, probes) or was left to its default;
- the credentials of the pod lie at a path that is not ours: a kubeconfig with a real token of the
  pod's service account takes their place, and nothing else is there to log in with.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import yaml

from extender.settings import Settings

from .api import Object
from .binaries import ensure
from .control_plane import SCHEDULER, ControlPlane
from .extender_process import REPOSITORY
from .processes import Program, free_ports
from .users import User, write_kubeconfig

ADDRESS = re.compile(r"\b(127\.0\.0\.1|0\.0\.0\.0):(\d+)\b")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

# A kubelet asks from outside of the pod, where a container that listens on 127.0.0.1 alone is not
# heard. On Linux all of 127/8 is this machine, so another address of it tells the difference.
POD_ADDRESS = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"

# What the programs listen on when neither arguments nor files say it.
SCHEDULER_PORT = 10259
HOOKS = Settings().listen


class Ports(dict[int, int]):
    """Where each port of a pod lies on this machine; chosen when it is first asked for."""

    def __missing__(self, port: int) -> int:
        self[port] = next(p for p in free_ports(len(self) + 1) if p not in self.values())
        return self[port]

    def moved(self, text: str) -> str:
        """The same text with the port of every address in it replaced."""
        return ADDRESS.sub(lambda found: f"{found[1]}:{self[int(found[2])]}", text)


class Container(Program):
    """One container; it is ready when all its probes are green."""

    def __init__(
        self,
        applied: Object,
        logs: Path,
        *,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        ports: Ports,
    ) -> None:
        super().__init__(applied["name"], logs)
        # Unlike other programs of a test it inherits nothing: no settings, no credentials.
        self._environment = dict(environment)
        self._applied = applied
        self._command = command
        self._ports = ports

    def command(self) -> Sequence[str | Path]:
        return self._command

    def probes(self) -> dict[str, bool]:
        """Ask every applied probe; whether each is green, by the address that was asked."""
        probes = [self._applied[kind] for kind in PROBES if kind in self._applied]
        return {url: _is_green(url) for url in (self._url(probe["httpGet"]) for probe in probes)}

    def is_ready(self) -> bool:
        return all(self.probes().values())

    def _url(self, asked: Object) -> str:
        declared = self._applied.get("ports", [])
        by_name = {each["name"]: each["containerPort"] for each in declared if "name" in each}
        port: int = by_name[asked["port"]] if asked["port"] in by_name else asked["port"]
        return f"{asked['scheme'].lower()}://{POD_ADDRESS}:{self._ports[port]}{asked['path']}"


class AppliedPod:
    """A pod that the API server has, running from entering the block to leaving it."""

    def __init__(self, plane: ControlPlane, pod: Object) -> None:
        self._plane = plane
        self._spec = pod["spec"]
        self._namespace: str = pod["metadata"]["namespace"]
        self._account: str = self._spec["serviceAccountName"]
        self._folder: Path = plane.folder / "pods" / pod["metadata"]["name"]
        self._kubeconfig = self._folder / "kubeconfig"
        self._mounted: dict[str, Path] = {}
        self._ports = Ports()
        self.user = f"system:serviceaccount:{self._namespace}:{self._account}"
        self.containers: list[Container] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self._log_in()
        for volume in self._spec["volumes"]:
            if "configMap" in volume:
                self._mounted[volume["name"]] = self._write_files(volume)
        for applied in self._spec["containers"]:
            container = self._container(applied)
            self.containers.append(container)
            # The plane shows its log when a test fails, and ends it if the next does not start.
            self._plane.programs.append(container)
            container.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for container in self.containers:
            container.terminate()

    def _log_in(self) -> None:
        token = self._plane.kubectl("create", "token", self._account, "-n", self._namespace)
        server = self._plane.apiserver
        user = User(self.user, token=token.strip())
        write_kubeconfig(self._kubeconfig, user, server.url, server.certificate)

    def _write_files(self, volume: Object) -> Path:
        name: str = volume["name"]
        folder = self._folder / name
        folder.mkdir()
        applied = self._plane.api.get("configmaps", volume["configMap"]["name"], self._namespace)
        for file, text in applied["data"].items():
            config = yaml.safe_load(self._ports.moved(text))
            if config["kind"] == "KubeSchedulerConfiguration":
                config["clientConnection"]["kubeconfig"] = str(self._kubeconfig)
            (folder / file).write_text(yaml.safe_dump(config, sort_keys=False))
        return folder

    def _container(self, applied: Object) -> Container:
        program, *arguments = applied.get("command") or entrypoint()
        arguments += applied.get("args", [])
        known = {"gang-extender": self._extender, "kube-scheduler": self._scheduler}
        path, left_to_default, environment = known[program]()
        applied_variables = {each["name"]: each["value"] for each in applied.get("env", [])}
        return Container(
            applied,
            self._plane.logs,
            command=[path, *(self._here(word, applied) for word in arguments), *left_to_default],
            environment={**environment, **applied_variables},
            ports=self._ports,
        )

    def _here(self, word: str, applied: Object) -> str:
        for mount in applied.get("volumeMounts", []):
            if folder := self._mounted.get(mount["name"]):
                word = word.replace(mount["mountPath"], str(folder))
        return self._ports.moved(word)

    def _extender(self) -> tuple[Path, list[str], dict[str, str]]:
        environment = {
            "PYTHONPATH": str(REPOSITORY),
            "KUBECONFIG": str(self._kubeconfig),
            "GANG_EXTENDER_LISTEN": self._ports.moved(HOOKS),
        }
        return Path(sys.executable).with_name("gang-extender"), [], environment

    def _scheduler(self) -> tuple[Path, list[str], dict[str, str]]:
        left_to_default = [
            f"--secure-port={self._ports[SCHEDULER_PORT]}",
            f"--authentication-kubeconfig={self._kubeconfig}",
            f"--authorization-kubeconfig={self._kubeconfig}",
        ]
        return ensure(SCHEDULER)[SCHEDULER], left_to_default, {}


def entrypoint() -> list[str]:
    """What our image runs."""
    (words,) = re.findall(
        r"^ENTRYPOINT (.*)$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE
    )
    program: list[str] = json.loads(words)
    return program


def _is_green(url: str) -> bool:
    # As a kubelet does: whoever signed the certificate is good enough.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    # A proxy of the environment is for the internet.
    http = build_opener(ProxyHandler({}), HTTPSHandler(context=trusting))
    try:
        with http.open(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
