"""PodGroups without the status subresource."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests import objects
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.cluster.reported import wait_until_running
from tests.cluster.train_gang import gang


def test_status_is_written_without_the_status_subresource(
    new_plane: Callable[..., ControlPlane],
) -> None:
    plane = new_plane()
    removal = json.dumps([{"op": "remove", "path": "/spec/versions/0/subresources"}])
    crd = "podgroups.scheduling.volcano.sh"
    plane.kubectl("patch", "crd", crd, "--type=json", f"--patch={removal}")
    plane.kubectl("apply", "-k", MANIFESTS / "volcano-crds")
    plane.api.create(objects.namespace("team"), objects.node("n0"))
    plane.wait_until_nodes_are_ready(["n0"])
    with (
        plane.extender() as extender,
        plane.scheduler(plane.scheduler_config(extender)),
    ):
        gang(plane.api, "train", "team", 3)

        written = wait_until_running(plane.api, "train", "team", 3)

    assert written["conditions"]
    assert plane.api.get(objects.POD_GROUPS, "train", "team")["spec"]["minMember"] == 3
