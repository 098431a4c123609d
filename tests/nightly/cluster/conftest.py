"""The installation behind the cluster's own scheduler, for a test file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .default_deployment import DefaultDeployment, install_commands, installed
from .installation import empty_cluster


@pytest.fixture(scope="module")
def behind(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DefaultDeployment]:
    with (
        empty_cluster(tmp_path_factory.mktemp("behind")) as made,
        installed(made, install_commands()) as running,
    ):
        yield running
