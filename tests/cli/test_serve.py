"""What `serve` refuses before it begins, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import main
from tests.bench.bench_hooks import write_kubeconfig
from tests.tls.wallet import HOSTS, Wallet, days_ago


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    return result.output


def test_plain_hooks_that_others_can_reach_are_refused() -> None:
    assert "--listen 0.0.0.0:8888 is open to others" in refusal("--listen=0.0.0.0:8888")


@pytest.mark.parametrize("prefix", ["", "ops-"])
def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path, prefix: str) -> None:
    wallet = Wallet(tmp_path)
    wallet.show(wallet.authority.for_server(HOSTS, 1, days_ago(3)))
    files = [
        f"--{prefix}tls-cert-file={tmp_path}/tls.crt",
        f"--{prefix}tls-private-key-file={tmp_path}/tls.key",
        *([] if prefix else [f"--client-ca-file={tmp_path}/ca.crt"]),
    ]

    told = refusal(f"--kubeconfig={write_kubeconfig(tmp_path, 9)}", *files)

    assert f"--{prefix}tls-cert-file {tmp_path}/tls.crt: expired at " in told
