"""Taken away as the page says, it leaves behind what people wrote."""

from __future__ import annotations

import pytest

from tests import objects
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.waiting import wait_for

from .installation import empty_cluster
from .typed import commands

PAGE = REPOSITORY / "docs" / "upgrade.md"


def test_nothing_of_ours_is_left_but_the_crds_and_what_people_wrote(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    (take_away,) = commands(PAGE, "## Take it away")
    with empty_cluster(tmp_path_factory.mktemp("taken-away"), nodes=1) as made:
        made.shell.type("kubectl apply -k manifests/overlays/second-scheduler")
        made.plane.api.create(objects.pod_group("train", "default", 2))
        made.shell.type(f"{take_away} --wait=false")

        def ours() -> list[str]:
            told = made.shell.type("kubectl get clusterroles,clusterrolebindings,ns -o name")
            return [line for line in told.splitlines() if "gang-" in line]

        wait_for(lambda: not ours(), 60, "nothing of ours is left", seeing=ours)
        assert made.plane.api.get(objects.POD_GROUPS, "train", "default")
