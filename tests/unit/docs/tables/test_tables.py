"""The tables of the manual match the code, and every term of the code is explained."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from extender.model.reason import Happening, Reason
from tests.unit.docs.tables.manual import MARK, written
from tests.unit.docs.tables.parts import differences, table
from tests.unit.docs.tables.series import exported


def test_the_generated_parts_of_the_manual_are_current() -> None:
    stale = differences(MARK, written())

    assert not stale, f"run: .venv/bin/python -m tests.unit.docs.tables; it writes {stale}"


def test_every_exported_metric_is_in_the_table_with_a_description() -> None:
    metrics, listed = exported()
    printed = generate_latest(metrics.registry).decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", printed, re.MULTILINE))
    told = {each.name: each.kind for each in listed}

    assert len(told) > 40
    # For a counter or a histogram the library also exports its creation time.
    assert told == {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    # The library describes what every Python program exports.
    ours = [each for each in listed if not each.name.startswith(("process_", "python_"))]
    assert [each.name for each in ours if not each.meaning.endswith(".")] == []


def test_every_reason_has_a_meaning_and_a_remedy() -> None:
    silent = [each.value for each in (*Reason, *Happening) if not (each.meaning and each.mend)]

    assert silent == []


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("a",), [("x|y",)]) == "| a |\n|---|\n| x\\|y |\n"
