"""A whole extender with a lease: the responses of a standby, and the effects of a term."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from werkzeug.serving import make_server

from extender.cli.main import main
from extender.clock import SystemClock
from extender.demo import embedded
from extender.errors import ApiError
from extender.planning_loop import TICK_S
from extender.ports import ClusterPorts, Lease
from extender.settings import Settings
from tests import objects
from tests.unit.web.conftest import JSON, World, eventually

FAST = {"lease_duration_s": 6.0, "lease_renew_s": 4.0, "lease_retry_s": 0.1}


class LeaseDouble:
    """The `Leases` of one cluster; a test gives the lease to another holder."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.is_cut_off = False
        self.reads = 0
        self._versions = count(1)
        self._lock = threading.Lock()

    def read(self) -> Lease | None:
        if self.is_cut_off:
            raise ApiError("cut off")
        self.reads += 1
        return self.lease

    def write(self, lease: Lease) -> Lease:
        if self.is_cut_off:
            raise ApiError("cut off")
        with self._lock:
            if lease.version != (self.lease.version if self.lease else ""):
                raise ApiError("conflict", status=409)
            self.lease = msgspec.structs.replace(lease, version=str(next(self._versions)))
            return self.lease

    def give_to(self, holder: str, duration_s: float = 3600.0) -> None:
        with self._lock:
            self.lease = Lease(
                holder=holder, duration_s=duration_s, version=str(next(self._versions))
            )


class FastClock(SystemClock):
    """A clock that a test can move forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return SystemClock.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> FastClock:
    return FastClock()


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> LeaseDouble:
    double = LeaseDouble()
    monkeypatch.setattr(embedded, "ClusterPorts", partial(ClusterPorts, leases=double))
    monkeypatch.setattr(
        "tests.unit.web.conftest.Settings",
        lambda **facts: Settings(**facts, **FAST, lease="own", lease_identity="here"),  # type: ignore[arg-type]
    )
    return double


@pytest.fixture
def world(leases: LeaseDouble, clock: FastClock) -> Iterator[World]:
    with World(clock=clock) as made:
        yield made


@pytest.fixture
def standby(world: World, leases: LeaseDouble) -> World:
    leases.give_to("there_1")
    eventually(lambda: "standby" in page(world, "/readyz").text)
    return world


def page(world: World, path: str) -> Any:
    return world.runtime.pages.test_client().get(path)


def metric(world: World, name: str) -> float:
    text = page(world, "/metrics").text
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))


def call(world: World, verb: str, body: Any) -> tuple[str | None, Any]:
    """Return the connection header and the response."""
    with closing(http.client.HTTPConnection("127.0.0.1", world.hook_port, timeout=20)) as to:
        to.request("POST", f"/{verb}", json.dumps(body), JSON)
        reply = to.getresponse()
        return reply.headers["connection"], json.loads(reply.read())


def test_the_holder_of_the_lease_is_ready_and_answers(world: World) -> None:
    assert page(world, "/readyz").status_code == 200
    assert metric(world, "gang_extender_leader ") == 1
    connection, answer = call(world, "filter", {"Pod": objects.pod("p", "demo"), "NodeNames": []})
    assert connection is None
    assert not answer.get("Error")


def test_a_standby_is_live_and_warm_but_not_ready_and_names_the_leader(standby: World) -> None:
    assert page(standby, "/healthz").status_code == 200
    warm, ready = page(standby, "/warmz"), page(standby, "/readyz")
    assert (warm.status_code, warm.text) == (200, "ok\nstandby: there_1 leads\n")
    assert (ready.status_code, ready.text) == (503, "standby: there_1 leads\n")
    assert metric(standby, "gang_extender_leader ") == 0
    assert metric(standby, 'gang_extender_leader_changes_total{change="lost"}') == 1


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("filter", {"Pod": objects.pod("p", "demo"), "NodeNames": []}),
        ("preempt", {"Pod": objects.pod("p", "demo"), "NodeNameToMetaVictims": {}}),
        ("bind", {"PodName": "p", "PodNamespace": "demo", "PodUID": "u", "Node": "n"}),
    ],
)
def test_a_standby_refuses_hook_calls_and_closes_the_connection(
    standby: World, verb: str, body: Any
) -> None:
    connection, answer = call(standby, verb, body)

    assert connection == "close"
    assert answer["Error"] == "the extender is not ready: standby: there_1 leads"


@pytest.mark.parametrize(
    "path", ["plan", "queues", "gangs", "gangs/demo/x", "findings", "snapshot"]
)
def test_a_standby_shows_no_plan(standby: World, path: str) -> None:
    reply = page(standby, f"/api/v1/{path}")

    assert reply.status_code == 503
    assert reply.get_json()["error"] == "standby: there_1 leads; call it instead"


@pytest.mark.parametrize(
    "command", [["explain", "demo/x"], ["top", "--once"], ["doctor"]], ids=lambda words: words[0]
)
def test_the_command_line_names_the_leader(standby: World, command: list[str]) -> None:
    server = make_server("127.0.0.1", 0, standby.runtime.pages, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        ran = CliRunner().invoke(main, [*command, f"--ops-url={url}"])
    finally:
        server.shutdown()
        server.server_close()

    assert ran.exit_code == 2
    assert "standby: there_1 leads" in ran.output


def test_a_waiting_bind_is_refused_at_once_when_the_lease_is_lost(
    world: World, leases: LeaseDouble
) -> None:
    world.node("node-0")
    world.group("train", 2)
    pod = world.pod("train-0", "train")
    world.pod("train-1", "train")
    filtering = {"Pod": pod, "NodeNames": ["node-0"]}
    eventually(lambda: call(world, "filter", filtering)[1].get("NodeNames") == ["node-0"])
    answers: list[Any] = []
    binding = {
        "PodName": "train-0",
        "PodNamespace": "demo",
        "PodUID": pod["metadata"]["uid"],
        "Node": "node-0",
    }
    caller = threading.Thread(target=lambda: answers.append(call(world, "bind", binding)))
    caller.start()
    eventually(lambda: world.runtime.core.permit.waiting_binds == 1)

    leases.give_to("there_1")
    caller.join(5)

    assert answers == [("close", {"Error": "gang demo/train: this extender is not the leader"})]
    assert world.runtime.core.permit.waiting_binds == 0


def test_a_term_that_expires_is_noticed_while_the_api_server_is_silent(
    world: World, leases: LeaseDouble, clock: FastClock
) -> None:
    leases.is_cut_off = True
    clock.ahead_s += FAST["lease_renew_s"]

    eventually(lambda: page(world, "/readyz").text.startswith("standby: no known replica leads "))


def test_a_replica_that_gets_the_lease_again_plans_and_is_ready(
    standby: World, leases: LeaseDouble
) -> None:
    leases.give_to("")
    standby.node("node-0")
    standby.group("train", 1)
    standby.pod("train-0", "train")

    eventually(lambda: page(standby, "/readyz").status_code == 200)
    eventually(lambda: [each["name"] for each in page(standby, "/api/v1/gangs").json] == ["train"])
    assert metric(standby, 'gang_extender_leader_changes_total{change="got"}') == 2


def test_the_gang_history_of_an_earlier_term_is_dropped(world: World, leases: LeaseDouble) -> None:
    def history() -> list[str]:
        entries = page(world, "/api/v1/gangs/demo/train").get_json().get("history", ())
        return [each["at"] for each in entries]

    world.group("train", 2)
    world.pod("train-0", "train")
    eventually(lambda: bool(history()))
    earlier = history()[0]
    leases.give_to("there_1")
    eventually(lambda: page(world, "/api/v1/plan").status_code == 503)
    leases.give_to("")

    eventually(lambda: page(world, "/api/v1/plan").status_code == 200)
    eventually(lambda: bool(history()))
    assert earlier not in history()


def test_a_new_leader_uses_the_last_valid_policy_read_while_on_standby(
    leases: LeaseDouble, clock: FastClock, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("actions: allocate")
    with World(config=str(file), clock=clock) as world:

        def write(text: str, *, is_refused: bool) -> None:
            """Write the file; a standby reads it once a second when an event wakes it."""
            file.write_text(text)
            clock.ahead_s += TICK_S
            world.node(f"node-{clock.ahead_s}")
            eventually(lambda: metric(world, "gang_extender_policy_refused") == is_refused)

        leases.give_to("there_1")
        eventually(lambda: "standby" in page(world, "/readyz").text)

        write("actions: alocate", is_refused=True)
        write("actions: allocate, backfill", is_refused=False)
        write("actions: alocate", is_refused=True)
        leases.give_to("")
        eventually(lambda: page(world, "/readyz").status_code == 200)

        assert "alocate" in page(world, "/readyz").text
        assert "backfill" in page(world, "/policy").text


def test_a_draining_standby_does_not_acquire_a_free_lease(
    standby: World, leases: LeaseDouble
) -> None:
    standby.runtime.drain()

    leases.give_to("")
    read = leases.reads
    eventually(lambda: leases.reads > read + 2)

    assert leases.lease is not None
    assert leases.lease.holder == ""


def test_a_draining_leader_keeps_its_lease_for_requests_in_flight(
    world: World, leases: LeaseDouble
) -> None:
    held = leases.lease
    assert held is not None
    world.runtime.drain()

    eventually(lambda: leases.lease is not None and leases.lease.version != held.version)

    assert leases.lease is not None
    assert leases.lease.holder == held.holder
    assert metric(world, "gang_extender_leader ") == 1
