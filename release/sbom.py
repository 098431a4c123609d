"""Lists what was installed, as CycloneDX 1.6: `python -m release.sbom ENVIRONMENT > sbom.cdx.json`.

It says what the metadata of the installed distributions says and nothing that was guessed: a
licence that nobody declared is left out, and so is the hash of what came from an index, because an
installer does not keep it; the lock has it. The same environment gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SUBJECT = "gang-extender"
_OSI = "License :: OSI Approved :: "


def describe(site_packages: Path) -> dict[str, Any]:
    """Give the list for one environment; the project itself is its subject."""
    found = {_name(each): each for each in distributions(path=[str(site_packages)])}
    if SUBJECT not in found:
        raise LookupError(f"{SUBJECT} is not installed in {site_packages}")
    others = [found[name] for name in sorted(found) if name != SUBJECT]
    about = {"component": _component(found[SUBJECT], "application")}
    stated: dict[str, Any] = {
        "metadata": about,
        "components": [_component(each, "library") for each in others],
        "dependencies": [_needs(found[name], found) for name in sorted(found)],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(stated, sort_keys=True))
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        moment = datetime.fromtimestamp(int(epoch), UTC)
        stated["metadata"] = {**about, "timestamp": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**head, "serialNumber": f"urn:uuid:{serial}", **stated}


def _name(distribution: Distribution) -> str:
    return canonicalize_name(distribution.metadata["Name"])


def _purl(distribution: Distribution) -> str:
    # A package URL writes the plus of a local version ("1.0+cpu") as its code.
    return f"pkg:pypi/{_name(distribution)}@{distribution.version.replace('+', '%2B')}"


def _component(distribution: Distribution, kind: str) -> dict[str, Any]:
    purl = _purl(distribution)
    component: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl,
        "name": _name(distribution),
        "version": distribution.version,
        "purl": purl,
    }
    if digest := _digest(distribution):
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if licences := _licences(distribution):
        component["licenses"] = licences
    return component


def _digest(distribution: Distribution) -> str | None:
    """Give the hash of the file that it was installed from; kept where one was named."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    digest: str | None = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return digest


def _licences(distribution: Distribution) -> list[dict[str, Any]]:
    for expression in _said(distribution, "License-Expression"):
        return [{"expression": expression}]
    classifiers = _said(distribution, "Classifier")
    names = [each.removeprefix(_OSI) for each in classifiers if each.startswith(_OSI)]
    if not names:
        # Older metadata may hold the whole text there, which is no name.
        names = [
            free
            for free in _said(distribution, "License")
            if free and "\n" not in free and free != "UNKNOWN"
        ]
    return [{"license": {"name": name}} for name in names]


def _said(distribution: Distribution, field: str) -> list[str]:
    return distribution.metadata.get_all(field) or []


def _needs(distribution: Distribution, found: dict[str, Distribution]) -> dict[str, Any]:
    wanted = _wanted(Requirement(each) for each in distribution.requires or [])
    return {
        "ref": _purl(distribution),
        "dependsOn": [_purl(found[name]) for name in sorted(wanted & found.keys())],
    }


def _wanted(requirements: Iterable[Requirement]) -> set[str]:
    return {
        canonicalize_name(each.name)
        for each in requirements
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }


def main() -> None:
    """Write the list of one virtual environment to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="a virtual environment of this Python")
    environment: Path = parser.parse_args().environment
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    try:
        told = describe(environment / "lib" / minor / "site-packages")
    except LookupError as why:
        sys.exit(str(why.args[0]))
    json.dump(told, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
