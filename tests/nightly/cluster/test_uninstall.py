"""The documented command uninstalls the extender and keeps the objects of users."""

from __future__ import annotations

import pytest

from tests import objects
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.waiting import wait_for

from .installation import empty_cluster
from .shell import commands

PAGE = REPOSITORY / "docs" / "install.md"


def test_only_crds_and_objects_of_users_are_left(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    (uninstall,) = commands(PAGE, "## Uninstall")
    with empty_cluster(tmp_path_factory.mktemp("taken-away"), nodes=1) as made:
        made.shell.type("kubectl apply -k manifests/overlays/second-scheduler")
        made.plane.api.create(objects.pod_group("train", "default", 2))
        made.shell.type(f"{uninstall} --wait=false")

        def remaining() -> list[str]:
            output = made.shell.type("kubectl get clusterroles,clusterrolebindings,ns -o name")
            return [line for line in output.splitlines() if "gang-" in line]

        wait_for(lambda: not remaining(), 60, "everything is deleted", seeing=remaining)
        assert made.plane.api.get(objects.POD_GROUPS, "train", "default")
