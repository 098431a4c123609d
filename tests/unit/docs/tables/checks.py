"""The tables of the checks of `gang-extender doctor`, one for each source of facts."""

from __future__ import annotations

from extender.doctor.checks import KNOWN
from tests.unit.docs.tables.parts import table


def checks() -> str:
    """Write the meaning and the remedy of each check, by the source of its facts."""
    return "\n".join(
        f"### {place[0].upper()}{place[1:]}\n\n"
        + table(
            ("check", "", "meaning", "what to do"),
            ((f"`{each.name}`", each.severity.value, each.meaning, each.mend) for each in known),
        )
        for place, known in KNOWN.items()
    )
