"""PodGroups read from the API server itself, past every cache: the last look before a commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from extender.errors import ApiError, Unreachable
from extender.kube.api.client import refusal
from extender.kube.api.connection import Reply
from extender.kube.api.pipeline import Pipeline, object_path
from extender.kube.decode import watched
from extender.kube.decode.codec import Codec
from extender.model.dialect import VERSIONS
from extender.model.gang import PodGroup


class LiveGroups:
    """The `GroupReader` of the real cluster; whoever asks decides whether to ask again."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._codecs = {dialect: watched.groups(dialect) for dialect in VERSIONS}

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Give the live object; a gang that its pods make by themselves has none to read."""
        live: Future[PodGroup | None] = Future()
        live.set_running_or_notify_cancel()
        codec = self._codecs.get(group.dialect)
        if codec is None:
            live.set_result(group)
        else:
            path = object_path(group.dialect, "podgroups", group.namespace, group.name)
            self._pipeline.run(lambda: self._ask(path, partial(_settle, live, codec, path)))
        return live

    def _ask(self, path: str, settle: Callable[[Reply], None], is_last: bool = False) -> None:
        def answered(reply: Reply) -> None:
            if reply.status == 0 and not is_last:
                # The server may have closed an idle connection; a read can be repeated.
                self._ask(path, settle, is_last=True)
                return
            if reply.status == 401:
                self._pipeline.renew()
            settle(reply)

        self._pipeline.ask(self._pipeline.frame(b"GET", path), answered)


def _settle(live: Future[PodGroup | None], codec: Codec[Any], path: str, reply: Reply) -> None:
    """Tell what the reply says."""
    group = codec.item(reply.body) if reply.status == 200 else None
    if reply.status == 404 or isinstance(group, PodGroup):
        live.set_result(group if isinstance(group, PodGroup) else None)
    elif reply.status == 0:
        live.set_exception(Unreachable(f"GET {path}: no answer from the API server"))
    elif reply.status == 200:
        live.set_exception(ApiError(f"GET {path}: the answer is no PodGroup", status=200))
    else:
        live.set_exception(refusal("GET", path, reply.status, reply.body))
