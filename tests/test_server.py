"""What a process says of itself when it starts."""

from __future__ import annotations

import json
import logging

import pytest

from extender import __version__, logs, server
from extender.settings import Settings


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
