"""Tests on a real control plane; what they share is in fixtures.py."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.cluster.fixtures")
