"""The certificates of `gang-extender certificates`, and the flags that name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .extender_process import REPOSITORY


def make_certificates(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "extender", "certificates", f"--directory={folder}"]
    subprocess.run([*command, *arguments], cwd=REPOSITORY, check=True, timeout=60)


def server_flags(folder: Path) -> list[str]:
    return [
        f"--tls-cert-file={folder}/server.crt",
        f"--tls-private-key-file={folder}/server.key",
        f"--client-ca-file={folder}/ca.crt",
    ]


def client_flags(folder: Path) -> list[str]:
    return [
        f"--ca-file={folder}/ca.crt",
        f"--cert-file={folder}/client.crt",
        f"--key-file={folder}/client.key",
        "--server-name=gang-extender.gang-system.svc",
    ]
