"""An API server that stalls: connections stay open and nothing is answered."""

from __future__ import annotations

from tests import objects
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.waiting import wait_for

#: A little more than is promised: the machine may be busy.
NOTICED_S = 20.0
GREEN_S = 15.0


def wait_until_silent_for(extender: Extender, word: str, seconds: float) -> None:
    said = f"API server: no answer for {word}"
    wait_for(lambda: said in extender.get("/readyz")[1], seconds, said, every_s=0.2)


def wait_until_green(extender: Extender) -> None:
    wait_for(lambda: extender.get("/readyz")[0] == 200, GREEN_S, "it is green", every_s=0.1)


def test_without_our_crds_a_stalled_api_server_is_noticed_as_soon(lab: ControlPlane) -> None:
    lab.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh")
    with lab.extender() as extender:
        with lab.apiserver.stalled():
            wait_until_silent_for(extender, "", NOTICED_S)
        wait_until_green(extender)
        lab.api.create(objects.namespace("after"))
        wait_until_green(extender)


def test_a_stall_that_outlasts_every_watch_is_forgiven_as_soon(lab: ControlPlane) -> None:
    with lab.extender() as extender:
        with lab.apiserver.stalled():
            # For longer than a bookmark takes.
            wait_until_silent_for(extender, "9", 130)
        wait_until_green(extender)
