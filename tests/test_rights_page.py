"""The page about rights has those that our manifests grant, each in its place."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.cluster.rights import (
    ASKS_WHO,
    BEHIND_A_SERVICE,
    BESIDE_A_SCHEDULER,
    EVERYWHERE,
    WHOLE_PODGROUPS,
    Right,
)
from tests.test_docs import DOCS


@pytest.mark.parametrize(
    ("heading", "rights"),
    [
        ("In every deployment", EVERYWHERE),
        ("Where the CRDs are Volcano's or kube-batch's own", WHOLE_PODGROUPS),
        ("Where readers say who they are", ASKS_WHO),
        ("Behind a Service", BEHIND_A_SERVICE),
        ("Beside a kube-scheduler", BESIDE_A_SCHEDULER),
    ],
)
def test_a_table_has_every_right_of_its_roles_once(heading: str, rights: tuple[Right, ...]) -> None:
    text = (DOCS / "rights.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [row for row in re.findall(r"^\|(.*)\|$", text, re.M) if row.count("|") == 3]
    cells = [[re.findall("`([^`]+)`", cell) for cell in row.split("|")[:2]] for row in rows]
    shown = [f"{verb} {what}" for row in cells for verb, what in product(*row)]

    assert sorted(shown) == sorted(map(str, rights))


def test_every_row_says_what_is_missed() -> None:
    text = (DOCS / "rights.md").read_text()
    rows = [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("| `")]

    assert rows
    assert [row for row in rows if not all(cell.strip() for cell in row)] == []
