"""kube-scheduler and the hooks over mutual TLS, with `gang-extender certificates`."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import urllib3

from extender.tls.issue import Authority
from tests import objects

from .api import Api
from .certificates import client_flags, make_certificates, server_flags
from .control_plane import ControlPlane
from .extender_process import Extender
from .observer import WHOLE_S
from .train_gang import OURS, SCHEDULER, GangScheduler, Pool, TrainGang
from .waiting import wait_for

Nodes = Callable[..., Pool]
NAME = f"--scheduler-name={SCHEDULER}"
EXPIRY = "gang_extender_certificate_expiry_seconds"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "tls", "--days=1")
    return tmp_path / "tls"


def refused(extender: Extender, reason: str) -> float:
    return extender.metric("gang_extender_tls_refused_total", reason=reason)


def test_gang_starts_over_mutual_tls_while_certificates_are_renewed(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, folder: Path
) -> None:
    with (
        plane.extender(*OURS, *server_flags(folder)) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, *client_flags(folder))) as scheduler,
        plane.binds(namespace) as binds,
    ):
        assert extender.url.startswith("https://")
        pool = nodes(1)
        train = TrainGang(api, GangScheduler(extender, scheduler), namespace, pool)
        train.create_waiting(2, minimum=3)

        before = extender.metric(EXPIRY, setting="tls-cert-file")
        make_certificates(folder, "--renew", "--days=30")
        wait_for(
            lambda: extender.metric(EXPIRY, setting="tls-cert-file") > before,
            20,
            "the new certificate is in force",
        )
        assert extender.waiting_binds == 2
        train.add(2)
        binds.wait_for(3, 40)
        assert binds.spread_s() < WHOLE_S

        # Later pods use new connections too.
        facts = {"scheduler": SCHEDULER, "node_selector": pool.selector}
        api.create(*(objects.pod(f"plain-{n}", namespace, cpu="10m", **facts) for n in range(9)))
        binds.wait_for(12, 40)
        assert [refused(extender, why) for why in ("name", "unknown_ca", "other")] == [0, 0, 0]


def test_client_ca_is_replaced_while_binds_wait(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, folder: Path
) -> None:
    callers = folder / "callers.crt"
    callers.write_bytes((folder / "ca.crt").read_bytes())
    flags = [*server_flags(folder)[:2], f"--client-ca-file={callers}"]
    with (
        plane.extender(*OURS, *flags) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, *client_flags(folder))) as scheduler,
        plane.binds(namespace) as binds,
    ):
        pool = nodes(1, cpu="32")
        train = TrainGang(api, GangScheduler(extender, scheduler), namespace, pool)
        train.create_waiting(2, minimum=3)

        before = extender.metric(EXPIRY, setting="client-ca-file")
        after = Authority.new("the next CA", days=9)
        pair = after.for_client("system:kube-scheduler", days=9)
        (folder / "client.key").write_bytes(pair.key)
        (folder / "client.crt").write_bytes(pair.certificate)
        callers.write_bytes(after.pair.certificate)
        wait_for(
            lambda: extender.metric(EXPIRY, setting="client-ca-file") < before,
            20,
            "the new authority is in force",
        )
        assert extender.waiting_binds == 2
        train.add(2)
        binds.wait_for(3, 40)

        # All of these binds wait at once, each on its own connection, most of them new.
        api.create(objects.pod_group("next", namespace, 12))
        facts = {"gang": "next", "scheduler": SCHEDULER, "node_selector": pool.selector}
        api.create(*objects.pods(12, "next", namespace, **facts))
        binds.wait_for(15, 40)
        assert refused(extender, "unknown_ca") == 0


def test_kube_scheduler_with_another_client_name_is_refused(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    make_certificates(tmp_path, "--client-name=system:node:somewhere")
    with (
        plane.extender(*OURS, *server_flags(tmp_path)) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, *client_flags(tmp_path))),
    ):
        facts = {"scheduler": SCHEDULER, "node_selector": nodes(1).selector}
        api.create(objects.pod("plain", namespace, **facts))

        wait_for(lambda: refused(extender, "name") >= 1, 20, "its name is refused")

        assert extender.metric("gang_extender_hook_seconds_count", verb="filter") == 0
        (pod,) = api.list("pods", namespace)
        assert not objects.node_of(pod)


def test_operations_port_reloads_its_certificate(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.crt"))
    pair = (
        f"--ops-tls-cert-file={folder}/server.crt",
        f"--ops-tls-private-key-file={folder}/server.key",
    )
    with plane.extender(*OURS, *pair) as extender:  # started when /readyz answers over TLS
        before = extender.metric(EXPIRY, setting="ops-tls-cert-file")
        assert before > 0

        make_certificates(folder, "--renew", "--days=30")
        wait_for(
            lambda: extender.metric(EXPIRY, setting="ops-tls-cert-file") > before,
            20,
            "the new certificate is in force",
        )
        shown = ssl.get_server_certificate(("127.0.0.1", extender.ports[1]))
        assert shown == (folder / "server.crt").read_text()
        plain = extender.ops_url.replace("https", "http")
        with (
            urllib3.PoolManager(retries=False, timeout=2) as http,
            pytest.raises(urllib3.exceptions.HTTPError),
        ):
            http.request("GET", f"{plain}/healthz")
