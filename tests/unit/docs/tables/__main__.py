"""Generates the parts of the manual that come from the code: `python -m tests.unit.docs.tables`."""

from __future__ import annotations

from tests.unit.docs.tables.manual import MARK, written
from tests.unit.docs.tables.parts import rewrite

rewrite(MARK, written())
