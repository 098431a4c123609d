"""A stalled API server: connections stay open without responses."""

from __future__ import annotations

from tests import objects
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.waiting import wait_for

#: A little more than the documented limits: the machine may be busy.
NOTICED_S = 20.0
RECOVERED_S = 15.0


def wait_until_silent_for(extender: Extender, word: str, seconds: float) -> None:
    message = f"API server: no answer for {word}"
    wait_for(lambda: message in extender.get("/readyz")[1], seconds, message, every_s=0.2)


def wait_until_ready(extender: Extender) -> None:
    wait_for(lambda: extender.get("/readyz")[0] == 200, RECOVERED_S, "it is ready", every_s=0.1)


def test_stalled_api_server_is_noticed_without_the_crds(lab: ControlPlane) -> None:
    lab.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh")
    with lab.extender() as extender:
        with lab.apiserver.stalled():
            wait_until_silent_for(extender, "", NOTICED_S)
        wait_until_ready(extender)
        lab.api.create(objects.namespace("after"))
        wait_until_ready(extender)


def test_extender_recovers_from_a_stall_longer_than_a_watch(lab: ControlPlane) -> None:
    with lab.extender() as extender:
        with lab.apiserver.stalled():
            # Longer than the interval of bookmarks.
            wait_until_silent_for(extender, "9", 130)
        wait_until_ready(extender)
