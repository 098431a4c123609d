"""Gangs that wait at the barrier, and a kube-scheduler played by hand beside the real one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import urllib3

from tests import objects

from .api import Api, Object
from .components import Scheduler
from .control_plane import ControlPlane
from .extender_process import Extender
from .waiting import wait_for

#: The pods of a test's own pair; `gang-scheduler` belongs to the shared one.
SCHEDULER = "race-scheduler"
#: Its flags: a gang of which a member is missing is held as long as a test needs it.
OURS = (f"--scheduler-name={SCHEDULER}", "--arrival-grace-s=60")


POOL = "gang-extender.test/pool"


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


@dataclass(frozen=True, slots=True)
class Stage:
    """One gang `train` in one namespace, before the barrier of one extender."""

    api: Api
    pair: GangScheduler
    namespace: str
    pool: Pool

    @property
    def extender(self) -> Extender:
        return self.pair.extender

    def hold(self, count: int, minimum: int) -> None:
        """Make a gang that needs *minimum* members, and bring *count* of them to the barrier.

        A member is only let in early if the extender has heard of its PodGroup and its nodes by
        then; where it has not, the members are made anew, and it has.
        """
        # Those of the test before may still be on their way out, and would count as ours.
        self.wait_until_held(0)
        self.api.create(objects.pod_group("train", self.namespace, minimum))
        for _ in range(9):
            self.add(*range(count))
            with suppress(AssertionError):
                self.wait_until_held(count, seconds=3)
                return
            for index in range(count):
                self.delete(index)
            self.wait_until_held(0)
        self.add(*range(count))
        self.wait_until_held(count)

    def add(self, *indexes: int, **pod: Any) -> None:
        """Create members of the gang."""
        self.api.create(*(self.member(index, **pod) for index in indexes))

    def member(self, index: int, **pod: Any) -> Object:
        facts = {"scheduler": SCHEDULER, "node_selector": self.pool.selector, **pod}
        return objects.pod(f"train-{index}", self.namespace, gang="train", **facts)

    def delete(self, index: int) -> None:
        self.api.delete("pods", f"train-{index}", self.namespace, grace_seconds=0)

    def set_minimum(self, minimum: int) -> None:
        spec = {"spec": {"minMember": minimum}}
        self.api.patch(objects.POD_GROUPS, "train", spec, self.namespace)

    def wait_until_held(self, count: int, seconds: float = 20) -> None:
        extender = self.extender
        wait_for(
            lambda: extender.held == count,
            seconds,
            f"{count} binds are held",
            every_s=0.01,
            seeing=lambda: extender.held,
        )

    def released(self, cause: str) -> int:
        """Count the binds that ended for *cause*, whosever they were."""
        return int(self.extender.metric("gang_extender_bind_wait_seconds_count", cause=cause))

    @property
    def bound(self) -> list[str]:
        """Name the members that are on a node."""
        pods = self.api.list("pods", self.namespace)
        return sorted(pod["metadata"]["name"] for pod in pods if objects.node_of(pod))

    def refusals(self, pod: str) -> str:
        """Give all that kube-scheduler said about a pod that did not start."""
        events = self.api.list("events", self.namespace, fields=f"involvedObject.name={pod}")
        return " ".join(each["message"] for each in events if each["reason"] != "Scheduled")

    def wait_until_told(self, pod: str, words: str) -> None:
        wait_for(
            lambda: words in self.refusals(pod),
            20,
            f"{pod} is refused with: {words}",
            seeing=lambda: self.refusals(pod),
        )


class ByHand:
    """Calls the bind hook as kube-scheduler does, for a `with` block."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._http = urllib3.PoolManager(retries=False, timeout=60)
        self._callers = ThreadPoolExecutor(4)

    def __enter__(self) -> ByHand:
        return self

    def __exit__(self, *_: object) -> None:
        self._callers.shutdown(wait=False, cancel_futures=True)
        self._http.clear()

    def bind(self, pod: Object, node: str) -> Future[str]:
        """Give the error of the answer, empty when the pod is bound."""
        about = pod["metadata"]
        call = {
            "PodName": about["name"],
            "PodNamespace": about["namespace"],
            "PodUID": about["uid"],
            "Node": node,
        }
        url = f"{self._stage.extender.url}/bind"
        return self._callers.submit(
            lambda: self._http.request("POST", url, json=call).json()["Error"]
        )


def gang(
    api: Api, name: str, namespace: str, count: int, pool: Pool | None = None, **rest: Any
) -> None:
    """Create a PodGroup and its pods of one cpu each."""
    queue = rest.pop("queue", None)
    api.create(objects.pod_group(name, namespace, rest.pop("min_member", count), queue=queue))
    selector = pool.selector if pool else None
    api.create(*objects.pods(count, name, namespace, gang=name, node_selector=selector, **rest))


def set_budget(api: Api, name: str, namespace: str, *, allowed: int, lag: int = 0) -> None:
    """Play the disruption controller, which this control plane does not run."""
    resource = "poddisruptionbudgets.policy/v1"
    generation = api.get(resource, name, namespace)["metadata"]["generation"]
    status: dict[str, Any] = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 4,
        "desiredHealthy": 4 - allowed,
        "expectedPods": 4,
        "observedGeneration": generation + lag,
    }
    api.patch(resource, name, {"status": status}, namespace, subresource="status")


@contextmanager
def running_pair(
    plane: ControlPlane, *arguments: str, scheduler_name: str
) -> Iterator[GangScheduler]:
    name = f"--scheduler-name={scheduler_name}"
    with (
        plane.extender(name, *arguments) as extender,
        plane.scheduler(plane.scheduler_config(extender, name)) as scheduler,
    ):
        yield GangScheduler(extender, scheduler)
