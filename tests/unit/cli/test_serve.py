"""Settings that `serve` refuses at the start, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import main
from extender.settings import Settings
from tests.bench.bench_hooks import write_kubeconfig
from tests.certificates import HOSTS, Wallet, days_ago


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    return result.output


def test_plain_http_hooks_on_a_reachable_address_are_refused() -> None:
    assert "--listen 0.0.0.0:8888 is reachable from other machines" in refusal(
        "--listen=0.0.0.0:8888"
    )


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--log-level=foo", "--log-level 'foo' is not one of debug, info, warning, error"),
        (
            "--reservation-s=-3",
            "--reservation-s -3 is not a number of seconds; it must be more than 0",
        ),
        ("--hold-s=nan", "--hold-s nan is not a number of seconds; it must be more than 0"),
        ("--hold-s=60", "--bind-timeout-s 45 leaves no time to bind after --hold-s 60"),
        ("--listen=http://127.0.0.1:8888", "is not HOST:PORT; write it like 127.0.0.1:8888"),
        ("--max-holds=0", "--max-holds 0 would refuse every bind of a gang"),
    ],
)
def test_an_invalid_value_is_refused_with_its_flag_value_and_remedy(
    argument: str, said: str
) -> None:
    told = refusal(argument)

    assert told.startswith("gang-extender: --")
    assert said in told


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--scheduler-name=one", "--scheduler-name=two"], {}),
        ([], {"GANG_EXTENDER_SCHEDULER_NAME": "one two"}),
    ],
    ids=["flags", "variable"],
)
def test_every_given_scheduler_name_is_used(
    arguments: list[str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    given = main.commands["serve"].make_context("serve", arguments).params

    assert Settings(**given).scheduler_name == ("one", "two")


def test_an_unusable_secret_is_refused_without_quoting_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush hush hush hush")

    told = refusal(f"--kubeconfig={write_kubeconfig(tmp_path, 9)}", f"--hook-secret-file={file}")

    assert f"--hook-secret-file {file} contains no usable secret" in told
    assert "hush" not in told


@pytest.mark.parametrize("prefix", ["", "ops-"])
def test_unusable_certificates_are_refused(tmp_path: Path, prefix: str) -> None:
    wallet = Wallet(tmp_path)
    wallet.show(wallet.authority.for_server(HOSTS, 1, days_ago(3)))
    files = [
        f"--{prefix}tls-cert-file={tmp_path}/tls.crt",
        f"--{prefix}tls-private-key-file={tmp_path}/tls.key",
        *([] if prefix else [f"--client-ca-file={tmp_path}/ca.crt"]),
    ]

    told = refusal(f"--kubeconfig={write_kubeconfig(tmp_path, 9)}", *files)

    assert f"--{prefix}tls-cert-file {tmp_path}/tls.crt: expired at " in told


def test_a_setting_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(main, ["serve", "--from-tomorrow"]).exit_code == 2
    monkeypatch.setenv("GANG_EXTENDER_FROM_TOMORROW", "1")

    assert "GANG_EXTENDER_FROM_TOMORROW is not a setting" in refusal()
