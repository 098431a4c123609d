"""The minor that was asked for is the one that the tests run on."""

from __future__ import annotations

import re

from .api import Api
from .binaries import known
from .control_plane import API_SERVER, SCHEDULER
from .stage import GangScheduler


def test_the_api_server_is_of_the_version_asked_for(api: Api) -> None:
    assert api.request("GET", "/version")["gitVersion"] == known()[API_SERVER].version


def test_the_scheduler_is_of_the_version_asked_for(gang_scheduler: GangScheduler) -> None:
    said = gang_scheduler.scheduler.log_since_start()

    assert re.findall(r'"Starting Kubernetes Scheduler" version="(.+?)"', said) == [
        known()[SCHEDULER].version
    ]
