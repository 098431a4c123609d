"""PodGroups read from the API server itself, past every cache: the last look before a commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from urllib.parse import quote

from extender.cache.changes import Kind
from extender.errors import ApiError, Unreachable
from extender.kube.api.client import refusal
from extender.kube.api.connection import Reply
from extender.kube.api.pipeline import Pipeline
from extender.kube.decode import watched
from extender.kube.decode.watched import Resource
from extender.model.gang import PodGroup


class LiveGroups:
    """The `GroupReader` of the real cluster; whoever asks decides whether to ask again."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._resources = {
            resource.codec.dialect: resource
            for resource in watched.resources(frozenset())
            if resource.codec.kind is Kind.GROUP
        }

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Give the live object; a gang that its pods make by themselves has none to read."""
        live: Future[PodGroup | None] = Future()
        live.set_running_or_notify_cancel()
        resource = self._resources.get(group.dialect)
        if resource is None:
            live.set_result(group)
        else:
            path = _path(resource, group)
            self._pipeline.run(lambda: self._ask(path, partial(_settle, live, resource, path)))
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


def _settle(live: Future[PodGroup | None], resource: Resource, path: str, reply: Reply) -> None:
    """Tell what the reply says."""
    group = resource.codec.item(reply.body) if reply.status == 200 else None
    if reply.status == 404 or isinstance(group, PodGroup):
        live.set_result(group if isinstance(group, PodGroup) else None)
    elif reply.status == 0:
        live.set_exception(Unreachable(f"GET {path}: no answer from the API server"))
    elif reply.status == 200:
        live.set_exception(ApiError(f"GET {path}: the answer is no PodGroup", status=200))
    else:
        live.set_exception(refusal("GET", path, reply.status, reply.body))


def _path(resource: Resource, group: PodGroup) -> str:
    base, _, plural = resource.path.rpartition("/")
    namespace, name = quote(group.namespace, safe=""), quote(group.name, safe="")
    return f"{base}/namespaces/{namespace}/{plural}/{name}"
