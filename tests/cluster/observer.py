"""An external observer of binds: it sees what the API server shows to any client, and when."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tests import objects
from tests.objects import phase

from .api import Api, Object
from .list_watch import ListWatch
from .waiting import wait_for


@dataclass(frozen=True, slots=True)
class Bind:
    """The first time a pod was seen on its node; *at* is monotonic, in seconds."""

    pod: str
    node: str
    at: float


#: The guarantee: a gang may be bound in part for at most so long.
WHOLE_S = 5.0


class BindObserver:
    """Records every bind during the block, in the order of the watch, and the end of every pod.

    A watch delivers changes in their order, so usage at each moment is exact, however late the
    events arrive. It survives a restart of the API server; only a pod that was deleted before a
    compaction, without an event, counts as used for ever.
    """

    def __init__(self, api: Api, namespace: str | None = None) -> None:
        self._binds: list[Bind] = []
        self._seen: set[str] = set()
        #: Each pod with 1 when it began to use its node, and with -1 when it ended.
        self._usage: list[tuple[int, Object]] = []
        self._ended: set[str] = set()
        self._is_first = True
        self._list_watch = ListWatch(
            api,
            "pods",
            namespace,
            on_event=self._on_event,
            on_list=self._on_list,
            fields="spec.nodeName!=",
        )

    def __enter__(self) -> Self:
        self._list_watch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._list_watch.__exit__(*error)

    @property
    def binds(self) -> list[Bind]:
        return list(self._binds)

    def of(self, prefix: str) -> list[Bind]:
        """Return the binds of pods whose names begin with *prefix*."""
        return [bind for bind in self.binds if bind.pod.startswith(prefix)]

    def wait_for(self, count: int, seconds: float, prefix: str = "") -> list[Bind]:
        """Wait until *count* pods are bound; return all binds so far."""
        return wait_for(
            lambda: found if len(found := self.of(prefix)) >= count else [],
            seconds,
            f"{count} binds of {prefix or 'any pod'}",
            seeing=lambda: self.of(prefix),
        )

    def spread_s(self, prefix: str = "") -> float:
        """Return the time from the first to the last bind."""
        times = [bind.at for bind in self.of(prefix)]
        return max(times) - min(times)

    def peaks(self, key_of: Callable[[Object], str], resource: str = "cpu") -> Counter[str]:
        """Return the highest usage at any moment, by the key that *key_of* returns for a pod."""
        used: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for sign, pod in tuple(self._usage):
            key = key_of(pod)
            used[key] += sign * _request(pod, resource)
            most[key] = max(most[key], used[key])
        return most

    @property
    def ended(self) -> list[str]:
        """Return the pods that ended during the block."""
        return [pod["metadata"]["name"] for sign, pod in tuple(self._usage) if sign < 0]

    def _on_event(self, kind: str, pod: Object) -> None:
        self._note(pod)
        self._note_end(pod, is_gone=kind == "DELETED")

    def _on_list(self, listed: Object) -> None:
        for pod in listed["items"]:
            if self._is_first:
                self._see(pod)
            else:
                self._note(pod)
        self._is_first = False

    def _note(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._seen:
            self._see(pod)
            bind = Bind(pod["metadata"]["name"], pod["spec"]["nodeName"], time.monotonic())
            self._binds.append(bind)

    def _see(self, pod: Object) -> None:
        self._seen.add(pod["metadata"]["uid"])
        self._usage.append((1, pod))
        self._note_end(pod, is_gone=False)

    def _note_end(self, pod: Object, *, is_gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._ended or not (is_gone or phase(pod) in ("Succeeded", "Failed")):
            return
        self._ended.add(uid)
        self._usage.append((-1, pod))


def _request(pod: Object, resource: str) -> int:
    """Return the request of a pod for a resource in whole units."""
    return sum(
        int(container["resources"].get("requests", {}).get(resource, 0))
        for container in pod["spec"]["containers"]
    )


def running_members(api: Api, namespace: str, prefix: str = "") -> Counter[str]:
    """Count the running pods of each gang, without terminating ones."""
    return Counter(
        pod["metadata"]["name"].rpartition("-")[0]
        for pod in api.list("pods", namespace)
        if objects.phase(pod) == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"].startswith(prefix)
    )


def bound(api: Api, namespace: str, prefix: str = "") -> list[str]:
    """Return the names of the pods that are bound."""
    return sorted(
        pod["metadata"]["name"]
        for pod in api.list("pods", namespace)
        if objects.node_of(pod) and pod["metadata"]["name"].startswith(prefix)
    )


def gang_of(bind: Bind) -> str:
    return bind.pod.rpartition("-")[0]


def assert_started_whole(binds: list[Bind], sizes: dict[str, int]) -> None:
    """Assert that every gang was bound completely, its last member soon after its first."""
    seen: dict[str, list[Bind]] = defaultdict(list)
    for bind in binds:
        seen[gang_of(bind)].append(bind)
    assert {gang: len(members) for gang, members in seen.items()} == sizes
    for gang, members in seen.items():
        assert members[-1].at - members[0].at < WHOLE_S, f"{gang} started in parts: {members}"
