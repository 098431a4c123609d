"""A cluster that doctor looks at, and how one sets traps on it for as long as a block lasts."""

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
NOBODY = "http://127.0.0.1:1"


@dataclass
class Patient:
    """An installation, and how its administrator asks doctor about it."""

    made: Installation
    deployment: str
    #: Flags beside those that say where the cluster and its extender are.
    flags: list[str] = field(default_factory=list)
    #: Run by Python before the command.
    before: str = ""
    ops_url: str = ""

    @property
    def plane(self) -> ControlPlane:
        return self.made.plane

    def ask(self) -> tuple[int, Object]:
        """The exit code, and the answer as a program reads it."""
        url = self.ops_url or self._leader()
        words = ["doctor", "-o", "json", f"--ops-url={url}", *self.flags]
        words.append(f"--kubeconfig={self.plane.kubeconfig()}")
        if self.before:
            return typed(*words, before=self.before)
        # Without a process of its own: it is asked a hundred times.
        ran = CliRunner().invoke(main, words)
        assert not ran.stderr, ran.stderr
        return ran.exit_code, json.loads(ran.stdout)

    def _leader(self) -> str:
        leader, _ = self.made.leader_and_standby()
        return leader.container("extender").url({"port": "ops", "path": ""})

    def names(self) -> list[str]:
        _, told = self.ask()
        return [each["name"] for each in told["found"]]

    def is_well(self) -> bool:
        code, told = self.ask()
        return (code, told["found"], told["not_checked"]) == (0, [], [])

    def object(self, resource: str, name: str, namespace: str | None = None) -> Object:
        return self.plane.api.get(resource, name, namespace)


def typed(*words: str, before: str = "") -> tuple[int, Object]:
    """The same as a process, with something for Python to do before it."""
    program = f"{before}from extender.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert not ran.stderr, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


Set: TypeAlias = Callable[[Patient], AbstractContextManager[object]]


@contextmanager
def changed(
    patient: Patient,
    resource: str,
    name: str,
    change: Callable[[Object], object],
    namespace: str | None = None,
) -> Iterator[None]:
    """Change one object, and put it back as it was."""

    def put(edit: Callable[[Object], object]) -> None:
        def once() -> bool:
            # Its status is written by others meanwhile.
            current = patient.object(resource, name, namespace)
            edit(current)
            # As kubectl would not: it notes what it replaced as applied, and so spoils `apply`.
            patient.plane.api.replace(current)
            return True

        wait_for(once, 30, f"{resource} {name} is changed")

    before = copy.deepcopy(patient.object(resource, name, namespace))

    def back(current: Object) -> None:
        for part in set(before) | set(current):
            if part not in ("metadata", "status"):
                current[part] = before.get(part)
        current["metadata"]["labels"] = before["metadata"].get("labels")

    put(change)
    try:
        yield
    finally:
        put(back)


def deployed(change: Callable[[Object], object]) -> Set:
    """Edit the Deployment, whose rollout is paused: pods stay as they are."""

    @contextmanager
    def setting(patient: Patient) -> Iterator[None]:
        def edit(found: Object) -> None:
            found["spec"]["paused"] = True
            change(found)

        with changed(patient, DEPLOYMENTS, patient.deployment, edit, EXTENDER_NAMESPACE):
            yield

    return setting


def pod_of(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"]["spec"]
    return found


def arguments(*words: str, without: tuple[str, ...] = ()) -> Set:
    """Give the extender other arguments."""

    def change(found: Object) -> None:
        (container,) = (c for c in pod_of(found)["containers"] if c["name"] == "extender")
        kept = (
            [word for word in container["args"] if not word.startswith(without)]
            if without
            else (container["args"])
        )
        container["args"] = [*kept, *words]

    return deployed(change)


def resource(kind: str, name: str, change: Callable[[Object], object], namespace: str = "") -> Set:
    """Edit any other object."""

    @contextmanager
    def setting(patient: Patient) -> Iterator[None]:
        with changed(patient, kind, name, change, namespace or None):
            yield

    return setting


@contextmanager
def as_asked(patient: Patient, **changes: Any) -> Iterator[None]:
    """Ask doctor in another way."""
    before = {name: getattr(patient, name) for name in changes}
    for name, value in changes.items():
        setattr(patient, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(patient, name, value)


def is_named(patient: Patient, name: str, setting: Set) -> None:
    expected = 0 if name in HINTS else 1

    def answered() -> bool:
        code, told = patient.ask()
        assert name in [each["name"] for each in told["found"]], told
        # Some cannot be set without another.
        return code == expected or (code == 1 and name in HINTS)

    with setting(patient):
        wait_for(answered, 60, f"{name} is named", every_s=1)
    wait_for(patient.is_well, 120, "all is as it was", seeing=patient.ask, every_s=1)
