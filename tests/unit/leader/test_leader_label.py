"""The leader label: on the pod of the leader, on no other, and written by the leader alone.

Two replicas read and write at one API server; between any two of their requests, and during each
request, the other may run, terms may change, and requests or responses may be lost.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from extender.clock import SystemClock
from extender.errors import ApiError, NoResponse, NotFound, NotLeader
from extender.leader.election import LeaderElection
from extender.leader.fencing import Term
from extender.leader.label import CHECK_S, LeaderLabel
from extender.metrics import Metrics
from extender.ports import LabelledPod, LabelledPods, Lease
from extender.settings import Settings
from tests.strategies import examples
from tests.unit.leader.test_runtime import LeaseDouble
from tests.unit.leader.test_term_lifecycle import ImmediateLoop
from tests.unit.web.conftest import eventually


class Server:
    """The pods, each with a version, and those that carry the label."""

    def __init__(self, *pods: str) -> None:
        self._versions = count(1)
        self.versions = {name: str(next(self._versions)) for name in pods}
        self.labelled: set[str] = set()
        self.writes: list[str] = []

    def write(self, pod: str, *, labelled: bool, version: str | None = None) -> None:
        if pod not in self.versions:
            raise NotFound("no such pod", status=404)
        if version is not None and version != self.versions[pod]:
            raise ApiError("the pod was written since", status=409)
        if labelled != (pod in self.labelled):
            self.versions[pod] = str(next(self._versions))
        (self.labelled.add if labelled else self.labelled.discard)(pod)
        self.writes.append(f"{'+' if labelled else '-'}{pod}")


class Replica:
    """One extender with its term, its API client and its leader label."""

    def __init__(
        self, server: Server, name: str, label: Callable[..., LeaderLabel] = LeaderLabel
    ) -> None:
        self.server = server
        self.name = name
        self.now = 0.0
        self.term = Term(lambda: self.now)
        #: Called before and after every request reaches the server.
        self.meanwhile: Callable[[], None] = lambda: None
        self.fault: Callable[[], Exception | None] = lambda: None
        self.metrics = Metrics()
        self.label = label(self, self.term, self.metrics)

    def lead(self, for_s: float = 10.0) -> None:
        self.term.begin(until=self.now + for_s)

    def read(self) -> LabelledPods:
        def look() -> LabelledPods:
            others = tuple(
                LabelledPod(pod, self.server.versions[pod])
                for pod in sorted(self.server.labelled)
                if pod != self.name
            )
            return LabelledPods(is_ours=self.name in self.server.labelled, others=others)

        self.meanwhile()
        if (fault := self.fault()) is not None:
            raise fault
        seen = look()
        self.meanwhile()
        return seen

    def put_on(self, number: int) -> None:
        self.write(self.name, number, labelled=True)

    def withdraw(self, number: int) -> None:
        self.write(self.name, number, labelled=False)

    def take_off(self, mark: LabelledPod, number: int) -> None:
        self.write(mark.pod, number, labelled=False, version=mark.version)

    def write(self, pod: str, number: int, *, labelled: bool, version: str | None = None) -> None:
        self.meanwhile()
        if not self.term.holds(number):
            raise NotLeader("not sent")
        if (fault := self.fault()) is not None:
            raise fault
        self.server.write(pod, labelled=labelled, version=version)
        self.meanwhile()

    @property
    def failures(self) -> float:
        name = "gang_extender_leader_label_failures_total"
        return self.metrics.registry.get_sample_value(name) or 0.0


@pytest.fixture
def server() -> Server:
    return Server("a", "b")


@pytest.fixture
def a(server: Server) -> Replica:
    return Replica(server, "a")


@pytest.fixture
def b(server: Server) -> Replica:
    return Replica(server, "b")


def test_the_leader_carries_the_label_and_a_standby_writes_nothing(
    server: Server, a: Replica, b: Replica
) -> None:
    a.lead()
    for each in (a, b, a, b):
        assert each.label.step() == CHECK_S

    assert server.writes == ["+a"]


@pytest.mark.parametrize("labelled", ["", "a", "b", "ab"])
def test_the_leader_corrects_a_label_that_another_leader_or_a_person_set_or_removed(
    server: Server, a: Replica, labelled: str
) -> None:
    for _ in range(2):
        a.lead()
        a.label.step()
        for pod in "ab":
            server.write(pod, labelled=pod in labelled)
    a.label.step()

    assert server.labelled == {"a"}


def after(replica: Replica, request: str, do: Callable[[], object]) -> None:
    """Call *do* once, after the next *request* of the replica."""
    method = getattr(replica, request)

    def then(*arguments: Any) -> Any:
        setattr(replica, request, method)
        answer = method(*arguments)
        do()
        return answer

    setattr(replica, request, then)


def test_a_term_that_ends_between_two_writes_stops_the_second(
    server: Server, a: Replica, b: Replica
) -> None:
    server.write("b", labelled=True)
    a.lead()

    def suspend() -> None:
        a.now += 30  # b leads meanwhile, and carries the label already
        b.lead()
        b.label.step()

    after(a, "put_on", suspend)
    assert a.label.step() == 0.0
    a.label.step()

    assert server.labelled == {"b"}


def test_a_later_term_does_not_act_on_what_an_earlier_one_read(server: Server, a: Replica) -> None:
    server.write("b", labelled=True)
    a.lead()

    def begin_again() -> None:
        a.now += 30
        a.lead()

    after(a, "put_on", begin_again)
    server.writes.clear()
    a.label.step()

    assert server.writes == ["+a"]


def test_a_pod_that_changed_since_it_was_read_is_checked_again_soon(
    server: Server, a: Replica
) -> None:
    server.write("b", labelled=True)
    a.lead()
    after(a, "read", lambda: server.versions.update(b="changed"))

    assert 0 < a.label.step() < 1
    assert a.failures == 0
    a.label.step()

    assert server.labelled == {"a"}


def test_a_label_on_a_deleted_pod_needs_no_removal(server: Server, a: Replica) -> None:
    server.write("b", labelled=True)
    a.lead()
    after(a, "read", lambda: server.versions.pop("b"))

    assert a.label.step() == CHECK_S
    assert a.failures == 0


def test_a_label_failure_is_logged_once_always_counted_and_retried_with_backoff(
    server: Server, a: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    a.lead(for_s=1000)
    a.fault = lambda: ApiError("403: pods is forbidden", status=403)
    pauses = [a.label.step() for _ in range(8)]

    assert pauses == sorted(pauses)
    assert pauses[0] < 0.5
    assert pauses[-1] == CHECK_S
    assert a.failures == 8
    assert [each.getMessage() for each in caplog.records] == [
        "a Service may not find the leader, because its label could not be written"
    ]
    a.fault = lambda: None
    a.label.step()
    assert server.labelled == {"a"}


def test_a_replica_that_retires_removes_its_label_and_never_sets_it_again(
    server: Server, a: Replica
) -> None:
    a.lead()
    a.label.step()
    a.label.retire()
    a.label.step()
    a.label.step()

    assert server.writes[:2] == ["+a", "-a"]
    assert server.labelled == set()


def test_retiring_waits_for_an_unavailable_server_up_to_a_limit(server: Server) -> None:
    a, before = Replica(server, "a", partial(LeaderLabel, retire_s=0.1)), set(threading.enumerate())
    a.lead()
    a.label.start()
    new = set(threading.enumerate()) - before
    (thread,) = (each for each in new if each.name == "leader-label")
    eventually(lambda: server.labelled == {"a"})
    tried = threading.Semaphore(0)

    def refuse() -> Exception:
        tried.release()
        return NoResponse("connection refused")

    a.fault = refuse
    a.label.wait_until_retired()

    assert tried.acquire(timeout=1)
    assert server.labelled == {"a"}
    a.term.end()
    a.label.begun()
    eventually(lambda: not thread.is_alive())


def test_the_label_is_set_at_once_when_a_term_begins(server: Server, a: Replica) -> None:
    a.label.start()
    a.lead()
    a.label.begun()
    eventually(lambda: server.labelled == {"a"})
    a.label.wait_until_retired()

    assert server.labelled == set()


def test_the_label_thread_continues_after_an_unexpected_error(server: Server, a: Replica) -> None:
    a.lead()
    errors = iter([RuntimeError("a bug")])
    a.fault = lambda: next(errors, None)
    a.label.start()
    eventually(lambda: next(errors, None) is None)
    a.label.begun()
    eventually(lambda: server.labelled == {"a"})
    a.label.wait_until_retired()


def test_the_label_is_removed_before_the_lease_is_released(server: Server, a: Replica) -> None:
    leases = LeaseDouble()
    settings = Settings(lease="own", lease_identity="a", lease_retry_s=0.02)
    leadership = LeaderElection(settings, SystemClock(), ImmediateLoop(), Metrics())
    a.term = leadership.fencing  # type: ignore[assignment]
    leadership.run(leases, a, is_warm=lambda: True)
    leadership.start()
    eventually(lambda: server.labelled == {"a"})
    labelled_at_release: list[set[str]] = []
    write = leases.write

    def record(lease: Lease) -> Lease:
        if not lease.holder:
            labelled_at_release.append(set(server.labelled))
        return write(lease)

    leases.write = record  # type: ignore[method-assign]
    leadership.drain()
    leadership.resign()

    assert labelled_at_release == [set()]


class ChecksOnce(LeaderLabel):
    """Does not check again what it wrote."""

    def _correct(self, number: int) -> None:
        if getattr(self, "_number", 0) != number:
            super()._correct(number)
            self._number = number


class LeavesOtherLabels(LeaderLabel):
    """Sets its own label, and removes no other."""

    def _remove(self, other: LabelledPod, number: int) -> None:
        pass


class RandomRun:
    """Two replicas, and random events while a request is in flight."""

    def __init__(self, seed: int, label: Callable[..., LeaderLabel]) -> None:
        self._chance = random.Random(seed)
        self.server = Server("a", "b")
        self.replicas = [Replica(self.server, name, label) for name in ("a", "b")]
        self._depth = 0

    def run(self) -> None:
        for each in self.replicas:
            each.meanwhile, each.fault = self._meanwhile, self._fault
        for _ in range(40):
            self._meanwhile()
            self._step()
        for each in self.replicas:
            each.meanwhile, each.fault = (lambda: None), (lambda: None)
            each.term.end()

    def _meanwhile(self) -> None:
        roll = self._chance.random()
        if roll < 0.3:
            self._step()
        elif roll < 0.4:
            for each in self.replicas:
                each.now += 11.0
        elif roll < 0.5 and not any(each.term.current() for each in self.replicas):
            self._chance.choice(self.replicas).lead()
        elif roll < 0.55:
            labelled = self._chance.random() < 0.5
            self.server.write(self._chance.choice("ab"), labelled=labelled)

    def _fault(self) -> Exception | None:
        return NoResponse("lost") if self._chance.random() < 0.1 else None

    def _step(self) -> None:
        if self._depth < 3:
            self._depth += 1
            self._chance.choice(self.replicas).label.step()
            self._depth -= 1


def play(seed: int, label: Callable[..., LeaderLabel] = LeaderLabel) -> set[str]:
    """Run at random; then b leads for a while without faults. Return the labelled pods."""
    random_run = RandomRun(seed, label)
    random_run.run()
    a, b = random_run.replicas
    b.lead(1000)
    b.label.step()
    random_run.server.write("a", labelled=True)
    for each in (a, b, a, b):
        each.label.step()
    return random_run.server.labelled


def test_after_random_faults_only_the_next_leader_carries_the_label() -> None:
    for seed in range(examples(300)):
        assert play(seed) == {"b"}, seed


@pytest.mark.parametrize("label", [ChecksOnce, LeavesOtherLabels])
def test_the_referee_detects_planted_faults(label: Callable[..., LeaderLabel]) -> None:
    assert any(play(seed, label) != {"b"} for seed in range(300))
