"""Keys that stand in a kubeconfig itself: in memory, never in a file that outlives the process.

What speaks TLS reads keys from files alone, so the client writes them into /tmp and deletes them
when Python ends. A process that is killed never comes to that, and the key of an administrator
stays where it was put. A file of memory has no name but among our own open ones, and goes with us.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_NAME = "_create_temp_file_with_content"
#: The function of the client is one for all threads.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def in_memory() -> Iterator[None]:
    """While the block lasts, let the client put keys into memory; afterwards they are gone."""
    from kubernetes.config import kube_config

    client: Any = kube_config
    with _ONE_AT_A_TIME, ExitStack() as files:

        def keep(content: str | bytes, *_: object, **__: object) -> str:
            return _keep(content.encode() if isinstance(content, str) else content, files)

        theirs = getattr(client, _NAME)
        setattr(client, _NAME, keep)
        try:
            yield
        finally:
            setattr(client, _NAME, theirs)


def _keep(content: bytes, files: ExitStack) -> str:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("kubeconfig")
        files.callback(os.close, number)
        os.write(number, content)
        path = f"/proc/self/fd/{number}"
        if os.path.exists(path):
            return path
    # Where there is no such thing, a file that is deleted as soon as it was read.
    file = files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - so it is
    file.write(content)
    file.flush()
    return file.name
