"""The tables of traps that `gang-extender doctor` names, one for each place where it looks."""

from __future__ import annotations

from extender.doctor.checks import KNOWN
from tests.unit.docs.tables.parts import table


def checks() -> str:
    """Write what each trap means, and the mend, below the place where it is found."""
    return "\n".join(
        f"### {place[0].upper()}{place[1:]}\n\n"
        + table(
            ("name", "", "it means", "the mend"),
            ((f"`{each.name}`", each.severity.value, each.meaning, each.mend) for each in known),
        )
        for place, known in KNOWN.items()
    )
