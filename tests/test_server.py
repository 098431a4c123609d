"""What a process says of itself when it starts, and how long it may take to end."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import yaml

from extender import __version__, logs, server
from extender.holds.machine.limits import Limits
from extender.settings import Settings

MANIFESTS = Path(__file__).parents[1] / "manifests"


def test_version_and_settings_in_force_are_the_first_thing_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.set_up("info")
        server.say_who_starts(Settings(hold_s=3.5, scheduler_name=("gang-scheduler", "other")))
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])

    assert (line["event"], line["level"]) == ("extender starts", "info")
    assert line["version"] == __version__
    assert line["settings"]["hold_s"] == 3.5
    assert line["settings"]["scheduler_name"] == ["gang-scheduler", "other"]


def test_bindings_that_were_sent_are_waited_for_as_long_as_kube_scheduler_waits() -> None:
    for settings in (Settings(), Settings(hold_s=62.5, bind_timeout_s=120.5)):
        longest_s = Limits.of(settings).answer_s

        assert server.stops_within_s(settings) > longest_s


@pytest.mark.parametrize("overlay", ["second-scheduler", "default-scheduler"])
def test_a_pod_is_given_the_time_that_a_stop_may_take(overlay: str) -> None:
    written = yaml.safe_load((MANIFESTS / "overlays" / overlay / "deployment.yaml").read_text())
    pod = written["spec"]["template"]["spec"]
    assert "bind-timeout-s" not in str(pod["containers"]), "then it needs more"

    given_s = pod["terminationGracePeriodSeconds"]
    assert given_s == Settings().bind_timeout_s + 15 > server.stops_within_s(Settings())


def test_the_chart_gives_a_pod_more_time_where_binds_have_more() -> None:
    template = (MANIFESTS / "chart" / "templates" / "deployment.yaml").read_text()
    (line,) = (each for each in template.splitlines() if "terminationGracePeriodSeconds" in each)

    assert "add 15 (ceil" in line
    assert f'"bind-timeout-s" | default {Settings().bind_timeout_s:g}' in line
