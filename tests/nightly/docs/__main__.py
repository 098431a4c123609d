"""Writes every figure and output of the manual that needs a simulated run: takes minutes."""

from __future__ import annotations

from tests.nightly.docs.figures import MARK, written
from tests.unit.docs.tables.parts import rewrite

rewrite(MARK, written())
