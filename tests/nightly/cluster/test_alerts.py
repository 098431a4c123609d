"""Every alert fires on a real Prometheus when its fault occurs on the real control plane.

The rules are the shipped ones, with all times divided by sixty (`rules.accelerated`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import yaml

from extender.planner import policy_parser
from extender.tls.issue import Authority
from tests import objects
from tests.cluster.api import Api, Object
from tests.cluster.binaries import require
from tests.cluster.binding_webhook import BindingWebhook
from tests.cluster.candidates import _kubeconfig_by
from tests.cluster.certificates import client_flags, make_certificates, server_flags
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import REPOSITORY, Extender
from tests.cluster.replicas import Replica, ServerLink
from tests.cluster.train_gang import (
    OURS,
    POOL,
    SCHEDULER,
    GangScheduler,
    Pool,
    TrainGang,
    gang,
    set_budget,
)
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.unit.monitoring import rules, test_dashboard as dashboard

from .prometheus import Prometheus, promtool

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]
NAME = f"--scheduler-name={SCHEDULER}"

#: Alert -> the test that makes it fire.
CASES: dict[str, str] = {}


def fires(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the alerts that a test makes fire."""

    def note(test: Callable[..., None]) -> Callable[..., None]:
        CASES.update(dict.fromkeys(names, test.__name__))
        return test

    return note


@pytest.fixture(scope="module", autouse=True)
def binaries() -> None:
    require("prometheus", "promtool")


@pytest.fixture
def watching(tmp_path: Path, plane: ControlPlane) -> Callable[..., Prometheus]:
    def watch(*extenders: Extender) -> Prometheus:
        folder = tmp_path / f"prometheus-{secrets.token_hex(2)}"
        folder.mkdir()
        prometheus = Prometheus("prometheus", folder, extenders)
        plane.programs.append(prometheus)
        return prometheus

    return watch


def test_every_alert_has_a_test() -> None:
    assert {each.name for each in rules.alerts()} == set(CASES)


def test_promtool_accepts_rules_and_metrics(tmp_path: Path, gang_scheduler: GangScheduler) -> None:
    shipped = tmp_path / "rules.yaml"
    shipped.write_text(yaml.safe_dump(rules.shipped()))
    assert f"{len(rules.alerts())} rules found" in promtool("check", "rules", shipped)

    scraped = gang_scheduler.extender.page("/metrics")
    # volcano_queue_… have Volcano's names, which promtool would complain about.
    ours = "".join(
        line
        for line in scraped.splitlines(keepends=True)
        if not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith("volcano_")
    )
    promtool("check", "metrics", stdin=ours)


def test_every_panel_of_the_dashboard_has_data(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    tmp_path: Path,
    watching: Callable[..., Prometheus],
) -> None:
    """With a running gang, a waiting one, and certificates."""
    make_certificates(tmp_path, "--days=1")
    pool = nodes(1, cpu="2")
    with (
        plane.extender(NAME, *server_flags(tmp_path)) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, *client_flags(tmp_path))),
        watching(extender) as prometheus,
        plane.binds(namespace) as binds,
    ):
        prometheus.wait_until_scraped()
        gang(api, "runs", namespace, 2, pool, scheduler=SCHEDULER)
        gang(api, "waits", namespace, 2, pool, scheduler=SCHEDULER)
        binds.wait_for(2, 60)
        filled = {
            "$__rate_interval": "10m",
            "$job": "gang-extender",
            "$queue": ".*",
            "$resource": "cpu",
        }
        for expression in dashboard.panel_expressions():
            for variable, value in filled.items():
                expression = expression.replace(variable, value)
            wait_for(partial(prometheus.query, expression), 60, f"{expression} has an answer")


# Running extenders


@fires("GangExtenderAbsent")
def test_absent_extender_fires_until_it_runs_again(
    plane: ControlPlane, watching: Callable[..., Prometheus]
) -> None:
    with plane.extender(NAME) as extender, watching(extender) as prometheus:
        prometheus.wait_until_scraped()

        extender.kill()
        prometheus.wait_until_firing("GangExtenderAbsent")

        extender.start()
        prometheus.wait_until_quiet()


@fires("GangExtenderTwoLeaders")
def test_two_leaders_fire(plane: ControlPlane, watching: Callable[..., Prometheus]) -> None:
    other = plane.extender("--scheduler-name=other-scheduler")
    with (
        plane.extender("--scheduler-name=some-scheduler") as extender,
        other,
        watching(extender, other) as prometheus,
    ):
        prometheus.wait_until_firing("GangExtenderTwoLeaders")

        other.terminate()
        prometheus.update_targets()
        prometheus.wait_until_quiet()


class FaultyLink(ServerLink):
    """A link that can refuse connections and delay data, and may be slow while it is down."""

    is_down = False
    delay_s = 0.0

    def choose(self) -> int:
        return 1 if self.is_down else super().choose()

    def take_down(self) -> None:
        self.is_down = True
        self._run(self._close_all())

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            try:
                while data := await source.read(65536):
                    await asyncio.sleep(self.delay_s)
                    sink.write(data)
                    await sink.drain()
            finally:
                sink.close()


@contextmanager
def behind_faulty_link(
    plane: ControlPlane, *arguments: str
) -> Iterator[tuple[Replica, FaultyLink]]:
    """Run an extender with a lease that reaches the API server over a faulty link."""
    name = f"link-{secrets.token_hex(2)}"
    with FaultyLink(plane.apiserver.ports[0]) as link:
        extender = Replica(
            f"gang-extender-{name}",
            plane.logs,
            kubeconfig=_kubeconfig_by(plane, "extender", name, link),
            arguments=(NAME, *arguments),
        )
        plane.programs.append(extender)
        with extender:
            yield extender, link


@pytest.fixture
def lease(api: Api, create: Create) -> list[str]:
    """Flags for a lease of the test's own, with its permissions."""
    name = f"watched-{secrets.token_hex(2)}"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    about = {"name": name, "namespace": EXTENDER_NAMESPACE}
    group = "rbac.authorization.k8s.io"
    create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": about,
            "rules": [{**rule, "verbs": ["get", "create", "patch"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [
                {
                    "kind": "ServiceAccount",
                    "name": "gang-extender",
                    "namespace": EXTENDER_NAMESPACE,
                }
            ],
        },
    )
    return [
        "--lease=own",
        f"--lease-name={name}",
        f"--lease-namespace={EXTENDER_NAMESPACE}",
        f"--lease-identity={name}",
    ]


@fires("GangExtenderNoLeader", "GangExtenderNotReady", "GangExtenderApiErrors")
def test_disconnected_extender_fires_until_it_is_connected(
    plane: ControlPlane, watching: Callable[..., Prometheus], lease: list[str]
) -> None:
    with (
        behind_faulty_link(plane, *lease) as (extender, link),
        watching(extender) as prometheus,
    ):
        wait_for(lambda: extender.leads, 60, "it leads")
        prometheus.wait_until_scraped()
        link.take_down()
        seen: set[str] = set()

        def all_fired() -> bool:
            seen.update(prometheus.alerts())
            return seen >= {"GangExtenderNoLeader", "GangExtenderNotReady", "GangExtenderApiErrors"}

        wait_for(all_fired, 240, "all three fire", seeing=lambda: seen, every_s=0.3)

        link.is_down = False
        prometheus.wait_until_quiet()


@fires("GangExtenderApiSlow")
def test_slow_api_server_fires(
    plane: ControlPlane, watching: Callable[..., Prometheus], lease: list[str]
) -> None:
    with (
        behind_faulty_link(plane, *lease) as (extender, link),
        watching(extender) as prometheus,
    ):
        wait_for(lambda: extender.leads, 60, "it leads")
        link.delay_s = 1.0
        prometheus.wait_until_firing("GangExtenderApiSlow")

        link.delay_s = 0.0
        prometheus.wait_until_quiet("GangExtenderApiSlow")


# Cycles and configuration

BROKEN = """
from pathlib import Path
from extender.planner.plugin import Plugin

class Broken(Plugin):
    def open(self, session):
        if Path({mark!r}).exists():
            raise RuntimeError("a plugin with a bug")
"""


@fires("GangExtenderCycleStuck")
def test_failing_cycles_fire(
    plane: ControlPlane, tmp_path: Path, watching: Callable[..., Prometheus]
) -> None:
    mark, about = tmp_path / "mark", tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gang_extender.plugins]\nbroken = broken:Broken\n")
    (tmp_path / "broken.py").write_text(BROKEN.format(mark=str(mark)))
    policy = tmp_path / "policy.yaml"
    policy.write_text(policy_parser.DEFAULT_TEXT + "- plugins:\n  - name: broken\n")
    path = {"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    with (
        plane.extender(NAME, f"--config={policy}", environment=path) as extender,
        watching(extender) as prometheus,
    ):
        mark.write_text("")
        prometheus.wait_until_firing("GangExtenderCycleStuck")

        mark.unlink()
        prometheus.wait_until_quiet()


@fires("GangExtenderPolicyRefused")
def test_invalid_policy_fires_until_it_is_corrected(
    plane: ControlPlane, tmp_path: Path, watching: Callable[..., Prometheus]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: allocate")
    with (
        plane.extender(NAME, f"--config={policy}") as extender,
        watching(extender) as prometheus,
    ):
        policy.write_text("actions: alocate")
        prometheus.wait_until_firing("GangExtenderPolicyRefused")

        policy.write_text("actions: allocate")
        prometheus.wait_until_quiet("GangExtenderPolicyRefused")


@fires("GangExtenderFindings")
def test_finding_fires_with_its_reason(
    plane: ControlPlane, api: Api, watching: Callable[..., Prometheus], namespace: str
) -> None:
    name = f"lost-{namespace}"
    with plane.extender(NAME) as extender, watching(extender) as prometheus:
        api.create(objects.queue(name, parent="missing"))
        try:
            fired = prometheus.wait_until_firing("GangExtenderFindings")
            assert fired["GangExtenderFindings"]["kind"] == "Queue"
        finally:
            api.delete(objects.QUEUES, name)
        prometheus.wait_until_quiet("GangExtenderFindings")


# Gangs


@fires("GangExtenderGangStarved", "GangExtenderEvictionsRefused")
def test_starved_gang_and_refused_evictions_fire_until_evictions_are_allowed(
    plane: ControlPlane,
    api: Api,
    watching: Callable[..., Prometheus],
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    # A cpu of each node stays unused: kube-scheduler calls filter only for pods that fit a node.
    pool = nodes(2, cpu="5")
    theirs, ours = f"a-{namespace}", f"b-{namespace}"
    create(objects.queue(theirs), objects.queue(ours))
    flags = (NAME, f"--node-selector={POOL}:{pool.selector[POOL]}")
    with (
        plane.extender(*flags) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME)),
        plane.binds(namespace) as binds,
        watching(extender) as prometheus,
    ):
        facts = {"scheduler": SCHEDULER, "labels": {"app": "borrower"}, "queue": theirs}
        for name in ("first", "second", "third", "fourth"):
            gang(api, name, namespace, 2, pool, **facts)
        binds.wait_for(8, 60)
        # The API server refuses evictions under a stale budget; the plan does not know that.
        api.create(objects.budget("keep", namespace, {"app": "borrower"}, minimum=0))
        set_budget(api, "keep", namespace, allowed=4, lag=-1)

        gang(api, "waiting", namespace, 4, pool, scheduler=SCHEDULER, queue=ours)
        fired = prometheus.wait_until_firing(
            "GangExtenderGangStarved", "GangExtenderEvictionsRefused", seconds=240
        )
        assert fired["GangExtenderGangStarved"]["queue"] == ours

        set_budget(api, "keep", namespace, allowed=4)
        binds.wait_for(12, 120)
        prometheus.wait_until_quiet("GangExtenderGangStarved", "GangExtenderEvictionsRefused")


@fires("GangExtenderSchedulerSilent")
def test_dead_kube_scheduler_fires_while_pods_wait(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    watching: Callable[..., Prometheus],
) -> None:
    pool = nodes(1)
    with (
        plane.extender(NAME, "--reservation-s=5") as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME)) as scheduler,
        watching(extender) as prometheus,
        plane.binds(namespace) as binds,
    ):
        gang(api, "early", namespace, 2, pool, scheduler=SCHEDULER)
        binds.wait_for(2, 60)

        scheduler.kill()
        gang(api, "late", namespace, 2, pool, scheduler=SCHEDULER)
        fired = prometheus.wait_until_firing("GangExtenderSchedulerSilent")
        assert fired["GangExtenderSchedulerSilent"]["scheduler"] == SCHEDULER

        scheduler.start()
        binds.wait_for(4, 120)
        prometheus.wait_until_quiet("GangExtenderSchedulerSilent")


@fires("GangExtenderPartialCommit")
def test_partially_bound_gang_fires(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    watching: Callable[..., Prometheus],
) -> None:
    with (
        plane.extender(*OURS) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME)) as scheduler,
        watching(extender) as prometheus,
        BindingWebhook(api, plane.apiserver, namespace) as webhook,
        plane.binds(namespace) as binds,
    ):
        prometheus.wait_until_scraped()
        stage = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(2))
        webhook.deny("train-1")
        stage.create_waiting(2, minimum=3)
        stage.add(2)
        binds.wait_for(2, 60)
        prometheus.wait_until_firing("GangExtenderPartialCommit")

        webhook.allow_all()
        binds.wait_for(3, 120)
        prometheus.wait_until_quiet("GangExtenderPartialCommit")


@fires("GangExtenderTimeoutsDiffer")
def test_shorter_timeout_of_kube_scheduler_fires(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    watching: Callable[..., Prometheus],
) -> None:
    with (
        plane.extender(*OURS) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, "--bind-timeout-s=2")) as scheduler,
        watching(extender) as prometheus,
    ):
        stage = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        stage.create_waiting(1, minimum=2)
        prometheus.wait_until_firing("GangExtenderTimeoutsDiffer")


# Certificates


@fires("GangExtenderCertificateExpires", "GangExtenderCertificateRefused")
def test_expiring_and_invalid_certificates_fire_until_they_are_renewed(
    plane: ControlPlane, tmp_path: Path, watching: Callable[..., Prometheus]
) -> None:
    folder = tmp_path / "tls"
    make_certificates(folder, "--days=1")
    certificate, key = folder / "server.crt", folder / "server.key"
    good = certificate.read_bytes(), key.read_bytes()
    with (
        plane.extender(NAME, *server_flags(folder)) as extender,
        watching(extender) as prometheus,
    ):
        prometheus.wait_until_scraped()
        short = Authority.new("for an hour", 1 / 24).for_server(["127.0.0.1"], 1 / 24)
        key.write_bytes(short.key)
        certificate.write_bytes(short.certificate)
        fired = prometheus.wait_until_firing("GangExtenderCertificateExpires")
        assert fired["GangExtenderCertificateExpires"]["setting"] == "tls-cert-file"

        key.write_text("no key")
        prometheus.wait_until_firing("GangExtenderCertificateRefused")

        key.write_bytes(good[1])
        certificate.write_bytes(good[0])
        prometheus.wait_until_quiet()


@fires("GangExtenderCallersRefused")
def test_refused_kube_scheduler_fires_with_the_reason(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    tmp_path: Path,
    watching: Callable[..., Prometheus],
) -> None:
    make_certificates(tmp_path, "--client-name=system:node:somewhere")
    with (
        plane.extender(NAME, *server_flags(tmp_path)) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, *client_flags(tmp_path))),
        watching(extender) as prometheus,
    ):
        # Refused handshakes count after the first scrape.
        prometheus.wait_until_scraped()
        facts = {"scheduler": SCHEDULER, "node_selector": nodes(1).selector}
        api.create(*objects.pods(9, "plain", namespace, **facts))

        fired = prometheus.wait_until_firing("GangExtenderCallersRefused")
        assert fired["GangExtenderCallersRefused"]["reason"] == "name"
