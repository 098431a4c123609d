"""A gang whose binds wait, and the bind hook called as kube-scheduler calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import urllib3

from tests import objects

from .api import Api, Object
from .components import Scheduler
from .control_plane import ControlPlane
from .extender_process import Extender
from .waiting import wait_for

#: The scheduler name of a test's own pair; `gang-scheduler` belongs to the shared one.
SCHEDULER = "race-scheduler"
#: Its flags: the binds of an incomplete gang wait as long as a test needs them.
OURS = (f"--scheduler-name={SCHEDULER}", "--arrival-grace-s=60")


POOL = "gang-extender.test/pool"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """An extender and its kube-scheduler."""

    extender: Extender
    scheduler: Scheduler


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one test; *selector* keeps its pods on them."""

    names: list[str]
    selector: dict[str, str]


#: Of the fixtures `nodes` and `create`.
Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]


@dataclass(frozen=True, slots=True)
class TrainGang:
    """The gang `train` in one namespace, scheduled by one pair."""

    api: Api
    pair: GangScheduler
    namespace: str
    pool: Pool

    @property
    def extender(self) -> Extender:
        return self.pair.extender

    def create_waiting(self, count: int, minimum: int) -> None:
        """Create a gang that needs *minimum* members, and wait until *count* binds wait.

        filter admits a member of an incomplete gang only if the extender knows the PodGroup and
        the nodes by then; otherwise the members are created again.
        """
        # Waiting binds of the previous test may still be released, and would count here.
        self.wait_for_waiting_binds(0)
        self.api.create(objects.pod_group("train", self.namespace, minimum))
        for _ in range(9):
            self.add(*range(count))
            with suppress(AssertionError):
                self.wait_for_waiting_binds(count, seconds=3)
                return
            for index in range(count):
                self.delete(index)
            self.wait_for_waiting_binds(0)
        self.add(*range(count))
        self.wait_for_waiting_binds(count)

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

    def wait_for_waiting_binds(self, count: int, seconds: float = 20) -> None:
        extender = self.extender
        wait_for(
            lambda: extender.waiting_binds == count,
            seconds,
            f"{count} binds wait",
            every_s=0.01,
            seeing=lambda: extender.waiting_binds,
        )

    def released(self, cause: str) -> int:
        """Count the waiting binds that ended for *cause*, of any gang."""
        return int(self.extender.metric("gang_extender_bind_wait_seconds_count", cause=cause))

    @property
    def bound(self) -> list[str]:
        """Return the names of the bound members."""
        pods = self.api.list("pods", self.namespace)
        return sorted(pod["metadata"]["name"] for pod in pods if objects.node_of(pod))

    def refusals(self, pod: str) -> str:
        """Return all messages of kube-scheduler about a pod that did not start."""
        events = self.api.list("events", self.namespace, fields=f"involvedObject.name={pod}")
        return " ".join(each["message"] for each in events if each["reason"] != "Scheduled")

    def wait_until_refused(self, pod: str, words: str) -> None:
        wait_for(
            lambda: words in self.refusals(pod),
            20,
            f"{pod} is refused with: {words}",
            seeing=lambda: self.refusals(pod),
        )


class BindCaller:
    """Calls the bind hook as kube-scheduler does, during a `with` block."""

    def __init__(self, train: TrainGang) -> None:
        self._train = train
        self._http = urllib3.PoolManager(retries=False, timeout=60)
        self._callers = ThreadPoolExecutor(4)

    def __enter__(self) -> BindCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self._callers.shutdown(wait=False, cancel_futures=True)
        self._http.clear()

    def bind(self, pod: Object, node: str) -> Future[str]:
        """Call bind; the result is the error of the response, empty if the pod is bound."""
        about = pod["metadata"]
        call = {
            "PodName": about["name"],
            "PodNamespace": about["namespace"],
            "PodUID": about["uid"],
            "Node": node,
        }
        url = f"{self._train.extender.url}/bind"
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
    """Write the status of a budget: this control plane runs no disruption controller."""
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
    plane: ControlPlane, *arguments: str, scheduler_name: str, config: Sequence[str] = ()
) -> Iterator[GangScheduler]:
    """Run an extender with *arguments*, and a kube-scheduler with the options *config*."""
    name = f"--scheduler-name={scheduler_name}"
    with (
        plane.extender(name, *arguments) as extender,
        plane.scheduler(plane.scheduler_config(extender, name, *config)) as scheduler,
    ):
        yield GangScheduler(extender, scheduler)


def train_pair(
    plane: ControlPlane, *arguments: str, config: Sequence[str] = ()
) -> AbstractContextManager[GangScheduler]:
    """Run a pair for a `TrainGang`: binds of an incomplete gang wait as long as a test needs."""
    return running_pair(plane, OURS[1], *arguments, scheduler_name=SCHEDULER, config=config)
