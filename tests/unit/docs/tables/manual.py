"""The generated parts of the manual, and the function that writes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from extender.model.reason import Reason
from tests.unit.docs.tables import (
    api,
    checks,
    commandline,
    explained,
    policy,
    reasons,
    rights,
    series,
    settings,
    waiting_binds,
)

#: The mark of the parts that the tests compare.
MARK = "generated"

_WRITERS: Mapping[str, Callable[[], str]] = {
    "commands": commandline.words,
    "shared flags": commandline.shared,
    "flags": commandline.commands,
    "settings": settings.settings,
    "variables": settings.variables,
    "annotations": settings.annotations,
    "keys": policy.keys,
    "actions": policy.actions,
    "starvation": policy.starvation,
    "plugins": policy.plugins,
    "switches": policy.switches,
    "ignored": policy.ignored,
    "metrics": series.series,
    "alerts": series.alerts,
    "paths": api.paths,
    "fields": api.fields,
    "reasons": reasons.reasons,
    "happenings": reasons.happenings,
    "findings": reasons.findings,
    "checks": checks.checks,
    "examples": reasons.examples,
    "explain": partial(explained.of, Reason.INSUFFICIENT_CAPACITY),
    "rights": rights.rights,
    **waiting_binds.PARTS,
}


def written() -> dict[str, str]:
    """Return the text of every part."""
    return {name: write() for name, write in _WRITERS.items()}
