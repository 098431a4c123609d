"""What the Dockerfile makes, made and served here: as an ordinary user, on a tree nobody writes to.

The steps are those of the Dockerfile (`building.py`), the command is its ENTRYPOINT and CMD, and
the cluster is an API server of the tests. Root serves as the user of the image; whoever may not
choose another user serves as himself, and the test says so.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3

from tests.bench.bench_hooks import write_kubeconfig
from tests.cluster.ports import free_ports
from tests.kube import json_objects as make
from tests.kube.watched_api import GROUPS, QUEUES, WatchedApi
from tests.web.conftest import JSON

from .building import MINOR, Build
from .dockerfile import ROOT
from .test_dockerfile import written_to

USER = 10001
#: Those of the call.
NODES = ("node-0", "node-1")
EPOCH = "1700000000"
STARTS_WITHIN_S = 120
#: Nobody sets it: between two questions the other process gets the machine.
PAUSE = threading.Event()
SPY = Path(__file__).with_name("spy")


@pytest.fixture(scope="module")
def built() -> Iterator[Build]:
    # Not pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        build = Build(folder)
        build.run(SOURCE_DATE_EPOCH=EPOCH)
        write_protect(build.root)
        yield build
        write_protect(build.root, but_the_owner=True)


def write_protect(tree: Path, *, but_the_owner: bool = False) -> None:
    """Let all read and nobody write, as on a file system that is mounted read-only."""
    for folder, _, files in os.walk(tree):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            if not os.path.islink(path):
                mode = stat.S_IMODE(os.stat(path).st_mode) & ~0o222 | 0o444
                mode |= 0o111 if os.path.isdir(path) else 0
                os.chmod(path, mode | 0o200 if but_the_owner else mode)


def look_of(tree: Path) -> dict[str, tuple[int, int]]:
    """Give every file below *tree* with its size and when it was written."""
    files = (path for path in tree.rglob("*") if not path.is_symlink())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@dataclass(frozen=True, slots=True)
class Served:
    """The container's process, while it runs."""

    process: subprocess.Popen[str]
    hooks: str
    operations: str
    told: Path

    def written(self) -> set[str]:
        """Whatever it opened to write, made or removed, by path."""
        return set(self.told.read_text().splitlines())

    def log(self) -> str:
        return self.told.with_name("log").read_text()


@pytest.fixture(scope="module")
def served(built: Build) -> Iterator[Served]:
    with serving(built) as it:
        yield it


@contextmanager
def serving(built: Build) -> Iterator[Served]:
    hooks, operations = (f"127.0.0.1:{port}" for port in free_ports(2))
    with tempfile.TemporaryDirectory(prefix="served-") as place, WatchedApi() as api:
        api.installed |= {GROUPS, QUEUES, "/api/v1/resourcequotas"}
        api.put("/api/v1/namespaces", {"metadata": {"name": "wire"}})
        for name in NODES:
            api.put("/api/v1/nodes", make.node(name))
        folder = Path(place)
        folder.chmod(0o755)
        kubeconfig = write_kubeconfig(folder, api.port)
        kubeconfig.chmod(0o444)
        told = folder / "written"
        with told.open("a") as telling, (folder / "log").open("w") as log:
            process = subprocess.Popen(
                built.command,
                cwd="/",
                env={
                    **built.environment,
                    "KUBECONFIG": str(kubeconfig),
                    "GANG_EXTENDER_LISTEN": hooks,
                    "GANG_EXTENDER_OPS_LISTEN": operations,
                    "PYTHONPATH": str(spy(folder)),
                    "SPY_TELLS": str(telling.fileno()),
                },
                pass_fds=[telling.fileno()],
                stdout=log,
                stderr=log,
                text=True,
                **as_whom(),
            )
        with process:
            try:
                yield Served(process, f"http://{hooks}", f"http://{operations}", told)
            finally:
                process.kill()


def spy(folder: Path) -> Path:
    """Put the spy where the served user may read it."""
    copied = folder / "spy"
    copied.mkdir()
    (copied / "sitecustomize.py").write_text((SPY / "sitecustomize.py").read_text())
    return copied


def as_whom() -> dict[str, object]:
    if os.geteuid() == 0:
        return {"user": USER, "group": USER, "extra_groups": []}
    return {}


def ask(served: Served, url: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
    """Ask until there is an answer; it may still be starting."""
    give_up = time.monotonic() + STARTS_WITHIN_S
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        while True:
            assert served.process.poll() is None, served.log()
            try:
                answer = http.request(
                    "POST" if body else "GET", url, body=body, headers=JSON if body else {}
                )
                if answer.status == 200:
                    return answer
            except urllib3.exceptions.HTTPError:
                pass
            assert time.monotonic() < give_up, served.log()
            PAUSE.wait(0.1)


def test_it_is_healthy_and_ready(served: Served) -> None:
    assert ask(served, f"{served.operations}/healthz").status == 200
    assert ask(served, f"{served.operations}/readyz").status == 200


def test_it_runs_as_the_user_of_the_image(
    served: Served, built: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = os.stat(f"/proc/{served.process.pid}").st_uid

    assert built.final.last("USER").body == f"{USER}:{USER}"
    if os.geteuid() == 0:
        assert uid == USER
    else:
        assert uid == os.geteuid() != 0
        with capsys.disabled():
            print(f" [served as user {uid}: only root may choose {USER}]", end="")


def test_it_answers_a_hook(served: Served) -> None:
    ask(served, f"{served.operations}/readyz")
    call = (ROOT / "tests" / "wire" / "filter-ordinary.call.json").read_bytes()

    answer = json.loads(ask(served, f"{served.hooks}/filter", call).data)

    refused = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    assert (answer["Error"], refused) == ("", {})
    assert answer["NodeNames"] == list(NODES)


def test_it_writes_nothing_but_where_the_manifests_mount_something(
    served: Served, built: Build
) -> None:
    before = look_of(built.root)
    ask(served, f"{served.operations}/readyz")
    ask(served, f"{served.operations}/metrics")

    allowed = (*(f"{mount}/" for mount in written_to()), "/dev/")
    assert served.written(), "gunicorn's heartbeat is a file"
    assert [path for path in served.written() if not path.startswith(allowed)] == []
    assert look_of(built.root) == before


def test_it_prints_the_version_of_the_project(built: Build) -> None:
    program, *_ = built.command
    said = subprocess.run(
        [program, "--version"], env=built.environment, capture_output=True, text=True, check=True
    ).stdout

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert said == f"gang-extender, version {version}\n"


def test_its_modules_are_compiled_for_a_tree_that_nobody_writes_to(built: Build) -> None:
    package = built.root / "opt/gang-extender/lib" / MINOR / "site-packages" / "extender"
    tag = sys.implementation.cache_tag

    modules = list(package.rglob("*.py"))
    missing = [
        each
        for each in modules
        if not (each.parent / f"__pycache__/{each.stem}.{tag}.pyc").exists()
    ]
    assert modules
    assert missing == []


def test_it_ends_in_order_when_it_is_told_to(built: Build) -> None:
    with serving(built) as served:
        ask(served, f"{served.operations}/healthz")
        served.process.send_signal(signal.SIGTERM)

        assert served.process.wait(60) == 0
