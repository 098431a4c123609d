"""Writes every figure and output of the manual that takes a simulated run: minutes in all."""

from __future__ import annotations

from tests.nightly.docs.figures import MARK, written
from tests.unit.docs.tables.parts import rewrite

rewrite(MARK, written())
