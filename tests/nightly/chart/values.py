"""The values of the chart, documented by the comments in its `values.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "manifests" / "chart"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"

KEY = re.compile(r"^( *)([A-Za-z]+):")


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its path with dots, its description, and its default."""

    path: str
    about: str
    default: Any

    @property
    def is_section(self) -> bool:
        """Return whether its members are documented."""
        return self.path in {path.rpartition(".")[0] for path in _paths(VALUES.read_text())}


def explained() -> list[Value]:
    """Return every documented value, in the order of the file."""
    text = VALUES.read_text()
    defaults = yaml.safe_load(text)
    return [Value(path, about, _at(defaults, path)) for path, about in _comments(text)]


def schema() -> dict[str, Any]:
    """Return the schema that Helm validates values with."""
    read: dict[str, Any] = json.loads(SCHEMA.read_text())
    return read


def _paths(text: str) -> list[str]:
    return [path for path, _ in _comments(text)]


def _comments(text: str) -> Iterator[tuple[str, str]]:
    parents: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        if key := KEY.match(line):
            parents = [*parents[: len(key[1]) // 2], key[2]]
            if comment:
                yield ".".join(parents), " ".join(comment)
        comment = []


def _at(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values[key]
    return values
