"""Which modules open sockets, or speak through one."""

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
#: To the API server.
CLIENTS = ("kube/api", "kube/watch")
OTHERS = {
    "web/hookport.py": "listens for kube-scheduler",
    "web/pageport.py": "listens for people and their tools",
    "web/http/port.py": "listens, for both",
    "web/http/door.py": "accepts callers, a few at a time",
    "web/http/connection.py": "reads what callers send",
    "tls/contexts.py": "says how TLS is spoken, on sockets of others",
    "tls/guard.py": "reads why a handshake failed",
    "tls/rotation.py": "says which certificates are in force",
    "embedded/running.py": "listens, and asks our own operations port",
    "cli/ask.py": "asks our own operations port",
    "doctor/looking/eyes.py": "knows how a request to the API server fails; kube/api sends it",
    "sim/scheduler.py": "asks our own hooks, in place of kube-scheduler",
}


def test_only_the_modules_of_the_table_use_sockets_and_the_clients_of_the_api_server() -> None:
    found = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        if USES_SOCKETS.search(module.read_text())
    }
    clients = {module for module in found if str(Path(module).parent) in CLIENTS}

    assert {str(Path(module).parent) for module in clients} == set(CLIENTS)
    assert found - clients == set(OTHERS)
