"""`python -m tests.nightly.chart` writes what of the chart follows from other files."""

from __future__ import annotations

from .generated import write

write()
