"""Commands send a token to an extender that authenticates, but never over plain http."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import completion, connect
from extender.cli.connect import Address, Target
from extender.cli.main import main
from extender.errors import InvalidInput, NoResponse
from extender.tls.issue import Authority
from extender.web.server import OperationsServer
from tests.unit.cli.fake_kubectl import FakeKubectl, pod
from tests.unit.web.conftest import World
from tests.unit.web.test_token_reviews import FakeTokenReviews


@pytest.fixture
def registrar() -> FakeTokenReviews:
    return FakeTokenReviews()


@pytest.fixture
def url(registrar: FakeTokenReviews) -> Iterator[str]:
    """Run an extender that authenticates readers."""
    with World() as world:
        port = OperationsServer(world.runtime.pages, reviewer=registrar)
        port.start(world.ops_socket)
        yield f"http://127.0.0.1:{world.ops_port}"
        port.stop()


@pytest.fixture
def good(tmp_path: Path) -> str:
    """Write a file with a valid token."""
    file = tmp_path / "token"
    file.write_text("good\n")
    return str(file)


def kubeconfig(path: Path, **user: object) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, [*words], env=environment)


@pytest.mark.parametrize("command", [("queues",), ("gangs", "-A"), ("explain", "a/b"), ("top",)])
def test_a_request_without_a_token_is_refused_with_the_remedy(
    url: str, command: tuple[str, ...], registrar: FakeTokenReviews
) -> None:
    ran = run(*command, f"--ops-url={url}")

    assert ran.exit_code == 2
    assert ran.output.count("\n") == 1
    assert "requires authentication (--ops-auth)" in ran.output
    assert "--token-from kubeconfig" in ran.output
    assert registrar.asked == []


def test_the_token_of_a_file_is_sent(url: str, good: str) -> None:
    by_flag = run("queues", "-o", "json", f"--ops-url={url}", f"--token-from={good}")
    by_variable = run("queues", "-o", "json", f"--ops-url={url}", GANG_EXTENDER_TOKEN_FROM=good)

    for ran in (by_flag, by_variable):
        assert ran.exit_code == 0, ran.output
        assert json.loads(ran.stdout)["kind"] == "QueueList"


def test_the_token_of_the_kubeconfig_is_sent_through_the_forwarded_port(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeKubectl(tmp_path)
    fake.forward_to(url)
    fake.list(pod("one", leads=True))
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    config = kubeconfig(tmp_path / "config", token="good")

    without = run("queues", KUBECONFIG=str(config))
    ran = run("queues", "--token-from=kubeconfig", KUBECONFIG=str(config))

    assert without.exit_code == 2
    assert "pod gang-system/one requires authentication" in without.output
    assert ran.exit_code == 0, ran.output


def test_an_invalid_or_unauthorized_token_is_refused_with_the_remedy(
    url: str, tmp_path: Path, registrar: FakeTokenReviews
) -> None:
    (tmp_path / "bad").write_text("made-up")
    (tmp_path / "poor").write_text("poor")
    bad, poor = (
        run("queues", f"--ops-url={url}", f"--token-from={tmp_path / name}")
        for name in ("bad", "poor")
    )
    registrar.error = NoResponse("gone")
    (tmp_path / "other").write_text("other")
    unanswered = run("queues", f"--ops-url={url}", f"--token-from={tmp_path / 'other'}")

    assert "refuses access: the API server does not know this token" in bad.output
    assert "refuses access: tenant may not get /gang-extender/plan" in poor.output
    assert "cannot answer: the API server does not answer token reviews" in unanswered.output
    for ran in (bad, poor, unanswered):
        assert (ran.exit_code, ran.output.count("\n")) == (2, 1)


def test_doctor_without_a_token_reports_the_findings_as_not_checked(url: str) -> None:
    ran = run("doctor", "--offline", f"--ops-url={url}", "-o", "json")

    told = json.loads(ran.stdout)
    assert ran.exit_code != 0
    assert [each["what"] for each in told["not_checked"]] == ["findings of the extender"]
    assert "requires authentication" in told["not_checked"][0]["why"]


def test_a_client_certificate_is_not_a_token_and_the_remedy_is_named(tmp_path: Path) -> None:
    pair = Authority.new("some CA", days=1).for_client("reader", days=1)
    config = kubeconfig(
        tmp_path / "config",
        **{
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        },
    )

    with pytest.raises(
        InvalidInput,
        match=r"the kubeconfig has no token\. The extender cannot check a client certificate",
    ) as told:
        connect.read_token(Target(kubeconfig=str(config), token_from="kubeconfig"))
    assert "kubectl create token ACCOUNT" in str(told.value)


def test_no_token_is_sent_over_plain_http_to_another_host(good: str) -> None:
    where = Target(token_from=good)

    with pytest.raises(InvalidInput, match=r"over plain http to example\.com:8889"):
        connect.read_token(where, "http://reader:secret@example.com:8889")
    for url in ("http://127.0.0.1:8889", "http://localhost:8889", "http://[::1]:1", "https://a"):
        assert connect.read_token(where, url) == "good"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"hush\nhush", b"\xff\xfe", b"x" * 20_000], ids=repr
)
def test_a_file_without_a_token_is_refused_without_quoting_it(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    with pytest.raises(InvalidInput, match="has no token") as told:
        connect.read_token(Target(token_from=str(file)))
    assert "hush" not in str(told.value)
    with pytest.raises(InvalidInput, match="missing cannot be read: No such file"):
        connect.read_token(Target(token_from=str(tmp_path / "missing")))


def test_an_address_is_printed_without_its_token() -> None:
    assert "hush" not in f"{Address('http://x', token='hush')!r}"


def test_completion_sends_the_given_token(url: str, good: str) -> None:
    command = main.commands["explain"]
    for words, environment in (
        ([f"--token-from={good}"], {}),
        ([], {"GANG_EXTENDER_TOKEN_FROM": good}),
    ):
        with CliRunner().isolation(env=environment):
            told = [*words, f"--ops-url={url}"]
            context = command.make_context("explain", told, resilient_parsing=True, obj=10.0)
            (found,) = completion.queue_names(context, command.params[0], "")
            assert found.value == "default"
