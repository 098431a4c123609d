"""What follows from other files: the settings in the schema, the table in the chart's README."""

from __future__ import annotations

import json
import re
from dataclasses import Field, fields
from typing import Any

from extender.settings import PREFERENCES, UNLISTED, Settings

from .values import README, SCHEMA, explained, schema

#: Settings that the chart gives itself; each has a value of its own, or none.
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
#: Settings that are one of a few words.
CHOICES = {"prefer": PREFERENCES, "unlisted_namespaces": UNLISTED}

TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
TABLE = re.compile(r"^\| value \|.*?\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)


def settings_schema() -> dict[str, Any]:
    """Say which settings one may give, and of which kind each is."""
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
    """Give the whole schema with the settings as they are now."""
    now = schema()
    now["properties"]["settings"] = settings_schema()
    return json.dumps(now, indent=2) + "\n"


def readme_text() -> str:
    """Give the chart's README with a table of the values as they are now."""
    return TABLE.sub(lambda _: table(), README.read_text())


def table() -> str:
    """Give a row for every value that is explained, but for those whose members are."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in explained():
        default = "" if value.is_section else f"`{json.dumps(value.default, ensure_ascii=False)}`"
        rows.append(f"| `{value.path}` | {default} | {value.about} |")
    return "\n".join(rows) + "\n"


def write() -> None:
    """Bring both up to date."""
    SCHEMA.write_text(schema_text())
    README.write_text(readme_text())
