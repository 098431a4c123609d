"""The CRDs of our manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FILES = sorted((Path(__file__).parents[2] / "manifests" / "crds").glob("*.sh.yaml"))

Schema = dict[str, Any]


def version(file: Path) -> Schema:
    (only,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    found: Schema = only
    return found


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every field with its path, also those in lists."""
    for name, each in schema.get("properties", {}).items():
        if f"{path}.{name}" == ".metadata":
            continue  # the API server describes it and ignores our description
        yield f"{path}.{name}", each
        yield from fields(each, f"{path}.{name}")
    if "items" in schema:
        yield f"{path}[]", schema["items"]
        yield from fields(schema["items"], f"{path}[]")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_field_and_every_column_is_described(file: Path) -> None:
    written = version(file)
    schema = written["schema"]["openAPIV3Schema"]
    silent = [path for path, each in fields(schema) if not each.get("description")]

    assert schema["description"]
    assert silent == []
    assert all(each["description"] for each in written["additionalPrinterColumns"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_quantity_of_a_spec_has_a_pattern_that_quantities_match(file: Path) -> None:
    spec = version(file)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    amounts = {
        path: each["additionalProperties"]["pattern"]
        for path, each in fields(spec)
        if each.get("additionalProperties", {}).get("x-kubernetes-int-or-string")
    }

    assert amounts
    for pattern in amounts.values():
        for good in (
            "1",
            "+1",
            "-1",
            "500m",
            "1.5",
            "1.",
            ".5Gi",
            "3e6",
            "1E-3",
            "2Ki",
            "7k",
            "9n",
        ):
            assert re.search(pattern, good), good
        for bad in ("", "two", "1 Gi", "1Gib", "1e", "--1", ".", "1,5", "0x10", " 1", "1\n2"):
            assert not re.search(pattern, bad), bad


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_unknown_field_of_a_spec_is_preserved_at_any_depth(file: Path) -> None:
    spec = version(file)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    open_ended = "x-kubernetes-preserve-unknown-fields"

    assert open_ended not in spec
    assert [path for path, each in fields(spec) if open_ended in each] == []
