"""Fixtures of the tests of leases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .simulation import Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation() as made:
        yield made
