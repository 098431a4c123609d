"""Two extenders and one lease: whatever happens to the leader, the other goes on, and only it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import pytest
import yaml

from . import objects
from .api import Api, Object
from .conftest import Pool
from .control_plane import ControlPlane
from .observer import BindObserver
from .replicas import Cable, Replica, Service, seconds_until
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

Nodes = Callable[..., Pool]

SCHEDULER = "ha-scheduler"
LEASE = "gang-extender-test"
LEASES = "leases.coordination.k8s.io/v1"
#: The users of the two, so that the audit log tells who wrote what.
USERS = ("extender", "second-extender")
#: No part of a gang stands alone for longer.
TORN_S = 5.0


@dataclass
class Pair:
    """Two replicas behind one address, and the kube-scheduler that asks there."""

    plane: ControlPlane
    replicas: dict[str, Replica]
    #: The way of each to the API server.
    cables: dict[str, Cable]

    def leader(self) -> tuple[str, Replica]:
        """Give the user and the process of the only one that is ready."""

        def leading() -> list[tuple[str, Replica]]:
            return [each for each in self.replicas.items() if each[1].is_running and each[1].leads]

        (one,) = wait_for(lambda: len(found := leading()) == 1 and found, 30, "one leads")
        return one

    def other(self, user: str) -> Replica:
        return self.replicas[next(each for each in USERS if each != user)]

    def restore(self) -> None:
        for replica in self.replicas.values():
            if not replica.is_running:
                replica.start()

    def acts_of(self, user: str, since: datetime) -> list[str]:
        """All that a user wrote since then, but for the lease.

        A request whose body was held back, because its term ended while it was written, breaks off.
        """
        return [
            f"{event['requestReceivedTimestamp']} {event['verb']} {event['requestURI']}"
            for event in self.plane.writes(user)
            if event["objectRef"]["resource"] != "leases"
            and event["responseStatus"].get("message") != "unexpected EOF"
            and datetime.fromisoformat(event["requestReceivedTimestamp"]) > since
        ]


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[Pair]:
    plane.api.create(*_rights())
    with ExitStack() as running:
        cables = {user: running.enter_context(Cable(plane.apiserver.ports[0])) for user in USERS}
        replicas = {user: _replica(plane, user, cables[user]) for user in USERS}
        for replica in replicas.values():
            running.enter_context(replica)
        service = running.enter_context(Service(*replicas.values()))
        config = plane.scheduler_config(service, f"--scheduler-name={SCHEDULER}")  # type: ignore[arg-type]
        running.enter_context(plane.scheduler(config))
        yield Pair(plane, replicas, cables)


def _replica(plane: ControlPlane, user: str, cable: Cable) -> Replica:
    about = yaml.safe_load(plane.kubeconfig(user).read_text())
    about["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{cable.port}"
    kubeconfig = plane.folder / f"{user}-by-cable.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(about))
    replica = Replica(
        f"gang-extender-of-{user}",
        plane.logs,
        kubeconfig=kubeconfig,
        arguments=(
            f"--scheduler-name={SCHEDULER}",
            "--lease=own",
            f"--lease-name={LEASE}",
            f"--lease-namespace={EXTENDER_NAMESPACE}",
            f"--lease-identity={user}",
        ),
    )
    plane.programs.append(replica)
    return replica


def _rights() -> list[Object]:
    """What a deployment of two needs besides: its lease, and here a second user."""
    subjects = [
        {"kind": "ServiceAccount", "name": "gang-extender", "namespace": EXTENDER_NAMESPACE},
        {"kind": "User", "name": "second-extender"},
    ]
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [LEASE],
            "verbs": ["get", "patch"],
        },
    ]
    about = {"name": LEASE, "namespace": EXTENDER_NAMESPACE}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": LEASE},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": LEASE},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gang-extender"},
            "subjects": subjects,
        },
    ]


def takeover(pair: Pair, user: str, limit_s: float) -> None:
    """Wait until the other leads, and say how long that took."""
    took_s = seconds_until(lambda: pair.other(user).leads, limit_s, "the other leads")
    print(f"the other leads after {took_s:.1f} s")


class Arrivals:
    """Gangs of three that come all the time, for a `with` block; watched from outside."""

    def __init__(self, plane: ControlPlane, namespace: str, pool: Pool) -> None:
        self._api = plane.api
        self._namespace = namespace
        self._pool = pool
        self._observer = plane.binds(namespace)
        self._numbers = count()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._arrive, daemon=True)
        self.names: list[str] = []

    def __enter__(self) -> Arrivals:
        self._observer.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._observer.__exit__(None, None, None)

    @property
    def observer(self) -> BindObserver:
        return self._observer

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _arrive(self) -> None:
        while not self._ends.wait(0.5):
            name = f"gang{next(self._numbers)}"
            pods = objects.pods(
                3,
                name,
                self._namespace,
                gang=name,
                scheduler=SCHEDULER,
                node_selector=self._pool.selector,
            )
            self._api.create(objects.pod_group(name, self._namespace, 3), *pods)
            self.names.append(name)

    def bound_since(self, moment: float) -> bool:
        return any(bind.at > moment for bind in self._observer.binds)

    def end_whole(self) -> None:
        """Demand that every gang starts, each of them at once."""
        self.stop()
        self._observer.wait_for(3 * len(self.names), 90)
        times: dict[str, list[float]] = defaultdict(list)
        for bind in self._observer.binds:
            times[bind.pod.rpartition("-")[0]].append(bind.at)
        torn = {name: max(at) - min(at) for name, at in times.items() if max(at) - min(at) > TORN_S}

        assert torn == {}
        assert {len(at) for at in times.values()} == {3}


@pytest.fixture
def arrivals(plane: ControlPlane, pair: Pair, namespace: str, nodes: Nodes) -> Iterator[Arrivals]:
    pair.restore()
    pair.leader()
    with Arrivals(plane, namespace, nodes(2, cpu="1000", memory="1Ti", pods=1000)) as made:
        made.observer.wait_for(6, 30)
        yield made


def test_a_killed_leader_is_followed_within_twenty_seconds(pair: Pair, arrivals: Arrivals) -> None:
    user, leader = pair.leader()
    leader.kill()
    moment = time.monotonic()

    takeover(pair, user, 20)
    wait_for(lambda: arrivals.bound_since(moment), 20, "gangs start again")
    arrivals.end_whole()


def test_a_leader_that_ends_in_order_is_followed_within_three_seconds(
    pair: Pair, arrivals: Arrivals
) -> None:
    user, leader = pair.leader()
    leader.ask_to_end()
    moment = time.monotonic()

    takeover(pair, user, 3)
    wait_for(lambda: arrivals.bound_since(moment), 20, "gangs start again")
    wait_for(lambda: not leader.is_running, 20, "it has ended")
    leader.kill()
    arrivals.end_whole()


def test_a_frozen_leader_acts_no_more_when_it_goes_on(pair: Pair, arrivals: Arrivals) -> None:
    user, leader = pair.leader()
    frozen_at, since = time.monotonic(), datetime.now(UTC)
    leader.freeze()
    try:
        takeover(pair, user, 20)
        wait_for(lambda: time.monotonic() > frozen_at + 30, 40, "half a minute passes")
    finally:
        leader.thaw()
    wait_for(lambda: leader.metric("gang_extender_leader") == 0, 10, "it answers, and leads not")
    wait_for(lambda: arrivals.bound_since(frozen_at + 35), 30, "gangs start")
    arrivals.end_whole()

    assert pair.acts_of(user, since) == []
    assert pair.other(user).leads
    assert not leader.leads
    assert "standby" in leader.ops("/readyz")


def test_a_leader_cut_off_from_the_api_server_stops_before_the_other_begins(
    pair: Pair, arrivals: Arrivals
) -> None:
    user, leader = pair.leader()
    moment = time.monotonic()
    pair.cables[user].cut()
    try:
        stopped_s = seconds_until(lambda: not leader.leads, 12, "it leads no more")
        assert not pair.other(user).leads
        since = datetime.now(UTC)
        took_s = seconds_until(lambda: pair.other(user).leads, 20, "the other leads") + stopped_s
        print(f"it stopped after {stopped_s:.1f} s, the other leads after {took_s:.1f} s")
        assert took_s < 20
        wait_for(lambda: arrivals.bound_since(moment + took_s), 20, "gangs start again")
    finally:
        pair.cables[user].mend()
    wait_for(lambda: "standby: " in leader.ops("/readyz"), 40, "it sees who leads")
    arrivals.end_whole()

    assert pair.acts_of(user, since) == []


def test_the_extender_leads_while_the_kube_scheduler_beside_it_does(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, name = nodes(1), "beside-scheduler"
    replica = Replica(
        "gang-extender-beside",
        plane.logs,
        kubeconfig=plane.kubeconfig("extender"),
        arguments=(
            f"--scheduler-name={name}",
            "--lease=scheduler",
            f"--lease-name={name}",
            f"--lease-namespace={namespace}",
        ),
    )
    plane.programs.append(replica)
    api.create(*_may_read_leases(namespace))

    def start_gang(gang: str) -> None:
        pods = objects.pods(
            2, gang, namespace, gang=gang, scheduler=name, node_selector=pool.selector
        )
        api.create(objects.pod_group(gang, namespace, 2), *pods)

    with replica, plane.binds(namespace) as binds:
        assert "standby: nobody we know of leads" in replica.ops("/readyz")
        config = plane.scheduler_config(
            replica, f"--scheduler-name={name}", "--leader-elect", f"--lease-namespace={namespace}"
        )
        with plane.scheduler(config) as scheduler:
            wait_for(lambda: replica.leads, 20, "it leads, as the scheduler does")
            start_gang("one")
            binds.wait_for(2, 30)

            scheduler.kill()
            api.patch(LEASES, name, {"spec": {"holderIdentity": "elsewhere_1"}}, namespace)
            lost_s = seconds_until(lambda: not replica.leads, 5, "it leads no more")
            assert lost_s < 3
            assert "standby: elsewhere_1 leads" in replica.ops("/readyz")


def _may_read_leases(namespace: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    about = {"name": "leases", "namespace": namespace}
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    ours = {"kind": "ServiceAccount", "name": "gang-extender", "namespace": EXTENDER_NAMESPACE}
    theirs = {"kind": "User", "name": "system:kube-scheduler"}
    made: list[Object] = []
    for name, verbs, subject in (
        ("reads", ["get"], ours),
        ("leads", ["get", "create", "update"], theirs),
    ):
        metadata = {**about, "name": name}
        made += [
            {
                "apiVersion": f"{group}/v1",
                "kind": "Role",
                "metadata": metadata,
                "rules": [{**rule, "verbs": verbs}],
            },
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
                "subjects": [subject],
            },
        ]
    return made
