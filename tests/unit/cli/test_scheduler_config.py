"""The configuration for kube-scheduler that `gang-extender scheduler-config` prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.settings import Settings


def printed(*arguments: str) -> dict:
    result = CliRunner().invoke(main, ["scheduler-config", *arguments])
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.output)


def test_binds_have_an_entry_of_their_own_with_the_long_timeout() -> None:
    quick, slow = printed("--url", "http://127.0.0.1:9/")["extenders"]

    assert (quick["httpTimeout"], slow["httpTimeout"]) == ("2s", "45s")
    assert "bindVerb" not in quick
    assert slow["bindVerb"] == "bind"
    assert quick["urlPrefix"] == slow["urlPrefix"] == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("seconds", "written"),
    [("1e6", "1000000s"), ("0.00001", "0.00001s"), ("2.50", "2.5s"), ("100", "100s")],
)
def test_a_timeout_is_written_as_kube_scheduler_reads_durations(seconds: str, written: str) -> None:
    quick, slow = printed(f"--filter-timeout-s={seconds}", f"--bind-timeout-s={seconds}")[
        "extenders"
    ]

    assert (quick["httpTimeout"], slow["httpTimeout"]) == (written, written)


@pytest.mark.parametrize("flag", ["--filter-timeout-s", "--bind-timeout-s"])
@pytest.mark.parametrize("seconds", ["0", "-3", "inf", "nan", "1e-12", "1e12"])
def test_an_invalid_timeout_is_refused_in_one_line(flag: str, seconds: str) -> None:
    result = CliRunner().invoke(main, ["scheduler-config", f"{flag}={seconds}"])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert flag in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_no_entry_is_ignorable_and_all_are_node_cache_capable() -> None:
    for entry in printed()["extenders"]:
        assert entry["ignorable"] is False
        assert entry["nodeCacheCapable"] is True


def test_prioritize_is_configured_only_with_a_preference() -> None:
    assert "prioritizeVerb" not in printed()["extenders"][0]
    entry = printed("--prefer", "spread")["extenders"][0]
    assert (entry["prioritizeVerb"], entry["weight"]) == ("prioritize", 1)


def test_the_kubeconfig_is_written_where_kube_scheduler_reads_it() -> None:
    home = os.path.expanduser("~")

    assert "kubeconfig" not in printed()["clientConnection"]
    for given, told in (("/x/config", "/x/config"), ("~/.kube/config", f"{home}/.kube/config")):
        assert printed(f"--kubeconfig={given}")["clientConnection"]["kubeconfig"] == told


FILES = ("--ca-file=/t/ca.crt", "--cert-file=/t/tls.crt", "--key-file=/t/tls.key")


def test_an_https_url_configures_mutual_tls_in_both_entries() -> None:
    for entry in printed("--url", "https://10.0.0.9:8888", *FILES, "--server-name=x")["extenders"]:
        assert entry["enableHTTPS"] is True
        assert entry["tlsConfig"] == {
            "caFile": "/t/ca.crt",
            "certFile": "/t/tls.crt",
            "keyFile": "/t/tls.key",
            "serverName": "x",
        }


def test_a_plain_url_configures_no_tls() -> None:
    for entry in printed()["extenders"]:
        assert not {"enableHTTPS", "tlsConfig"} & set(entry)


@pytest.mark.parametrize("left_out", FILES)
def test_incomplete_tls_files_are_refused(
    left_out: str,
) -> None:
    given = [each for each in FILES if each != left_out]
    result = CliRunner().invoke(main, ["scheduler-config", "--url", "https://x:1", *given])

    assert result.exit_code == 2
    assert f"https://x:1 needs {left_out.partition('=')[0]};" in result.output


def test_tls_files_for_a_plain_url_are_refused() -> None:
    result = CliRunner().invoke(main, ["scheduler-config", *FILES])

    assert result.exit_code == 2
    assert "--ca-file is for an https URL, and --url is http://127.0.0.1:8888" in result.output


def test_the_kubeconfig_and_the_name_are_passed_on() -> None:
    configuration = printed("--kubeconfig", "/k", "--scheduler-name", "mine")

    assert configuration["clientConnection"]["kubeconfig"] == "/k"
    assert configuration["profiles"] == [{"schedulerName": "mine"}]


def test_every_served_scheduler_name_has_a_profile() -> None:
    # A pod whose schedulerName has no profile waits for ever without any message.
    names = [profile["schedulerName"] for profile in printed()["profiles"]]

    assert tuple(names) == Settings().scheduler_name


def test_scheduler_names_can_be_chosen_and_the_first_names_the_lease() -> None:
    chosen = ("--scheduler-name", "mine", "--scheduler-name", "yours")
    configuration = printed(*chosen, "--leader-elect")

    assert [each["schedulerName"] for each in configuration["profiles"]] == ["mine", "yours"]
    assert configuration["leaderElection"]["resourceName"] == "mine"


def test_leader_election_uses_a_lease_with_the_schedulers_name() -> None:
    assert printed("--leader-elect")["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "gang-scheduler",
        "resourceNamespace": "gang-system",
        "retryPeriod": "500ms",
    }


def test_a_bad_url_is_refused_in_one_line() -> None:
    result = CliRunner().invoke(main, ["scheduler-config", "--url", "127.0.0.1:8888"])

    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "--url" in result.output


CLUSTERS = ("--deployment", "default-scheduler", "--url", "https://10.96.0.77:8888")


def test_the_default_scheduler_gets_its_names_files_and_lease_without_other_flags() -> None:
    configuration = printed(*CLUSTERS)

    names = [each["schedulerName"] for each in configuration["profiles"]]
    assert names == ["default-scheduler", "gang-scheduler", "volcano", "kube-batch"]
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


def test_nothing_else_of_the_default_scheduler_is_changed() -> None:
    assert set(printed(*CLUSTERS)) == {
        "apiVersion", "kind", "clientConnection", "leaderElection", "profiles", "extenders"
    }  # fmt: skip


def test_every_default_for_the_default_scheduler_can_be_overridden() -> None:
    configuration = printed(
        *CLUSTERS, "--no-leader-elect", "--scheduler-name=one", "--kubeconfig=/k", "--ca-file=/c"
    )

    assert configuration["leaderElection"] == {"leaderElect": False}
    assert configuration["profiles"] == [{"schedulerName": "one"}]
    assert configuration["clientConnection"] == {"kubeconfig": "/k"}
    assert configuration["extenders"][0]["tlsConfig"]["caFile"] == "/c"


@pytest.mark.parametrize(
    ("url", "told"),
    [([], "needs --url"), (["--url=http://10.96.0.77:8888"], "must be https")],
    ids=["none", "plain"],
)
def test_the_default_scheduler_needs_an_https_url(url: list[str], told: str) -> None:
    ran = CliRunner().invoke(main, ["scheduler-config", "--deployment=default-scheduler", *url])

    assert ran.exit_code == 2
    assert told in ran.output


def test_the_hook_secret_is_the_password_of_both_urls(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    entries = printed(f"--hook-secret-file={file}")["extenders"]

    url = "http://hooks:0123456789abcdef@127.0.0.1:8888"
    assert [each["urlPrefix"] for each in entries] == [url, url]


def test_a_secret_over_plain_http_to_another_host_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    words = ["scheduler-config", f"--hook-secret-file={file}", "--url=http://10.0.0.9:8888"]
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert "in plain text" in result.stderr
    assert "0123456789abcdef" not in result.output
