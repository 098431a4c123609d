"""Where the Chromium is that the pages are looked at with: on the PATH, else Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_INSTALL = (
    *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends"),
    *("--option", "DPkg::Lock::Timeout=300", "chromium"),
)
_LONGEST_S = 600


class Missing(Exception):
    """There is none; the message says why."""


def ensure() -> str:
    """Give the path of a Chromium, installed if need be and allowed."""
    if found := _found():
        return found
    if shutil.which("apt-get") is None:
        raise Missing("no Chromium on the PATH, and no apt-get to install one with")
    if os.geteuid() != 0:
        raise Missing("no Chromium on the PATH, and only root may install one (apt-get)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            _INSTALL, env=environment, capture_output=True, text=True, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        raise Missing("apt-get install chromium did not end") from None
    if found := _found():
        return found
    why = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
    raise Missing(f"apt-get install chromium failed: {why}")


def _found() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)
