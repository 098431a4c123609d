"""The hooks with the real kube-scheduler: packing, whole nodes, mutual TLS and the hook secret."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import urllib3

from extender.tls import hook_secret
from extender.tls.issue import Authority
from tests import objects

from .api import Api
from .binaries import known
from .certificates import client_flags, make_certificates, server_flags
from .control_plane import API_SERVER, SCHEDULER as KUBE_SCHEDULER, ControlPlane
from .extender_process import Extender
from .observer import WHOLE_S
from .train_gang import OURS, SCHEDULER, GangScheduler, Nodes, Pool, TrainGang, train_pair
from .waiting import wait_for


def test_api_server_has_the_selected_version(api: Api) -> None:
    assert api.request("GET", "/version")["gitVersion"] == known()[API_SERVER].version


def test_scheduler_has_the_selected_version(gang_scheduler: GangScheduler) -> None:
    log = gang_scheduler.scheduler.log_since_start()

    assert re.findall(r'"Starting Kubernetes Scheduler" version="(.+?)"', log) == [
        known()[KUBE_SCHEDULER].version
    ]


def test_ordinary_pods_are_packed_if_configured(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3)
    own = "--scheduler-name=packing-scheduler"
    with (
        plane.extender(own, "--prefer=pack") as extender,
        plane.scheduler(plane.scheduler_config(extender, own, "--prefer=pack")),
        plane.binds(namespace) as binds,
    ):
        for pod in objects.pods(
            3, "web", namespace, scheduler="packing-scheduler", node_selector=pool.selector
        ):
            api.create(pod)
            binds.wait_for(1, 10, prefix=pod["metadata"]["name"])

        assert len({bind.node for bind in binds.wait_for(3, 10)}) == 1


def test_scheduler_that_sends_whole_nodes_is_served(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, own = nodes(2), "--scheduler-name=whole-scheduler"
    rest = {"scheduler": "whole-scheduler", "node_selector": pool.selector}
    api.create(objects.pod_group("train", namespace, 2))
    with plane.extender(own) as extender:
        config = plane.scheduler_config(extender, own)
        assert "nodeCacheCapable: true" in config
        config = config.replace("nodeCacheCapable: true", "nodeCacheCapable: false")
        with plane.scheduler(config), plane.binds(namespace) as binds:
            api.create(objects.pod("web", namespace, **rest))
            api.create(*objects.pods(2, "train", namespace, gang="train", **rest))

            binds.wait_for(3, 10)


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
        train_pair(plane, *server_flags(folder), config=client_flags(folder)) as pair,
        plane.binds(namespace) as binds,
    ):
        extender = pair.extender
        assert extender.url.startswith("https://")
        pool = nodes(1)
        train = TrainGang(api, pair, namespace, pool)
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
        train_pair(plane, *flags, config=client_flags(folder)) as pair,
        plane.binds(namespace) as binds,
    ):
        extender, pool = pair.extender, nodes(1, cpu="32")
        train = TrainGang(api, pair, namespace, pool)
        train.create_waiting(2, minimum=3)

        before = extender.metric(EXPIRY, setting="client-ca-file")
        after = Authority.new("the next CA", days=9)
        client = after.for_client("system:kube-scheduler", days=9)
        (folder / "client.key").write_bytes(client.key)
        (folder / "client.crt").write_bytes(client.certificate)
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
    with train_pair(plane, *server_flags(tmp_path), config=client_flags(tmp_path)) as pair:
        extender = pair.extender
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


SECRET = "0123456789-abcdefghij_~."
OWN = "--scheduler-name=secret-scheduler"
SECRET_POD = {"scheduler": "secret-scheduler"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "hook-secret"
    made.write_text(SECRET)
    return made


class RecordingServer:
    """A server in place of an extender: it records the Authorization headers and refuses all."""

    def __init__(self) -> None:
        self.received: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.received.append(self.headers.get("Authorization", ""))
                self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps({"Error": "refused by the test"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def events_and_pods(api: Api, namespace: str) -> str:
    """Return all events and pods of the namespace as text."""
    return json.dumps([*api.list("events", namespace), *api.list("pods", namespace)])


def test_kube_scheduler_sends_the_secret_with_every_call_and_writes_it_into_no_event(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    server, pool = RecordingServer(), nodes(1)
    config = plane.scheduler_config(server, OWN, f"--hook-secret-file={file}")  # type: ignore[arg-type]
    selector = pool.selector
    with plane.scheduler(config):
        with server.listening():
            api.create(objects.pod("called", namespace, node_selector=selector, **SECRET_POD))
            wait_for(
                lambda: "refused by the test" in events_and_pods(api, namespace),
                60,
                "it was called",
            )
        # Without a server, its event has the URL.
        api.create(objects.pod("unanswered", namespace, node_selector=selector, **SECRET_POD))
        wait_for(
            lambda: server.url[7:] in events_and_pods(api, namespace), 60, "the event has the URL"
        )

    encoded = base64.b64encode(f"{hook_secret.USER}:{SECRET}".encode()).decode()
    assert set(server.received) == {f"Basic {encoded}"}
    assert SECRET not in events_and_pods(api, namespace)


def test_pair_with_a_shared_secret_starts_gangs(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    pool, flag = nodes(2), f"--hook-secret-file={file}"
    with (
        plane.extender(OWN, flag) as extender,
        plane.scheduler(plane.scheduler_config(extender, OWN, flag)),
    ):
        api.create(objects.pod_group("train", namespace, 2))
        like = {"gang": "train", "node_selector": pool.selector, **SECRET_POD}
        api.create(*objects.pods(2, "train", namespace, **like))
        wait_for(
            lambda: all(objects.node_of(pod) for pod in api.list("pods", namespace)),
            60,
            "the gang has started",
        )
