"""Fixtures: one control plane for the test session, and a namespace of it for every test.

A plugin for the tests in this folder and in `tests/nightly`; their conftest.py imports it.

| fixture | scope | gives |
|---|---|---|
| `plane` | session | the shared `ControlPlane`, with CRDs and RBAC |
| `api` | session | its client as the administrator |
| `gang_scheduler` | session | its extender and kube-scheduler |
| `controllers` | test | its kube-controller-manager |
| `namespace` | test | the name of a fresh namespace |
| `tenant` | test | `tenant("a", annotations)`: the name of another one, with a policy |
| `nodes` | test | `nodes(3, cpu="4")`: nodes for this test, with a selector for its pods |
| `create` | test | `create(object, …)`: like `api.create`, deleted afterwards |
| `lab` | module | a control plane for one module, without kwok and audit log |
| `new_plane` | test | `new_plane(audit=True)`: a control plane for one test |
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import objects

from .api import Api, ApiError, Object, resource_of
from .binaries import require
from .components import ControllerManager
from .control_plane import API_SERVER, SCHEDULER, ControlPlane
from .steal_time import DISTURBED, steal_time
from .train_gang import POOL, GangScheduler, Pool

HERE = Path(__file__).parent
NIGHTLY = HERE.parent / "nightly"
LIMIT_S, NIGHTLY_LIMIT_S = 180, 900
#: Tests that time real programs. They run again, once, if the host took more than a tenth of all
#: processors. The rules of `nightly/judges` consider time themselves.
TIMED = (HERE, NIGHTLY / "cluster", NIGHTLY / "browser")
LEFTOVERS = ("jobs.batch/v1", objects.POD_GROUPS, "poddisruptionbudgets.policy/v1", "pods")

_TAKEN = "taken by the host"
_begins = pytest.StashKey[tuple[int, int]]()
_log_starts = pytest.StashKey[dict[Path, int]]()


@pytest.fixture(scope="session")
def control_plane_binaries() -> None:
    require("etcd", API_SERVER, "kwok", "kubectl", SCHEDULER)


@pytest.fixture(scope="session")
def plane(
    control_plane_binaries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as shared:
        shared.install()
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
def controllers_binary() -> None:
    require("kube-controller-manager")


@pytest.fixture(scope="session")
def volcano_binary() -> None:
    require("controller-manager")


@pytest.fixture
def controllers(plane: ControlPlane, controllers_binary: None) -> Iterator[ControllerManager]:
    # For one test only: it overwrites the status of budgets that other tests write.
    with plane.controllers() as manager:
        yield manager


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    name = _unique_name(request)
    api.create(objects.namespace(name))
    yield name
    _delete_namespace(api, name)


@pytest.fixture
def tenant(api: Api, namespace: str) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(name: str, annotations: dict[str, str] | None = None) -> str:
        made.append(f"{name}-{namespace}")
        api.create(objects.namespace(made[-1], annotations))
        return made[-1]

    yield make
    for name in made:
        _delete_namespace(api, name)


def _delete_namespace(api: Api, namespace: str) -> None:
    for resource in LEFTOVERS:
        api.delete_all(resource, namespace, grace_seconds=0)
    api.delete("namespaces", namespace)
    # Only kube-controller-manager finalizes namespaces; if it runs, the namespace may be gone.
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

    def make(count: int = 1, *, labels: dict[str, str] | None = None, **capacity: Any) -> Pool:
        names = [f"{pool}-{len(made) + index}" for index in range(count)]
        made.extend(names)
        api.create(
            *(
                objects.node(name, labels={**(labels or {}), **selector}, **capacity)
                for name in names
            )
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


@pytest.fixture(scope="module")
def lab(
    control_plane_binaries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("lab"), kwok=False, audit=False) as plane:
        plane.install()
        yield plane


@pytest.fixture
def new_plane(
    control_plane_binaries: None, tmp_path: Path
) -> Iterator[Callable[..., ControlPlane]]:
    with ExitStack() as running:

        def make(**options: Any) -> ControlPlane:
            folder = tmp_path / f"plane-{secrets.token_hex(2)}"
            plane = running.enter_context(ControlPlane(folder, **options))
            plane.install()
            return plane

        yield make


def _unique_name(request: pytest.FixtureRequest) -> str:
    """Return a name after the test, so that logs show which test owns a pod."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))
    return f"{words[:40].strip('-')}-{secrets.token_hex(3)}"


#: A killed API server resets connections that it just accepted. If that happens before the
#: handshake, SSLContext.wrap_socket raises without closing its socket (SSLSocket._create of
#: CPython), and only the garbage collector can close it.
_UNCLOSED = "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_nightly = item.path.is_relative_to(NIGHTLY)
        if not is_nightly and not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(NIGHTLY_LIMIT_S if is_nightly else LIMIT_S))
        item.add_marker(pytest.mark.filterwarnings(_UNCLOSED))
        if any(map(item.path.is_relative_to, TIMED)):
            disturbed = partial(_is_disturbed, item)
            item.add_marker(pytest.mark.flaky(reruns=1, condition=disturbed))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_begins] = steal_time()
    logs = [program.log_file for plane in ControlPlane.started for program in plane.programs]
    item.stash[_log_starts] = {log: log.stat().st_size for log in logs if log.exists()}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.user_properties.append((_TAKEN, f"{_taken(item):.0%}"))
        for plane in ControlPlane.started:
            report.sections += _logs_of_this_test(plane, item.stash[_log_starts])
    return report


def _taken(item: pytest.Item) -> float:
    """Return the share of all processors that the host took since the test began."""
    (stolen, passed), (stolen_now, passed_now) = item.stash[_begins], steal_time()
    return (stolen_now - stolen) / max(1, passed_now - passed)


def _is_disturbed(item: pytest.Item) -> bool:
    return _taken(item) > DISTURBED


def _logs_of_this_test(plane: ControlPlane, starts: dict[Path, int]) -> Iterator[tuple[str, str]]:
    for program in plane.programs:
        lines = program.log(starts.get(program.log_file, 0)).splitlines()
        if lines:
            yield f"{program.name}, whole log in {program.log_file}", "\n".join(lines[-25:])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = terminalreporter.stats.get("rerun", [])
    if again:
        terminalreporter.section("run again: the host took the processors", yellow=True)
    for report in again:
        taken = dict(report.user_properties)[_TAKEN]
        terminalreporter.line(f"{taken} taken: {report.nodeid}")
