"""Writes every part of the manual that comes from the code: `python -m tests.unit.docs.tables`."""

from __future__ import annotations

from tests.unit.docs.tables.manual import PAGES, WRITERS
from tests.unit.docs.tables.parts import DOCS, rewritten

for page in PAGES:
    path = DOCS / page
    path.write_text(rewritten(path.read_text(), WRITERS))
