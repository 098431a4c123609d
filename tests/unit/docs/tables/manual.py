"""Which pages have written parts, and who writes which."""

from __future__ import annotations

from functools import partial

from extender.model.reason import Reason
from tests.unit.docs.tables import (
    commandline,
    explained,
    reasons,
    rights,
    series,
    settings,
    traps,
)
from tests.unit.docs.tables.parts import Writers

PAGES = (
    "cli.md",
    "configuration.md",
    "doctor.md",
    "operations.md",
    "reasons.md",
    "security.md",
    "troubleshooting.md",
)

WRITERS: Writers = {
    "settings": settings.settings,
    "series": series.series,
    "words": commandline.words,
    "fields": commandline.fields,
    "reasons": reasons.reasons,
    "happenings": reasons.happenings,
    "findings": reasons.findings,
    "rights": rights.rights,
    "traps": traps.traps,
    **{f"explain {each.value}": partial(explained.of, each) for each in Reason},
}
