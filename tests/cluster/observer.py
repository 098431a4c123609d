"""An outside witness of binds: it sees what the API server shows to everybody, and when."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tests import objects
from tests.objects import phase

from .api import Api, Object
from .following import Following
from .waiting import wait_for


@dataclass(frozen=True, slots=True)
class Bind:
    """A pod was seen on its node for the first time; *at* is monotonic, in seconds."""

    pod: str
    node: str
    at: float


#: As long as a gang may be bound in part: what we promise.
WHOLE_S = 5.0


class BindObserver:
    """Notes every pod that is bound while the block runs, in the order of sighting, and its end.

    A watch tells of the pods in the order in which they changed, so what was in use at a moment
    is exact, however late we hear of it. It survives a restart of the API server; only pods that
    were deleted before a compaction, unheard, count on.
    """

    def __init__(self, api: Api, namespace: str | None = None) -> None:
        self._binds: list[Bind] = []
        self._seen: set[str] = set()
        #: Each pod with 1 when it took its room, and with -1 when it gave it back.
        self._turns: list[tuple[int, Object]] = []
        self._ended: set[str] = set()
        self._is_first = True
        self._following = Following(
            api, "pods", namespace, hear=self._hear, look=self._look, fields="spec.nodeName!="
        )

    def __enter__(self) -> Self:
        self._following.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._following.__exit__(*error)

    @property
    def binds(self) -> list[Bind]:
        return list(self._binds)

    def of(self, prefix: str) -> list[Bind]:
        """The binds of pods whose names begin with *prefix*."""
        return [bind for bind in self.binds if bind.pod.startswith(prefix)]

    def wait_for(self, count: int, seconds: float, prefix: str = "") -> list[Bind]:
        """Wait until *count* pods are bound; gives all that were seen by then."""
        return wait_for(
            lambda: found if len(found := self.of(prefix)) >= count else [],
            seconds,
            f"{count} binds of {prefix or 'any pod'}",
            seeing=lambda: self.of(prefix),
        )

    def spread_s(self, prefix: str = "") -> float:
        """The time from the first to the last bind."""
        times = [bind.at for bind in self.of(prefix)]
        return max(times) - min(times)

    def peaks(self, whose: Callable[[Object], str], resource: str = "cpu") -> Counter[str]:
        """The most that was ever in use at one moment, by what *whose* makes of a pod."""
        used: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for sign, pod in tuple(self._turns):
            key = whose(pod)
            used[key] += sign * _whole(pod, resource)
            most[key] = max(most[key], used[key])
        return most

    @property
    def ended(self) -> list[str]:
        """The pods that gave their room back while the block ran."""
        return [pod["metadata"]["name"] for sign, pod in tuple(self._turns) if sign < 0]

    def _hear(self, kind: str, pod: Object) -> None:
        self._note(pod)
        self._note_end(pod, is_gone=kind == "DELETED")

    def _look(self, listed: Object) -> None:
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
        self._turns.append((1, pod))
        self._note_end(pod, is_gone=False)

    def _note_end(self, pod: Object, *, is_gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._ended or not (is_gone or phase(pod) in ("Succeeded", "Failed")):
            return
        self._ended.add(uid)
        self._turns.append((-1, pod))


def _whole(pod: Object, resource: str) -> int:
    """What a pod asks for of a resource that is given in whole units."""
    return sum(
        int(container["resources"].get("requests", {}).get(resource, 0))
        for container in pod["spec"]["containers"]
    )


def alive(api: Api, namespace: str, prefix: str = "") -> Counter[str]:
    """Count the running pods of each gang, those that are being deleted left out."""
    return Counter(
        pod["metadata"]["name"].rpartition("-")[0]
        for pod in api.list("pods", namespace)
        if objects.phase(pod) == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"].startswith(prefix)
    )


def bound(api: Api, namespace: str, prefix: str = "") -> list[str]:
    """Name the pods that are on a node."""
    return sorted(
        pod["metadata"]["name"]
        for pod in api.list("pods", namespace)
        if objects.node_of(pod) and pod["metadata"]["name"].startswith(prefix)
    )


def gang_of(bind: Bind) -> str:
    return bind.pod.rpartition("-")[0]


def assert_started_whole(binds: list[Bind], sizes: dict[str, int]) -> None:
    """Every gang was bound completely, its last member soon after its first."""
    seen: dict[str, list[Bind]] = defaultdict(list)
    for bind in binds:
        seen[gang_of(bind)].append(bind)
    assert {gang: len(members) for gang, members in seen.items()} == sizes
    for gang, members in seen.items():
        assert members[-1].at - members[0].at < WHOLE_S, f"{gang} started in parts: {members}"
