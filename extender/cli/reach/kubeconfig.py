"""What a kubeconfig says of contexts, read as kubectl reads it: the first file to speak wins.

Only names are read here. Connecting is kubectl's affair, and so are credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from extender.errors import BadInput
from extender.text import written

_HOME = "~/.kube/config"
#: Where nothing else is said, as for kubectl.
DEFAULT_NAMESPACE = "default"


def is_there(kubeconfig: str = "") -> bool:
    """Ask whether kubectl would know a cluster: by a file, or by the account of this pod."""
    return is_written(kubeconfig) or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def is_written(kubeconfig: str = "") -> bool:
    """Ask whether there is a file of it."""
    return any(path.exists() for path in _paths(kubeconfig))


def contexts(kubeconfig: str = "") -> list[str]:
    """Give the names of all contexts."""
    found = (each.get("name") for file in _files(kubeconfig) for each in _list(file, "contexts"))
    return sorted({name for name in found if isinstance(name, str)})


def namespace(kubeconfig: str = "", context: str = "") -> str:
    """Give the namespace of *context*, or of the one in use."""
    files = [*_files(kubeconfig)]
    in_use = context or next((f["current-context"] for f in files if f.get("current-context")), "")
    for file in files:
        for each in _list(file, "contexts"):
            if each.get("name") == in_use:
                about = each.get("context")
                said = about.get("namespace") if isinstance(about, Mapping) else None
                return str(said) if said else DEFAULT_NAMESPACE
    return DEFAULT_NAMESPACE


def _paths(kubeconfig: str) -> list[Path]:
    named = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [Path(each).expanduser() for each in ([*filter(None, named)] or [_HOME])]


def _files(kubeconfig: str) -> Iterator[Mapping[str, Any]]:
    for path in _paths(kubeconfig):
        if kubeconfig and not path.exists():
            raise BadInput(f"kubeconfig {path} does not exist")
        if path.exists():
            yield _read(path)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = written.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except (BadInput, UnicodeDecodeError) as error:
        raise BadInput(f"kubeconfig {path} is not YAML") from error
    if found is not None and not isinstance(found, Mapping):
        raise BadInput(f"kubeconfig {path} is not a kubeconfig")
    return found or {}


def _list(file: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = file.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
