"""Authentication of readers of the operations port, with the real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
import yaml

from tests.cluster.api import Object
from tests.cluster.binaries import ensure
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.cluster.extender_process import REPOSITORY, Extender
from tests.cluster.permissions import EVERYWHERE, RBAC, TOKEN_REVIEWS, Account
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.nightly.attacks.attackers import ADDRESS

from .forwarding import LEADER, ForwardingKubelet, extender_pod, scripts
from .prometheus import Prometheus

#: The caches of the extender and of the API server (ten seconds) expire within this time.
EXPIRED_S = 60
TIMEOUT_S = 60
PAGES = ("/", "/metrics", "/api/v1/plan", "/api/v1/gangs", "/api/v1/snapshot", "/nothing")
PROBES = ("/healthz", "/readyz", "/warmz")
METRICS, EVERYTHING = "gang-extender-reads-metrics", "gang-extender-reads-pages"


@dataclass(frozen=True)
class Lab:
    """An extender that authenticates readers, and accounts of readers."""

    plane: ControlPlane
    account: Account
    extender: Extender

    def get(self, path: str, token: str = "", of: Extender | None = None) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        with urllib3.PoolManager(retries=False, timeout=30) as http:
            url = (of or self.extender).ops_url + path
            response = http.request("GET", url, headers=headers, redirect=False)
            return response.status, response.data.decode()

    def status_from_elsewhere(self, path: str, token: str) -> int:
        """Read from another client address, and return the status, 0 without a response."""
        headers = {"authorization": f"Bearer {token}"}
        with urllib3.PoolManager(retries=False, timeout=30, source_address=(ADDRESS, 0)) as http:
            try:
                return http.request("GET", self.extender.ops_url + path, headers=headers).status
            except urllib3.exceptions.ProtocolError:
                return 0

    def status(self, path: str, token: str = "", of: Extender | None = None) -> int:
        return self.get(path, token, of)[0]

    def reader(self, name: str, role: str = "") -> str:
        """Create a service account in the namespace default, and return its name."""
        about = {"name": name, "namespace": "default"}
        self.plane.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
        if role:
            self.plane.api.create(
                {
                    "apiVersion": f"{RBAC}/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "ServiceAccount", **about}],
                }
            )
        return name

    def token(self, name: str, *audiences: str) -> str:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200, "audiences": [*audiences]},
        }
        path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
        token: str = self.plane.api.request("POST", path, request)["status"]["token"]
        return token

    def wait_for_status(
        self, path: str, token: str, status: int, of: Extender | None = None
    ) -> None:
        wait_for(
            lambda: self.status(path, token, of) == status,
            EXPIRED_S,
            f"{path} is answered with {status}",
            seeing=lambda: self.get(path, token, of)[1][:300],
        )

    def reviews(self) -> int:
        """Return the number of token reviews, by the audit log."""
        events = self.plane.audited(self.account.user)
        return sum(each["objectRef"]["resource"] == "tokenreviews" for each in events)


@pytest.fixture(scope="module")
def lab(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    with ControlPlane(tmp_path_factory.mktemp("readers")) as plane:
        plane.install()
        plane.kubectl("apply", "-k", MANIFESTS / "ops-auth")
        account = Account(plane, "asking", (*EVERYWHERE, *TOKEN_REVIEWS))
        with extender(plane, account) as made:
            yield Lab(plane, account, made)


@contextmanager
def extender(plane: ControlPlane, account: Account, *arguments: str) -> Iterator[Extender]:
    made = Extender(
        f"asking-{len(plane.programs)}",
        plane.logs,
        kubeconfig=account.kubeconfig,
        arguments=("--ops-auth=tokenreview", *arguments),
    )
    plane.programs.append(made)
    with made:
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_reader_without_a_token_is_refused(lab: Lab, path: str) -> None:
    status, text = lab.get(path)

    assert status == 401
    assert json.loads(text).keys() == {"error"}


@pytest.mark.parametrize("path", PROBES)
def test_probes_need_no_token(lab: Lab, path: str) -> None:
    assert lab.status(path) == 200
    assert lab.status(path, "made-up") == 200


@pytest.mark.parametrize("path", PAGES)
def test_unknown_token_is_refused(lab: Lab, path: str) -> None:
    assert lab.status(path, "made-up") == 401


def test_account_without_permissions_reads_nothing(
    lab: Lab,
) -> None:
    token = lab.token(lab.reader("without-permissions"))
    client = lab.plane.api.with_token(token)
    # The API server allows such a path to every authenticated user, so pages have another prefix.
    assert client.request("GET", "/api/v1")["kind"] == "APIResourceList"
    user = "system:serviceaccount:default:without-permissions"
    for path, is_allowed in (("/api/v1/plan", True), ("/gang-extender/plan", False)):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:authenticated"],
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        }
        where = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        allowed = lab.plane.api.request("POST", where, review)["status"]["allowed"]
        assert allowed is is_allowed, path

    for path in PAGES:
        status, text = lab.get(path, token)
        assert status == 403, path
        assert f"{user} may not get" in text


def test_permission_for_metrics_allows_metrics_alone(lab: Lab) -> None:
    token = lab.token(lab.reader("scraper", METRICS))

    lab.wait_for_status("/metrics", token, 200)
    assert "gang_extender_ready" in lab.get("/metrics", token)[1]
    for path in PAGES:
        assert lab.status(path, token) == (200 if path == "/metrics" else 403), path


def test_permission_for_all_pages_allows_all_pages(lab: Lab) -> None:
    token = lab.token(lab.reader("operator", EVERYTHING))

    lab.wait_for_status("/api/v1/plan", token, 200)
    for path in PAGES:
        assert lab.status(path, token) == (404 if path == "/nothing" else 200), path
    assert lab.status("/api/v1/gangs/default/none", token) == 404


def test_token_of_a_deleted_account_is_refused_soon(lab: Lab) -> None:
    token = lab.token(lab.reader("leaving", EVERYTHING))
    lab.wait_for_status("/metrics", token, 200)
    lab.plane.api.delete("serviceaccounts", "leaving", "default")

    lab.wait_for_status("/metrics", token, 401)


def test_revoked_permission_is_refused_soon(lab: Lab) -> None:
    token = lab.token(lab.reader("revoked", EVERYTHING))
    lab.wait_for_status("/metrics", token, 200)
    lab.plane.api.delete(f"clusterrolebindings.{RBAC}/v1", "revoked")

    lab.wait_for_status("/metrics", token, 403)


def test_with_an_audience_other_tokens_are_refused(lab: Lab) -> None:
    name = lab.reader("bound", EVERYTHING)
    usual, bound = lab.token(name), lab.token(name, "gang-extender")
    with extender(lab.plane, lab.account, "--ops-audience=gang-extender") as other:
        lab.wait_for_status("/metrics", bound, 200, other)
        assert lab.status("/metrics", usual, other) == 401
    # Tokens for this audience are refused elsewhere.
    assert lab.status("/metrics", bound) == 401
    with pytest.raises(Exception, match="401"):
        lab.plane.api.with_token(bound).request("GET", "/api/v1")


def test_many_unknown_tokens_cause_few_reviews_and_others_can_read(
    lab: Lab,
) -> None:
    token = lab.token(lab.reader("patient", METRICS))
    lab.wait_for_status("/metrics", token, 200)
    before, began = lab.reviews(), time.monotonic()
    with ThreadPoolExecutor(40) as threads:
        requests = threads.map(
            lambda n: lab.status_from_elsewhere("/metrics", f"made-up-{n}"), range(2000)
        )
        served = [lab.status("/metrics", token) for _ in range(50)]
        statuses = [*requests]
    took_s = time.monotonic() - began

    assert served == [200] * 50
    assert {401, 429} <= set(statuses) <= {401, 429, 0}
    # Twenty at once, then five per second, and those of the other reader.
    assert lab.reviews() - before <= 20 + 5 * took_s + took_s / 10 + 2


def test_without_an_api_server_pages_are_refused_and_probes_answered(
    lab: Lab,
) -> None:
    token = lab.token(lab.reader("unlucky", METRICS))
    lab.wait_for_status("/metrics", token, 200)
    os.kill(lab.plane.apiserver.pid, signal.SIGSTOP)
    try:
        lab.wait_for_status("/metrics", token, 503)
        assert "the API server does not answer token reviews" in lab.get("/metrics", token)[1]
        assert lab.status("/healthz") == 200
    finally:
        os.kill(lab.plane.apiserver.pid, signal.SIGCONT)

    lab.wait_for_status("/metrics", token, 200)


def test_log_has_no_tokens(lab: Lab) -> None:
    token = lab.token(lab.reader("logged"))
    lab.status("/metrics", token)
    lab.status("/metrics", "secret-token")
    logs = "".join(path.read_text() for path in lab.plane.logs.glob("asking-*"))

    assert "a caller was refused" in logs
    assert token not in logs
    assert "secret-token" not in logs


def test_prometheus_scrapes_with_its_token_as_documented(lab: Lab, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "operate.md").read_text()
    shown = page.partition("<!-- scrape-authorization -->\n```yaml\n")[2].partition("```")[0]
    (tmp_path / "token").write_text(lab.token(lab.reader("prometheus", METRICS)))
    where = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert where in shown
    scrapes = yaml.safe_load(shown.replace(where, str(tmp_path / "token")))
    with Prometheus("scraping", tmp_path, [lab.extender], scrapes) as scraping:
        lab.plane.programs.append(scraping)
        wait_for(
            lambda: [each["value"][1] for each in scraping.query("gang_extender_ready")] == ["1"],
            TIMEOUT_S,
            "it is scraped",
            seeing=lambda: scraping.query("up"),
        )
        # Without its permission it cannot scrape.
        lab.plane.api.delete(f"clusterrolebindings.{RBAC}/v1", "prometheus")
        wait_for(
            lambda: [each["value"][1] for each in scraping.query("up")] == ["0"],
            EXPIRED_S,
            "it is not scraped any more",
            every_s=0.3,
        )


# The command line


RunCommand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run_command(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunCommand]:
    """Runs a command that reaches the extender through the API server."""
    folder = tmp_path_factory.mktemp("commands")
    found = ensure("kubectl", "kwok")
    tools = scripts(folder / "bin")
    kubelet = ForwardingKubelet(
        found["kwok"],
        folder,
        lab.plane.logs,
        kubeconfig=lab.plane.kubeconfig("kwok"),
        forwards={LEADER: lab.extender.ports[1]},
    )
    lab.plane.programs.append(kubelet)
    with ExitStack() as running:
        running.enter_context(kubelet)
        lab.plane.api.create(kubelet.node("kubelet"), extender_pod(LEADER, leads=True))
        status: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        change = {"status": status}
        lab.plane.api.patch("pods", LEADER, change, EXTENDER_NAMESPACE, subresource="status")
        path = f"{tools}:{found['kubectl'].parent}:{os.environ['PATH']}"
        environment = {
            "HOME": str(folder),
            "PATH": path,
            "PYTHONPATH": str(REPOSITORY),
            "KUBECONFIG": str(lab.plane.kubeconfig()),
        }

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                words, capture_output=True, text=True, env=environment, timeout=120
            )

        yield run


def test_command_line_reports_a_missing_token_and_sends_that_of_the_kubeconfig(
    run_command: RunCommand,
) -> None:
    def without() -> subprocess.CompletedProcess[str]:
        return run_command("kubectl", "gang", "queues")

    wait_for(
        lambda: "requires authentication (--ops-auth)" in without().stderr,
        120,
        "the missing token is reported",
        seeing=lambda: without().stderr,
    )
    ran = run_command("kubectl", "gang", "queues", "-o", "json", "--token-from=kubeconfig")

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["kind"] == "QueueList"


def test_command_line_sends_the_token_of_a_file(
    lab: Lab, run_command: RunCommand, tmp_path: Path
) -> None:
    good, poor = tmp_path / "good", tmp_path / "poor"
    good.write_text(lab.token(lab.reader("typist", EVERYTHING)))
    poor.write_text(lab.token(lab.reader("guest")))
    lab.wait_for_status("/api/v1/plan", good.read_text(), 200)

    ran = run_command("gang-extender", "gangs", "-A", f"--token-from={good}")
    refused = run_command("gang-extender", "gangs", "-A", f"--token-from={poor}")

    assert ran.returncode == 0, ran.stderr
    assert refused.returncode == 2
    assert "system:serviceaccount:default:guest may not get /gang-extender/plan" in refused.stderr


def test_command_line_reads_over_tls(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [sys.executable, "-m", "extender", "certificates", f"--directory={tmp_path}/tls"]
    subprocess.run(made, cwd=REPOSITORY, check=True, timeout=60)
    # For all clients of this test, the readiness check included.
    monkeypatch.setenv("SSL_CERT_FILE", f"{tmp_path}/tls/ca.crt")
    pair = (
        f"--ops-tls-cert-file={tmp_path}/tls/server.crt",
        f"--ops-tls-private-key-file={tmp_path}/tls/server.key",
    )
    (tmp_path / "token").write_text(lab.token(lab.reader("afar", EVERYTHING)))
    with extender(lab.plane, lab.account, *pair) as other:
        command = [sys.executable, "-m", "extender", "queues", f"--ops-url={other.ops_url}"]

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*command, *words],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                timeout=120,
            )

        token_flag = f"--token-from={tmp_path}/token"
        wait_for(
            lambda: run(token_flag).returncode == 0,
            TIMEOUT_S,
            "it reads",
            seeing=lambda: run(token_flag),
        )
        assert run().returncode == 2
