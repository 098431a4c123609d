"""The table of the write permissions of our role, from its manifest."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.unit.docs.tables.parts import table

MANIFEST = Path(__file__).parents[4] / "manifests" / "base" / "rbac.yaml"
_READS = {"get", "list", "watch"}


def rights() -> str:
    """Write every resource that the role may change."""
    things = yaml.safe_load_all(MANIFEST.read_text())
    rules = [rule for thing in things for rule in thing.get("rules", ())]
    granted = (
        (f"`{resource}`", ", ".join(f"`{group}`" for group in rule["apiGroups"] if group), verbs)
        for rule in rules
        for resource in rule["resources"]
        if (verbs := ", ".join(f"`{verb}`" for verb in rule["verbs"] if verb not in _READS))
    )
    return table(("resource", "API group", "verbs"), granted)
