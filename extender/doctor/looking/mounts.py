"""Where a file of a container comes from: the ConfigMap or Secret that is mounted there."""

from __future__ import annotations

import base64
import binascii

from extender.doctor.looking.eyes import Eyes
from extender.doctor.seen import Document


def mounted(eyes: Eyes, pod: Document, container: Document, path: str, home: str) -> bytes | None:
    """Read *path* of a container of the pod template *pod*; None when it cannot be seen."""
    what = f"{path} of {container.get('name')} in {home}"
    volume, key = _volume(pod, container, path)
    for kind, plural, name_of in (
        ("configMap", "configmaps", "name"),
        ("secret", "secrets", "secretName"),
    ):
        if kind not in volume:
            continue
        told = volume[kind]
        key = next((e["key"] for e in told.get("items") or () if e.get("path") == key), key)
        name = told.get(name_of)
        found = eyes.get(f"/api/v1/namespaces/{home}/{plural}/{name}", what)
        if found is None:
            return None
        return _content(eyes, found, key, what, f"{plural[:-1]} {name} in {home}")
    eyes.miss(what, "no ConfigMap and no Secret is mounted there")
    return None


def _content(eyes: Eyes, found: Document, key: str, what: str, where: str) -> bytes | None:
    text = (found.get("data") or {}).get(key)
    if text is None:
        eyes.miss(what, f"{where} does not exist" if not found else f"{where} has no {key}")
        return None
    if found.get("kind") == "ConfigMap":
        return str(text).encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError):
        eyes.miss(what, f"{where}: {key} is not base64")
        return None


def _volume(pod: Document, container: Document, path: str) -> tuple[Document, str]:
    volumes = {each.get("name"): each for each in pod.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        folder = str(mount.get("mountPath", "")).rstrip("/")
        if mount.get("subPath") and path == folder:
            return volumes.get(mount.get("name"), {}), str(mount["subPath"])
        if path.startswith(f"{folder}/"):
            return volumes.get(mount.get("name"), {}), path.removeprefix(f"{folder}/")
    return {}, path
