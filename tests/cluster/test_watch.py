"""The watch against the real API server: the cache agrees with it after any disturbance.

Connections are cut, the API server is killed and frozen, and objects are invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec
import pytest

from extender.cache.cluster import Cluster
from extender.clock import SystemClock
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.decode.resources import resources
from extender.kube.list_watch import Signal
from extender.kube.reflector import LIMITS, WatchLimits
from extender.kube.watch import Watch
from extender.model.gang import GangKey
from tests import objects
from tests.unit.cache.test_convergence import as_figures

from .api import Api, ApiError
from .control_plane import ControlPlane
from .replicas import ServerLink
from .waiting import wait_for

SCHEDULERS = frozenset({"gang-scheduler"})
GROUPS = objects.POD_GROUPS
BURST = 1_000
NOW = 1_000_000.0
#: A little more than the documented limits: the machine may be busy.
NOTICED_S = 20.0
RECOVERED_S = 15.0


class WatchedCache:
    """A cache that watches through a link, and a comparison with the API server."""

    def __init__(self, plane: ControlPlane, link: ServerLink, **rest: Any) -> None:
        self._api = plane.api
        found = ApiClient.load(str(plane.kubeconfig("extender")))
        endpoint = ApiServer(
            host=found.host,
            port=link.port,
            tls=found.tls,
            server_name=found.server_name,
            token=found.authorization,
        )
        access = ApiClient(endpoint)
        self.cluster = Cluster(SystemClock())
        self.watches = Watch(access, self.cluster, SystemClock(), SCHEDULERS, **rest)

    def is_ready(self) -> bool:
        return not self.cluster.why_not_ready()

    def agrees(self) -> bool:
        """Compare with a new cache that was filled by one list of everything."""
        return as_figures(self.cluster.snapshot(NOW)) == as_figures(self.fresh().snapshot(NOW))

    def fresh(self) -> Cluster:
        made = Cluster(SystemClock())
        made.require_namespaces()
        for resource in resources(SCHEDULERS):
            path = resource.path.split("/")
            group = "/".join(path[2:-1])
            name = path[-1] if path[1] == "api" else f"{path[-1]}.{group}"
            decoder = resource.decoder
            items = [decoder.item(msgspec.json.encode(each)) for each in self._listing(name)]
            made.replace(decoder.kind, filter(None, items), decoder.dialect)
        return made

    def _listing(self, name: str) -> list[Any]:
        try:
            return self._api.listing(name)["items"]
        except ApiError as error:
            if error.status == 404:
                return []
            raise


@contextmanager
def watching(
    plane: ControlPlane, silence_s: float = LIMITS.silence_s, **rest: Any
) -> Iterator[tuple[WatchedCache, ServerLink]]:
    with ExitStack() as running:
        link = running.enter_context(ServerLink(plane.apiserver.ports[0]))
        limits = WatchLimits(absent_s=0.2, silence_s=silence_s)
        watched = WatchedCache(plane, link, limits=limits, **rest)
        watched.watches.start()
        running.callback(watched.watches.stop)
        wait_for(watched.is_ready, 30, "the cache is ready", seeing=watched.cluster.why_not_ready)
        yield watched, link


@pytest.fixture(autouse=True, scope="module")
def cluster(lab: ControlPlane) -> None:
    lab.api.create(objects.namespace("a"), objects.namespace("b"))
    lab.api.create(*(objects.node(f"n{number}") for number in range(3)))


@pytest.fixture(autouse=True)
def _tidy(lab: ControlPlane) -> Iterator[None]:
    yield
    for namespace in ("a", "b"):
        lab.api.delete_all("pods", namespace, grace_seconds=0)
        with suppress(ApiError):
            lab.api.delete_all(GROUPS, namespace)


def change_objects(api: Api, prefix: str, namespace: str = "a") -> None:
    """Create and delete objects of all kinds: gangs, foreign pods, deleted pods."""
    api.create(objects.pod_group(prefix, namespace, 2))
    api.create(*objects.pods(3, prefix, namespace, gang=prefix))
    api.create(objects.pod(f"{prefix}-other", namespace, scheduler="else", nodeName="n1"))
    api.create(objects.pod(f"{prefix}-placed", namespace, gang=prefix, nodeName="n2"))
    api.delete("pods", f"{prefix}-0", namespace, grace_seconds=0)


def agree(watched: WatchedCache) -> None:
    wait_for(watched.agrees, 60, "the cache agrees with a new list", every_s=0.2)


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "pages"])
def test_cache_agrees_with_a_new_list(lab: ControlPlane, streaming: bool) -> None:
    change_objects(lab.api, "before")
    with watching(lab, streaming=streaming) as (watched, _):
        assert watched.agrees()

        change_objects(lab.api, "after")
        agree(watched)

        assert GangKey("a/after") in watched.cluster.snapshot(NOW).gangs


def test_compacted_history_leads_to_a_new_list(
    lab: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "extender.kube.reflector")
    change_objects(lab.api, "old")
    with watching(lab) as (watched, link):
        link.cut()
        lab.api.delete_all("pods", "a", grace_seconds=0)
        change_objects(lab.api, "new")
        lab.etcd.compact()
        # Its watch cache is empty after the restart, so it must refuse the old version.
        lab.apiserver.restart()
        link.restore()
        agree(watched)

    assert Signal.EXPIRED.value in caplog.text


def test_watch_continues_after_a_crash_of_the_api_server(lab: ControlPlane) -> None:
    change_objects(lab.api, "old")
    with watching(lab) as (watched, _):
        lab.apiserver.kill()
        lab.apiserver.start()
        change_objects(lab.api, "new")
        agree(watched)
        wait_for(watched.is_ready, 30, "the cache is ready")


def test_silent_connection_is_noticed_and_replaced(lab: ControlPlane) -> None:
    with watching(lab, silence_s=1.0) as (watched, link):
        link.silence()
        change_objects(lab.api, "silent")
        agree(watched)


def test_burst_of_deleted_pods_leaves_nothing_in_the_cache(lab: ControlPlane) -> None:
    with watching(lab) as (watched, link):
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(
                lambda number: lab.api.create(objects.pod(f"burst-{number}", "b")), range(BURST)
            ):
                pass
        link.cut()
        link.restore()
        agree(watched)

        assert len(watched.cluster.snapshot(NOW).gangs) >= BURST

        lab.api.delete_all("pods", "b", grace_seconds=0)
        agree(watched)

        assert not [key for key in watched.cluster.snapshot(NOW).gangs if key.startswith("b/")]


def test_crd_may_be_installed_and_deleted_while_running(
    lab: ControlPlane, crd: Callable[[str], None]
) -> None:
    key = GangKey("a/late")
    with watching(lab) as (watched, _):
        lab.api.create(*objects.pods(2, "late", "a", gang="late"))
        wait_for(lambda: watched.cluster.members(key) == 2, 30, "the pods are known")

        assert watched.cluster.group(key) is None

        crd("scheduling.x-k8s.io")
        lab.api.create(coscheduling_group("late", 2))
        wait_for(lambda: watched.cluster.group(key), 30, "the group is known")
        agree(watched)

        lab.api.delete(CRDS, "podgroups.scheduling.x-k8s.io")
        wait_for(lambda: watched.cluster.group(key) is None, 30, "the group is gone")
        agree(watched)
        wait_for(watched.is_ready, 30, "the cache is ready")


def test_invalid_object_does_not_stop_the_watch(
    lab: ControlPlane, crd: Callable[[str], None]
) -> None:
    crd("scheduling.x-k8s.io")
    with watching(lab) as (watched, _):
        lab.api.create(coscheduling_group("odd", "three"))
        lab.api.create(coscheduling_group("fine", 2))
        fine = wait_for(lambda: watched.cluster.group(GangKey("a/fine")), 30, "the other is known")
        odd = watched.cluster.group(GangKey("a/odd"))

        assert fine.problem == ""
        assert odd is not None
        assert "spec.minMember expected int" in odd.problem
        agree(watched)


CRDS = "customresourcedefinitions.apiextensions.k8s.io/v1"


def coscheduling_group(name: str, min_member: object) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"minMember": min_member},
    }


@pytest.fixture
def crd(lab: ControlPlane) -> Iterator[Callable[[str], None]]:
    """Install a PodGroup CRD of a dialect, without validation."""
    made: list[str] = []

    def install(group: str) -> None:
        name = f"podgroups.{group}"
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        lab.api.create(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": name,
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
                },
                "spec": {
                    "group": group,
                    "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
                    "scope": "Namespaced",
                    "versions": [version],
                },
            }
        )
        made.append(name)
        wait_for(lambda: lab.api.listing(f"podgroups.{group}/v1alpha1"), 30, f"{name} is served")

    yield install
    for name in made:
        lab.api.delete(CRDS, name)
        wait_for(lambda name=name: lab.api.find(CRDS, name) is None, 30, f"{name} is gone")


def test_stalled_api_server_makes_the_extender_unready_until_it_answers(
    lab: ControlPlane,
) -> None:
    with lab.extender() as extender:
        for _ in range(2):
            with lab.apiserver.stalled():
                wait_for(
                    lambda: "API server: no answer for " in extender.get("/readyz")[1],
                    NOTICED_S,
                    "the extender is not ready",
                    every_s=0.2,
                )
                assert extender.get("/readyz")[0] == 503
            wait_for(lambda: extender.get("/readyz")[0] == 200, RECOVERED_S, "it is ready again")
