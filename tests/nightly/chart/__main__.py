"""`python -m tests.nightly.chart` writes the generated files of the chart."""

from __future__ import annotations

from .generated import write

write()
