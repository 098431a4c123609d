"""The tests run on the minor version that was selected."""

from __future__ import annotations

import re

from .api import Api
from .binaries import known
from .control_plane import API_SERVER, SCHEDULER
from .train_gang import GangScheduler


def test_api_server_has_the_selected_version(api: Api) -> None:
    assert api.request("GET", "/version")["gitVersion"] == known()[API_SERVER].version


def test_scheduler_has_the_selected_version(gang_scheduler: GangScheduler) -> None:
    log = gang_scheduler.scheduler.log_since_start()

    assert re.findall(r'"Starting Kubernetes Scheduler" version="(.+?)"', log) == [
        known()[SCHEDULER].version
    ]
