"""An API server that stalls: connections stay open and nothing is answered."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from . import objects
from .control_plane import ControlPlane
from .extender_process import Extender
from .waiting import wait_for

#: A little more than is promised: the machine may be busy.
NOTICED_S = 20.0
GREEN_S = 15.0


@pytest.fixture(scope="module")
def lab(
    control_plane_binaries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane of our own, to be stopped and continued."""
    with ControlPlane(tmp_path_factory.mktemp("stalls"), kwok=False, audit=False) as plane:
        plane.install()
        yield plane


@contextmanager
def stalled(plane: ControlPlane) -> Iterator[None]:
    """Stop the API server of *plane* as a machine does that swaps: it is there and does nothing."""
    os.kill(plane.apiserver.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(plane.apiserver.pid, signal.SIGCONT)


def is_green(extender: Extender) -> bool:
    status, text = extender.ask("/readyz")
    assert status == 200, text
    return True


def names_the_api_server(extender: Extender) -> bool:
    status, text = extender.ask("/readyz")
    assert status == 503, text
    return "API server: no answer for " in text


@pytest.mark.parametrize("has_crds", [True, False], ids=["with CRDs", "without CRDs"])
def test_a_stalled_api_server_turns_readyz_and_is_forgiven_as_soon_as_it_answers(
    lab: ControlPlane, has_crds: bool
) -> None:
    if not has_crds:
        lab.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh")
    with lab.extender() as extender:
        for _ in range(2):
            with stalled(lab):
                wait_for(
                    lambda: names_the_api_server(extender), NOTICED_S, "it is noticed", every_s=0.2
                )
            wait_for(lambda: is_green(extender), GREEN_S, "it is green again", every_s=0.1)
        lab.api.create(objects.namespace(f"after-{has_crds}".lower()))
        wait_for(lambda: is_green(extender), GREEN_S, "it stays green")


def test_a_stall_that_outlasts_every_watch_is_forgiven_as_soon(lab: ControlPlane) -> None:
    with lab.extender() as extender:
        with stalled(lab):
            wait_for(
                lambda: "API server: no answer for 9" in extender.ask("/readyz")[1],
                130,
                "every watch has been silent for longer than a bookmark takes",
                every_s=0.5,
            )
        wait_for(lambda: is_green(extender), GREEN_S, "it is green again", every_s=0.1)
