"""`gang-extender pair`: the secret that the two containers of a pod share."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.tls import hook_secret
from tests.unit.cli.test_bad_input import SHIPPED


def run_pair(folder: Path, written: Path | str = SHIPPED, code: int = 0) -> str:
    words = ["pair", f"--scheduler-config={written}", f"--directory={folder}"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == code, ran.output
    return str(ran.output)


def configuration(folder: Path) -> Any:
    return yaml.safe_load((folder / "scheduler-config.yaml").read_text())


def test_both_containers_get_the_same_secret(tmp_path: Path) -> None:
    said = run_pair(tmp_path)
    told = hook_secret.read(str(tmp_path / "hook-secret"))

    urls = [each["urlPrefix"] for each in configuration(tmp_path)["extenders"]]
    assert urls == [f"http://hooks:{told.decode()}@127.0.0.1:8888"] * 2
    assert said == ""
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_only_the_urls_of_the_configuration_change(tmp_path: Path) -> None:
    run_pair(tmp_path)
    made, shipped = configuration(tmp_path), yaml.safe_load(Path(SHIPPED).read_text())
    for each in made["extenders"]:
        each["urlPrefix"] = hook_secret.masked(each["urlPrefix"])

    assert made == shipped


def test_a_second_run_keeps_the_secret_and_the_configuration(tmp_path: Path) -> None:
    run_pair(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    run_pair(tmp_path)

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_secret_that_is_too_short_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "hook-secret").write_text("short")
    run_pair(tmp_path)

    assert len(hook_secret.read(str(tmp_path / "hook-secret"))) > 40


@pytest.mark.parametrize("elsewhere", ["http://10.0.0.9:8888", "https://127.0.0.1:8888"])
def test_urls_to_other_hosts_and_https_urls_do_not_get_the_secret(
    tmp_path: Path, elsewhere: str
) -> None:
    written = yaml.safe_load(Path(SHIPPED).read_text())
    written["extenders"][0]["urlPrefix"] = elsewhere
    file = tmp_path / "written.yaml"
    file.write_text(yaml.safe_dump(written))
    run_pair(tmp_path / "pair", file)

    first, second = configuration(tmp_path / "pair")["extenders"]
    assert first["urlPrefix"] == elsewhere
    assert urlsplit(second["urlPrefix"]).password


def test_a_configuration_without_an_extender_on_loopback_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "written.yaml"
    file.write_text("kind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: 'http://['}, 7]\n")

    assert "has no extender at http://127.0.0.1" in run_pair(tmp_path / "pair", file, code=2)


def test_a_configuration_that_expands_without_limit_is_refused_before_it_is_written(
    tmp_path: Path,
) -> None:
    lines = ["a0: &a0 [" + ", ".join(["x"] * 10) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("kind: KubeSchedulerConfiguration\n" + "\n".join(lines))

    said = run_pair(tmp_path / "shared", bomb, code=2)

    assert "its aliases (*name) repeat so much" in said
    assert not (tmp_path / "shared").exists()
