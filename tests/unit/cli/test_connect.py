"""Commands find the extender as kubectl would, without an address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import connect as connect_module, kubectl as kubectl_module
from extender.cli.connect import Address, Target, connect, get_document
from extender.cli.kubectl import choose, current_namespace
from extender.cli.main import main
from extender.errors import InvalidInput
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.status.history import GangHistory
from tests.cluster.waiting import wait_for
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.cli.fake_kubectl import FakeKubectl, pod
from tests.unit.cli.wrong_servers import RIGHT_SERVER, serving

ROOT = Path(__file__).parents[3]
CLOSED_PORT = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def train(history: GangHistory) -> None:
    history.note(
        snapshot(gang("train", status=Status.PENDING)),
        plan(verdict("a/train", Reason.INSUFFICIENT_CAPACITY)),
    )


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ops_url: str) -> FakeKubectl:
    fake = FakeKubectl(tmp_path)
    fake.forward_to(ops_url)
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path / "config")))
    return fake


@pytest.fixture(autouse=True)
def set_loopback(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Use a closed loopback address; return a function that sets another one."""

    def use(url: str) -> None:
        monkeypatch.setattr(connect_module, "DEFAULT_URL", url)
        monkeypatch.setattr(connect_module, "_LOOPBACK", connect_module.Address(url))

    use(CLOSED_PORT)
    return use


def _kubeconfig(path: Path, **contexts: str) -> Path:
    about = [{"name": n, "context": {"namespace": s}} for n, s in contexts.items()]
    path.write_text(yaml.safe_dump({"current-context": "b", "contexts": about}))
    return path


def explain(*words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["explain", "a/train", *words], env=env)


def test_the_leader_is_called_without_any_flag(kubectl: FakeKubectl) -> None:
    kubectl.list(pod("first"), pod("second", leads=True))

    result = explain()

    assert result.exit_code == 0, result.output
    assert "a/train  waiting" in result.output
    listing, forward = kubectl.calls()
    assert "get --raw /api/v1/namespaces/gang-system/pods?labelSelector=" in listing
    assert "port-forward --namespace=gang-system --address=127.0.0.1 pod/second :8889" in forward
    (child,) = kubectl.forwards()
    assert not _runs(child), "the port forward ends with the command"


def test_kubeconfig_context_and_namespace_are_passed_to_kubectl(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    kubectl.list(pod("one", leads=True, namespace="elsewhere"))
    explain(f"--kubeconfig={tmp_path}/config", "--context=prod", "--extender-namespace=elsewhere")

    for call in kubectl.calls():
        assert call.startswith(f"--kubeconfig={tmp_path}/config --context=prod ")
    assert "namespaces/elsewhere/pods" in kubectl.calls()[0]
    assert "--namespace=elsewhere" in kubectl.calls()[1]


def test_a_given_address_is_called_without_kubectl(kubectl: FakeKubectl, ops_url: str) -> None:
    assert explain("--ops-url", ops_url).exit_code == 0
    assert explain(env={"GANG_EXTENDER_OPS_URL": ops_url}).exit_code == 0
    assert kubectl.calls() == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_the_port_forward_ends_when_the_command_is_killed(kubectl: FakeKubectl, name: str) -> None:
    kubectl.list(pod("one", leads=True))
    code = (
        "from extender.cli.connect import connect, Target\n"
        "with connect(Target()):\n"
        "    print('here', flush=True)\n"
        "    input()\n"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"here\n"
        command.send_signal(signal.Signals[name])
        command.wait()
        assert command.stderr is not None
        assert command.stderr.read() == b""

    (child,) = kubectl.forwards()
    wait_for(lambda: not _runs(child), 30, "kubectl has ended")


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("here", "elsewhere", "told"),
    [
        ([], [], "namespace gang-system has no pod with the label"),
        ([], [], "give --extender-namespace NAMESPACE"),
        (
            [],
            [pod("mine", leads=True, namespace="tenant")],
            "they are in tenant, so give --extender-namespace tenant",
        ),
        (
            [pod("one", phase="Pending")],
            [],
            "no extender runs in namespace gang-system: one Pending; see kubectl describe",
        ),
    ],
)
def test_a_namespace_without_a_running_extender_is_named_and_no_other_is_used(
    kubectl: FakeKubectl, here: list[Any], elsewhere: list[Any], told: str
) -> None:
    kubectl.list(*here)
    kubectl.list_everywhere(*elsewhere)

    result = explain()

    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert told in result.output
    assert kubectl.forwards() == []


@pytest.mark.parametrize(
    ("kind", "said", "told"),
    [
        ("get", 'Error from server (Forbidden): pods is forbidden: User "u"', "pods is forbidden"),
        ("get", 'error: context "x" does not exist\n', 'context "x" does not exist'),
        ("get", "E1 log\nE2 log\nThe connection was refused\n", "kubectl: The connection was"),
        ("get", "", "kubectl: it gives no reason"),
        ("port-forward", "error: unable to forward port", "kubectl: unable to forward port"),
    ],
)
def test_an_error_of_kubectl_is_one_line(
    kubectl: FakeKubectl, kind: str, said: str, told: str
) -> None:
    kubectl.list(pod("one", leads=True))
    kubectl.refuse(kind, said)

    result = explain()

    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert told in result.output
    assert "E1" not in result.output


def test_a_server_without_an_api_and_a_missing_kubectl_are_reported(
    kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl.answer("<html>")
    assert "a server that is not an API server" in explain().output

    monkeypatch.setenv("PATH", str(tmp_path))
    assert "kubectl is not on the PATH" in explain().output


def test_a_kubectl_that_never_answers_times_out(
    kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl_module, "_COMMAND_S", 0.2)
    kubectl.never_answer()

    result = explain()

    assert result.exit_code == 2
    assert "kubectl did not answer within 0.2 s; if it requires a login, log in" in result.output


@pytest.mark.parametrize("service", ["", "10.0.0.1"])
def test_without_a_kubeconfig_loopback_is_used_without_a_note(
    set_loopback: Callable[[str], None],
    ops_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    service: str,
) -> None:
    """A pod of the extender has the variable of the service, and no kubectl."""
    set_loopback(ops_url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", service)
    monkeypatch.setenv("PATH", str(tmp_path))

    result = explain()

    assert (result.exit_code, result.stderr) == (0, "")


def test_loopback_is_used_with_a_note_for_a_cluster_without_extender_that_no_flag_names(
    set_loopback: Callable[[str], None], ops_url: str, kubectl: FakeKubectl
) -> None:
    set_loopback(ops_url)

    result = explain()

    assert result.exit_code == 0
    assert result.stderr.endswith(f"; using {ops_url} instead\n")
    assert explain("--context", "prod").exit_code == 2


def test_the_ca_in_ssl_cert_file_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))

    with serving(RIGHT_SERVER, tmp_path) as port:
        address = Address(f"https://127.0.0.1:{port}")
        assert get_document(address, dict, "plan") == {"generation": 1}


def test_no_extender_anywhere_is_one_line_with_the_remedy() -> None:
    result = explain()

    assert result.exit_code == 2
    assert result.output == (
        "gang-extender: no extender was found: there is no kubeconfig by $KUBECONFIG or at"
        f" ~/.kube/config; and no server listens at {CLOSED_PORT}; name the cluster with"
        " --kubeconfig or --context, or the port with --ops-url\n"
    )


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("a"), pod("b", leads=True)], "b"),
        ([pod("a", ready=False), pod("b")], "b"),
        ([pod("a", leads=True, deletionTimestamp="t"), pod("b", leads=True)], "b"),
        ([pod("a", leads=True, ready=False), pod("b")], "a"),
        ([pod("a", phase="Succeeded", leads=True), pod("b")], "b"),
    ],
)
def test_pods_are_chosen_by_leader_then_ready_then_not_terminating(
    pods: list[dict[str, Any]], chosen: str
) -> None:
    found = choose(pods)

    assert found is not None
    assert found.name == chosen


def test_port_and_scheme_are_read_from_the_pod() -> None:
    one = pod("one")
    one["spec"]["containers"][1] |= {
        "ports": [{"name": "ops", "containerPort": 9999}],
        "livenessProbe": {"httpGet": {"scheme": "HTTPS"}},
    }
    found = choose([one])

    assert found is not None
    assert (found.port, found.scheme) == (9999, "https")


@pytest.mark.parametrize("content", [b"- a list", b"{", b"a: b: c", b"\x00", b"[" * 100_000])
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)

    with pytest.raises(InvalidInput, match=f"kubeconfig {path} is not"):
        current_namespace(str(path))
    with pytest.raises(InvalidInput, match=f"kubeconfig {tmp_path} cannot be read: Is a dir"):
        current_namespace(str(tmp_path))


def test_a_second_connection_finds_the_new_leader(kubectl: FakeKubectl) -> None:
    for name in ("first", "second"):
        kubectl.list(pod(name, leads=True))
        with connect(Target()) as address:
            assert str(address) == f"pod gang-system/{name}"


def test_the_namespace_is_that_of_the_current_context(tmp_path: Path) -> None:
    path = str(_kubeconfig(tmp_path / "config", a="team-a", b="team-b", c=""))

    assert current_namespace(path) == "team-b"
    assert current_namespace(path, "a") == "team-a"
    assert current_namespace(path, "c") == "default"
    assert current_namespace(path, "unknown") == "default"


def test_the_first_kubeconfig_that_sets_a_value_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _kubeconfig(tmp_path / "first", b="mine")
    second = _kubeconfig(tmp_path / "second", b="other", z="zed")
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{missing}:{first}:{second}")

    assert current_namespace() == "mine"
    assert current_namespace(context="z") == "zed"
