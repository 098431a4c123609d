"""PodGroups read from the API server itself, past every cache: the last look before a commit."""

from __future__ import annotations

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
            question = _Question(_path(resource, group), resource, live)
            self._pipeline.run(partial(self._ask, question))
        return live

    def _ask(self, question: _Question, is_last: bool = False) -> None:
        request = self._pipeline.frame(b"GET", question.path)
        self._pipeline.ask(request, partial(self._answered, question, is_last))

    def _answered(self, question: _Question, is_last: bool, reply: Reply) -> None:
        if reply.status == 0 and not is_last:
            # The server may have closed the connection while it was idle; a read can be repeated.
            self._ask(question, is_last=True)
            return
        if reply.status == 401:
            self._pipeline.renew()
        question.settle(reply)


class _Question:
    """One read on its way."""

    __slots__ = ("_live", "_resource", "path")

    def __init__(self, path: str, resource: Resource, live: Future[PodGroup | None]) -> None:
        self.path = path
        self._resource = resource
        self._live = live

    def settle(self, reply: Reply) -> None:
        """Tell what the reply says."""
        if reply.status == 404:
            self._live.set_result(None)
            return
        if reply.status == 0:
            error: ApiError = Unreachable(f"GET {self.path}: no answer from the API server")
        elif reply.status != 200:
            error = refusal("GET", self.path, reply.status, reply.body)
        else:
            group = self._resource.codec.item(reply.body)
            if isinstance(group, PodGroup):
                self._live.set_result(group)
                return
            error = ApiError(f"GET {self.path}: the answer is no PodGroup", status=200)
        self._live.set_exception(error)


def _path(resource: Resource, group: PodGroup) -> str:
    base, _, plural = resource.path.rpartition("/")
    namespace, name = quote(group.namespace, safe=""), quote(group.name, safe="")
    return f"{base}/namespaces/{namespace}/{plural}/{name}"
