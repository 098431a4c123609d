"""The modules that open or use sockets."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "extender"
#: By import, or by a call of asyncio.
USES_SOCKETS = re.compile(
    r"^\s*(?:from|import) (?:socket|ssl|http|httptools|urllib3|urllib\.request|kubernetes)\b"
    r"|^\s*from urllib import .*\brequest\b"
    r"|\.(?:create|open)_connection\b",
    re.MULTILINE,
)
#: The clients of the API server.
CLIENTS = {
    *("kube/client.py", "kube/config.py", "kube/connection.py", "kube/reflector.py"),
    "kube/pipeline.py",
}
OTHERS = {
    "hooks/server.py": "listens for kube-scheduler",
    "web/server.py": "listens for people and their tools",
    "hooks/http_server.py": "accepts callers, for both ports",
    "hooks/http_connection.py": "reads what callers send",
    "tls/server.py": "makes the TLS contexts of both ports",
    "demo/embedded.py": "listens, and asks our own operations port",
    "demo/hook_client.py": "calls our own hooks, in place of kube-scheduler",
    "cli/connect.py": "asks our own operations port",
    "doctor/reader.py": "knows how a request to the API server fails; kube/client sends it",
}


def test_only_the_listed_modules_use_sockets_and_api_clients() -> None:
    found = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        if USES_SOCKETS.search(module.read_text())
    }
    assert found == CLIENTS | set(OTHERS)
