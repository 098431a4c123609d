"""The generated parts of the manual, and the function that writes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from extender.model.reason import Reason
from tests.unit.docs.tables import (
    checks,
    commandline,
    explained,
    reasons,
    rights,
    series,
    settings,
    waiting_binds,
)

#: The mark of the parts that the tests compare.
MARK = "generated"

_WRITERS: Mapping[str, Callable[[], str]] = {
    "settings": settings.settings,
    "series": series.series,
    "words": commandline.words,
    "fields": commandline.fields,
    "reasons": reasons.reasons,
    "happenings": reasons.happenings,
    "findings": reasons.findings,
    "rights": rights.rights,
    "checks": checks.checks,
    **waiting_binds.PARTS,
    **{f"explain {each.value}": partial(explained.of, each) for each in Reason},
}


def written() -> dict[str, str]:
    """Return the text of every part."""
    return {name: write() for name, write in _WRITERS.items()}
