"""The configuration for kube-scheduler that `gang-extender scheduler-config` prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.settings import Settings

FILES = ("--ca-file=/t/ca.crt", "--cert-file=/t/tls.crt", "--key-file=/t/tls.key")
CLUSTERS = ("--deployment", "default-scheduler", "--url", "https://10.96.0.77:8888")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["scheduler-config", *arguments])


def printed(*arguments: str) -> Any:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.output)


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def profiles(configuration: Any) -> list[str]:
    return [each["schedulerName"] for each in configuration["profiles"]]


def test_binds_have_an_entry_of_their_own_with_the_long_timeout() -> None:
    quick, slow = printed("--url", "http://127.0.0.1:9/")["extenders"]

    assert (quick["httpTimeout"], slow["httpTimeout"]) == ("2s", "45s")
    assert "bindVerb" not in quick
    assert slow["bindVerb"] == "bind"
    for entry in (quick, slow):
        assert entry["urlPrefix"] == "http://127.0.0.1:9"
        assert entry["ignorable"] is False
        assert entry["nodeCacheCapable"] is True
        assert not {"enableHTTPS", "tlsConfig"} & {*entry}


@pytest.mark.parametrize(
    ("seconds", "written"),
    [("1e6", "1000000s"), ("0.00001", "0.00001s"), ("2.50", "2.5s"), ("100", "100s")],
)
def test_a_timeout_is_written_as_kube_scheduler_reads_durations(seconds: str, written: str) -> None:
    for entry in printed(f"--filter-timeout-s={seconds}", f"--bind-timeout-s={seconds}")[
        "extenders"
    ]:
        assert entry["httpTimeout"] == written


@pytest.mark.parametrize("flag", ["--filter-timeout-s", "--bind-timeout-s"])
@pytest.mark.parametrize("seconds", ["0", "1e-12", "1e12"])
def test_an_invalid_timeout_is_refused_in_one_line(flag: str, seconds: str) -> None:
    assert flag in refused(f"{flag}={seconds}")


def test_prioritize_is_configured_only_with_a_preference() -> None:
    assert "prioritizeVerb" not in printed()["extenders"][0]
    entry = printed("--prefer", "spread")["extenders"][0]
    assert (entry["prioritizeVerb"], entry["weight"]) == ("prioritize", 1)


def test_the_kubeconfig_is_written_where_kube_scheduler_reads_it() -> None:
    assert "kubeconfig" not in printed()["clientConnection"]
    for given, told in (("/x/c", "/x/c"), ("~/.kube/c", os.path.expanduser("~/.kube/c"))):
        assert printed(f"--kubeconfig={given}")["clientConnection"]["kubeconfig"] == told


def test_an_https_url_configures_mutual_tls_in_both_entries() -> None:
    for entry in printed("--url", "https://10.0.0.9:8888", *FILES, "--server-name=x")["extenders"]:
        assert entry["enableHTTPS"] is True
        assert entry["tlsConfig"] == {
            "caFile": "/t/ca.crt",
            "certFile": "/t/tls.crt",
            "keyFile": "/t/tls.key",
            "serverName": "x",
        }


@pytest.mark.parametrize("left_out", FILES)
def test_incomplete_tls_files_are_refused(left_out: str) -> None:
    given = [each for each in FILES if each != left_out]

    assert f"https://x:1 needs {left_out.partition('=')[0]};" in refused(
        "--url", "https://x:1", *given
    )


def test_every_served_scheduler_name_has_a_profile() -> None:
    # A pod whose schedulerName has no profile waits for ever without any message.
    assert tuple(profiles(printed())) == Settings().scheduler_name


def test_scheduler_names_can_be_chosen_and_the_first_names_the_lease() -> None:
    configuration = printed("--scheduler-name", "mine", "--scheduler-name=yours", "--leader-elect")

    assert profiles(configuration) == ["mine", "yours"]
    assert configuration["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "mine",
        "resourceNamespace": "gang-system",
        "retryPeriod": "500ms",
    }


def test_the_default_scheduler_gets_its_names_files_and_lease_and_nothing_else_changes() -> None:
    configuration = printed(*CLUSTERS)

    assert profiles(configuration) == [
        *("default-scheduler", "gang-scheduler", "volcano", "kube-batch"),
    ]
    assert configuration["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    assert configuration["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "kube-scheduler",
        "resourceNamespace": "kube-system",
    }
    for entry in configuration["extenders"]:
        assert entry["tlsConfig"] == {
            "caFile": "/etc/kubernetes/gang-extender/ca.crt",
            "certFile": "/etc/kubernetes/gang-extender/client.crt",
            "keyFile": "/etc/kubernetes/gang-extender/client.key",
            "serverName": "gang-extender.gang-system.svc",
        }
    fields = "apiVersion kind clientConnection leaderElection profiles extenders"
    assert {*configuration} == {*fields.split()}


def test_every_default_for_the_default_scheduler_can_be_overridden() -> None:
    configuration = printed(
        *CLUSTERS, "--no-leader-elect", "--scheduler-name=one", "--kubeconfig=/k", "--ca-file=/c"
    )

    assert configuration["leaderElection"] == {"leaderElect": False}
    assert profiles(configuration) == ["one"]
    assert configuration["clientConnection"] == {"kubeconfig": "/k"}
    assert configuration["extenders"][0]["tlsConfig"]["caFile"] == "/c"


def test_the_default_scheduler_needs_an_https_url() -> None:
    assert "must be https" in refused(*CLUSTERS[:3], "http://10.96.0.77:8888")


def test_the_hook_secret_is_the_password_of_both_urls(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    entries = printed(f"--hook-secret-file={file}")["extenders"]

    url = "http://hooks:0123456789abcdef@127.0.0.1:8888"
    assert [each["urlPrefix"] for each in entries] == [url, url]


def test_a_secret_over_plain_http_to_another_host_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")

    told = refused(f"--hook-secret-file={file}", "--url=http://10.0.0.9:8888")

    assert "in plain text" in told
    assert "0123456789abcdef" not in told
