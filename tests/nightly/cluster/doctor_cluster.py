"""A cluster for tests of doctor, and misconfigurations of it for the length of a block."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from click.testing import CliRunner

from extender.cli.main import main
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .installation import Installation

CONFIG_FILE = "scheduler-config.yaml"
DEPLOYMENTS = "deployments.apps/v1"
HINTS = {
    "IgnorableFilter", "PrioritizeNotCalled", "CRDOutdated", "NoAdmissionPolicies",
    "ClockSkewHere",
}  # fmt: skip
NO_SERVER = "http://127.0.0.1:1"


@dataclass
class DoctorCluster:
    """An installation, and the options of doctor for it."""

    made: Installation
    deployment: str
    #: Flags besides --kubeconfig and --ops-url.
    flags: list[str] = field(default_factory=list)
    #: Python code to run before the command.
    before: str = ""
    ops_url: str = ""

    @property
    def plane(self) -> ControlPlane:
        return self.made.plane

    def run(self) -> tuple[int, Object]:
        """Run doctor; return the exit code and the JSON."""
        url = self.ops_url or self._leader()
        words = ["doctor", "-o", "json", f"--ops-url={url}", *self.flags]
        words.append(f"--kubeconfig={self.plane.kubeconfig()}")
        if self.before:
            return run_command(*words, before=self.before)
        # In this process: it runs a hundred times.
        ran = CliRunner().invoke(main, words)
        assert not ran.stderr, ran.stderr
        return ran.exit_code, json.loads(ran.stdout)

    def _leader(self) -> str:
        leader, _ = self.made.leader_and_standby()
        return leader.container("extender").url({"port": "ops", "path": ""})

    def names(self) -> list[str]:
        _, document = self.run()
        return [each["name"] for each in document["found"]]

    def is_healthy(self) -> bool:
        code, document = self.run()
        return (code, document["found"], document["not_checked"]) == (0, [], [])

    def object(self, resource: str, name: str, namespace: str | None = None) -> Object:
        return self.plane.api.get(resource, name, namespace)


def run_command(*words: str, before: str = "") -> tuple[int, Object]:
    """Run a command as a process, after the Python code *before*."""
    program = f"{before}from extender.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert not ran.stderr, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


Setting: TypeAlias = Callable[[DoctorCluster], AbstractContextManager[object]]


@contextmanager
def changed(
    patient: DoctorCluster,
    resource: str,
    name: str,
    change: Callable[[Object], object],
    namespace: str | None = None,
) -> Iterator[None]:
    """Change one object, and restore it after the block."""

    def put(edit: Callable[[Object], object]) -> None:
        def once() -> bool:
            # Controllers write its status meanwhile.
            current = patient.object(resource, name, namespace)
            edit(current)
            # Not by kubectl, which would change the last-applied annotation.
            patient.plane.api.replace(current)
            return True

        wait_for(once, 30, f"{resource} {name} is changed")

    before = copy.deepcopy(patient.object(resource, name, namespace))

    def restore(current: Object) -> None:
        for part in set(before) | set(current):
            if part not in ("metadata", "status"):
                current[part] = before.get(part)
        current["metadata"]["labels"] = before["metadata"].get("labels")

    put(change)
    try:
        yield
    finally:
        put(restore)


def deployed(change: Callable[[Object], object]) -> Setting:
    """Edit the Deployment with its rollout paused: pods stay as they are."""

    @contextmanager
    def setting(patient: DoctorCluster) -> Iterator[None]:
        def edit(found: Object) -> None:
            found["spec"]["paused"] = True
            change(found)

        with changed(patient, DEPLOYMENTS, patient.deployment, edit, EXTENDER_NAMESPACE):
            yield

    return setting


def pod_of(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"]["spec"]
    return found


def arguments(*words: str, without: tuple[str, ...] = ()) -> Setting:
    """Change the arguments of the extender."""

    def change(found: Object) -> None:
        (container,) = (c for c in pod_of(found)["containers"] if c["name"] == "extender")
        kept = (
            [word for word in container["args"] if not word.startswith(without)]
            if without
            else (container["args"])
        )
        container["args"] = [*kept, *words]

    return deployed(change)


def resource(
    kind: str, name: str, change: Callable[[Object], object], namespace: str = ""
) -> Setting:
    """Edit another object."""

    @contextmanager
    def setting(patient: DoctorCluster) -> Iterator[None]:
        with changed(patient, kind, name, change, namespace or None):
            yield

    return setting


@contextmanager
def with_options(patient: DoctorCluster, **changes: Any) -> Iterator[None]:
    """Run doctor with other options during the block."""
    before = {name: getattr(patient, name) for name in changes}
    for name, value in changes.items():
        setattr(patient, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(patient, name, value)


def assert_named(patient: DoctorCluster, name: str, setting: Setting) -> None:
    expected = 0 if name in HINTS else 1

    def answered() -> bool:
        code, document = patient.run()
        assert name in [each["name"] for each in document["found"]], document
        # Some hints come with a problem.
        return code == expected or (code == 1 and name in HINTS)

    with setting(patient):
        wait_for(answered, 60, f"{name} is named", every_s=1)
    wait_for(patient.is_healthy, 120, "all problems are gone", seeing=patient.run, every_s=1)
