"""Fixtures of the tests on a real control plane; see fixtures.py."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.cluster.fixtures")
