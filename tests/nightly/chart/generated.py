"""The generated parts of the chart: the settings in the schema, the table in its README."""

from __future__ import annotations

import json
import re
from dataclasses import Field, fields
from typing import Any

from extender.settings import PREFERENCES, UNLISTED, Settings

from .values import README, SCHEMA, explained, schema

#: Settings that the chart sets itself, some from values of their own.
OF_THE_CHART = {
    "kubeconfig",
    "listen",
    "ops_listen",
    "tls_cert_file",
    "tls_private_key_file",
    "client_ca_file",
    "hook_secret_file",
    "ops_tls_cert_file",
    "ops_tls_private_key_file",
    "ops_auth",
    "config",
    "scheduler_name",
    "exempt_namespace",
    "lease",
    "lease_name",
    "lease_namespace",
    "lease_identity",
    "pod_name",
    "pod_namespace",
}
#: Settings with a fixed set of values.
CHOICES = {"prefer": PREFERENCES, "unlisted_namespaces": UNLISTED}

TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
TABLE = re.compile(r"^\| value \|.*?\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)


def settings_schema() -> dict[str, Any]:
    """Return the schema of the settings that users may set."""
    free = [each for each in fields(Settings) if each.name not in OF_THE_CHART]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name.replace("_", "-"): _kind(each) for each in free},
    }


def _kind(each: Field[Any]) -> dict[str, Any]:
    if each.name in CHOICES:
        return {"enum": [*CHOICES[each.name]]}
    if isinstance(each.default, tuple):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": TYPES[type(each.default)]}


def schema_text() -> str:
    """Return the whole schema with the current settings."""
    now = schema()
    now["properties"]["settings"] = settings_schema()
    return json.dumps(now, indent=2) + "\n"


def readme_text() -> str:
    """Return the chart's README with the current table of values."""
    return TABLE.sub(lambda _: table(), README.read_text())


def table() -> str:
    """Return a table with a row for every documented value."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in explained():
        default = "" if value.is_section else f"`{json.dumps(value.default, ensure_ascii=False)}`"
        rows.append(f"| `{value.path}` | {default} | {value.about} |")
    return "\n".join(rows) + "\n"


def write() -> None:
    """Write both files."""
    SCHEMA.write_text(schema_text())
    README.write_text(readme_text())
