"""One control plane for the whole test session, and a clean corner of it for every test.

| fixture | scope | gives |
|---|---|---|
| `plane` | session | the shared `ControlPlane`, our CRDs and RBAC installed |
| `api` | session | the administrator's client of it |
| `gang_scheduler` | session | extender and kube-scheduler running on it |
| `controllers` | test | kube-controller-manager running on it |
| `namespace` | test | the name of a fresh namespace |
| `tenant` | test | `tenant("a", annotations)`: the name of a further one, with a policy on it |
| `nodes` | test | `nodes(3, cpu="4")`: nodes of the test's own, with the selector for its pods |
| `create` | test | `create(object, …)`: like `api.create`, deleted afterwards |
| `new_plane` | test | `new_plane(audit=True)`: a control plane to break |
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import objects
from .api import Api, ApiError, Object, resource_of
from .binaries import ControlPlaneUnavailable, ensure
from .components import ControllerManager, Scheduler
from .control_plane import API_SERVER, SCHEDULER, ControlPlane
from .extender_process import Extender

HERE = Path(__file__).parent
NO_PLANE = "no control plane: "
POOL = "gang-extender.test/pool"
LEFT_BEHIND = ("jobs.batch/v1", objects.POD_GROUPS, "poddisruptionbudgets.policy/v1", "pods")

planes = pytest.StashKey[list[ControlPlane]]()
log_starts = pytest.StashKey[dict[Path, int]]()


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """The pair under test."""

    extender: Extender
    scheduler: Scheduler


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one test; *selector* keeps its pods on them."""

    names: list[str]
    selector: dict[str, str]


@pytest.fixture(scope="session")
def control_plane_binaries(request: pytest.FixtureRequest) -> None:
    _ensure(request.config, "etcd", API_SERVER, "kwok", "kubectl", SCHEDULER)


@pytest.fixture(scope="session")
def plane(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as shared:
        shared.install()
        request.config.stash[planes].append(shared)
        yield shared


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Api:
    return plane.api


@pytest.fixture(scope="session")
def gang_scheduler(plane: ControlPlane) -> Iterator[GangScheduler]:
    with (
        plane.extender() as extender,
        plane.scheduler(plane.scheduler_config(extender)) as scheduler,
    ):
        yield GangScheduler(extender, scheduler)


@pytest.fixture(scope="session")
def controllers_binary(request: pytest.FixtureRequest) -> None:
    _ensure(request.config, "kube-controller-manager")


@pytest.fixture(scope="session")
def volcano_binary(request: pytest.FixtureRequest) -> None:
    _ensure(request.config, "controller-manager")


@pytest.fixture
def controllers(plane: ControlPlane, controllers_binary: None) -> Iterator[ControllerManager]:
    # For one test only: it would overwrite what others write into the status of budgets.
    with plane.controllers() as manager:
        yield manager


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    name = _unique_name(request)
    api.create(objects.namespace(name))
    yield name
    _let_go(api, name)


@pytest.fixture
def tenant(api: Api, namespace: str) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(name: str, annotations: dict[str, str] | None = None) -> str:
        made.append(f"{name}-{namespace}")
        api.create(objects.namespace(made[-1], annotations))
        return made[-1]

    yield make
    for name in made:
        _let_go(api, name)


def _let_go(api: Api, namespace: str) -> None:
    for resource in LEFT_BEHIND:
        api.delete_all(resource, namespace, grace_seconds=0)
    api.delete("namespaces", namespace)
    # Without kube-controller-manager nobody else lets it go; with it, it may be gone already.
    released = {**objects.namespace(namespace), "spec": {"finalizers": []}}
    with suppress(ApiError):
        api.request("PUT", f"/api/v1/namespaces/{namespace}/finalize", released)


@pytest.fixture
def nodes(
    plane: ControlPlane, api: Api, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Pool]]:
    pool = _unique_name(request)
    selector = {POOL: pool}
    made: list[str] = []

    def make(count: int = 1, *, labels: dict[str, str] | None = None, **room: Any) -> Pool:
        names = [f"{pool}-{len(made) + index}" for index in range(count)]
        made.extend(names)
        api.create(
            *(objects.node(name, labels={**(labels or {}), **selector}, **room) for name in names)
        )
        plane.wait_until_nodes_are_ready(names)
        return Pool(names, selector)

    yield make
    api.delete_all("nodes", labels=f"{POOL}={pool}")


@pytest.fixture
def create(api: Api) -> Iterator[Callable[..., list[Object]]]:
    made: list[Object] = []

    def make(*wanted: Object) -> list[Object]:
        created = []
        for thing in wanted:
            created += api.create(thing)
            made.append(thing)
        return created

    yield make
    for thing in reversed(made):
        about = thing["metadata"]
        api.delete(resource_of(thing), about["name"], about.get("namespace"), grace_seconds=0)


@pytest.fixture
def new_plane(
    control_plane_binaries: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., ControlPlane]]:
    with ExitStack() as running:

        def make(**options: Any) -> ControlPlane:
            folder = tmp_path / f"plane-{secrets.token_hex(2)}"
            plane = running.enter_context(ControlPlane(folder, **options))
            request.config.stash[planes].append(plane)
            plane.install()
            return plane

        yield make


def _ensure(config: pytest.Config, *names: str) -> None:
    """Have the binaries; where they cannot be had, that fails in CI and skips elsewhere."""
    capture = config.pluginmanager.getplugin("capturemanager")
    try:
        # A first build takes minutes; whoever waits for it should see that it moves.
        with capture.global_and_fixture_disabled():
            ensure(*names)
    except ControlPlaneUnavailable as why:
        if _in_ci():
            raise
        pytest.skip(f"{NO_PLANE}{why}")


def _unique_name(request: pytest.FixtureRequest) -> str:
    """Named after the test, so that logs tell whose pods they speak of."""
    told = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))
    return f"{told[:40].strip('-')}-{secrets.token_hex(3)}"


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[planes] = []


#: An API server that is killed resets connections it just took. Reset before the handshake,
#: SSLContext.wrap_socket raises and leaves the socket it made unclosed (SSLSocket._create of
#: CPython, where recv tells of the reset): nobody has it, so only the collector can close it.
_LEFT_BEHIND = "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.filterwarnings(_LEFT_BEHIND))


def pytest_runtest_setup(item: pytest.Item) -> None:
    logs = [program.log_file for plane in item.config.stash[planes] for program in plane.programs]
    item.stash[log_starts] = {log: log.stat().st_size for log in logs if log.exists()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.path.is_relative_to(HERE):
        for plane in item.config.stash[planes]:
            report.sections += _logs_of_this_test(plane, item.stash[log_starts])
    return report


def _logs_of_this_test(plane: ControlPlane, starts: dict[Path, int]) -> Iterator[tuple[str, str]]:
    for program in plane.programs:
        lines = program.log(starts.get(program.log_file, 0)).splitlines()
        if lines:
            yield f"{program.name}, whole log in {program.log_file}", "\n".join(lines[-25:])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Iterator[None]:
    yield
    # Told by the reports: with several workers, it was one of them that had no control plane.
    reasons = [
        report.longrepr[2].partition(NO_PLANE)[2]
        for report in terminalreporter.stats.get("skipped", [])
        if NO_PLANE in report.longrepr[2]
    ]
    if reasons:
        terminalreporter.section("cluster tests were not run", yellow=True)
        terminalreporter.line(f"{len(reasons)} tests need a real control plane, and {reasons[0]}")
        terminalreporter.line("Then run: pytest -m cluster")
