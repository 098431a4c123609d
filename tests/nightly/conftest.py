"""What takes too long for a landing; those on a real control plane share it by its fixtures."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.cluster.fixtures")
