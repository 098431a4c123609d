"""Finds Chromium on the PATH, or installs Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_INSTALL = (
    *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends"),
    *("--option", "DPkg::Lock::Timeout=300", "chromium"),
)
_TIMEOUT_S = 600


class Missing(Exception):
    """Chromium is not available; the message says why."""


def ensure() -> str:
    """Return the path of Chromium; install it if it is missing and that is possible."""
    if found := _found():
        return found
    if shutil.which("apt-get") is None:
        raise Missing("no Chromium on the PATH, and no apt-get to install one with")
    if os.geteuid() != 0:
        raise Missing("no Chromium on the PATH, and only root may install one (apt-get)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            _INSTALL, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise Missing("apt-get install chromium did not end") from None
    if found := _found():
        return found
    why = (done.stderr.strip().splitlines() or ["no output"])[-1]
    raise Missing(f"apt-get install chromium failed: {why}")


def _found() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)
