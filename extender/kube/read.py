"""Reads past the cache: the live PodGroup before a gang is bound, and reviews of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import msgspec

from extender.errors import ApiError, Forbidden, NoResponse
from extender.kube.client import ApiClient
from extender.kube.connection import Reply
from extender.kube.decode import resources
from extender.kube.decode.decoder import ObjectDecoder
from extender.kube.errors import refusal
from extender.kube.pipeline import Pipeline, object_path
from extender.model.gang import VERSIONS, PodGroup
from extender.ports import Reviewed


class GroupReads:
    """The `GroupReader` of a real cluster; the caller decides about retries."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._decoders = {dialect: resources.groups(dialect) for dialect in VERSIONS}

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Return the live object; an implicit PodGroup has none, and is returned as it is."""
        future: Future[PodGroup | None] = Future()
        future.set_running_or_notify_cancel()
        decoder = self._decoders.get(group.dialect)
        if decoder is None:
            future.set_result(group)
        else:
            path = object_path(group.dialect, "podgroups", group.namespace, group.name)
            self._pipeline.run(lambda: self._request(path, partial(_settle, future, decoder, path)))
        return future

    def _request(self, path: str, on_reply: Callable[[Reply], None], is_last: bool = False) -> None:
        def handle(reply: Reply) -> None:
            if reply.status == 0 and not is_last:
                # The server may have closed an idle connection, and a read is safe to repeat.
                self._request(path, on_reply, is_last=True)
                return
            if reply.status == 401:
                self._pipeline.renew()
            on_reply(reply)

        self._pipeline.request(self._pipeline.frame(b"GET", path), handle)


def _settle(
    future: Future[PodGroup | None], decoder: ObjectDecoder[Any], path: str, reply: Reply
) -> None:
    """Complete the future with the content of the reply."""
    group = decoder.item(reply.body) if reply.status == 200 else None
    if reply.status == 404 or isinstance(group, PodGroup):
        future.set_result(group if isinstance(group, PodGroup) else None)
    elif reply.status == 0:
        future.set_exception(NoResponse(f"GET {path}: no response from the API server"))
    elif reply.status == 200:
        future.set_exception(ApiError(f"GET {path}: the response is not a PodGroup", status=200))
    else:
        future.set_exception(refusal("GET", path, reply.status, reply.body))


TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: The timeout of each of the two reviews; a reader waits for both.
_WAIT_S = 4.0
#: A longer user name is an error, or an attempt to fill our memory.
_LONGEST_NAME = 512


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str] | None] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


_Review = TypeVar("_Review", _TokenReview, _AccessReview)


class TokenReviewer:
    """The `Reviewer` of a real cluster; with *audiences*, a token must be issued for one."""

    def __init__(self, client: ApiClient, audiences: Sequence[str] = ()) -> None:
        self._client = client
        self._audiences = [*audiences]

    def review(self, token: str, page: str) -> Reviewed:
        """Return the user of *token*, and whether that user may read *page*."""
        user = self._user_of(token)
        if user is None:
            return Reviewed()
        return Reviewed(user=user.username, may_read=self._may_read(user, page))

    def _user_of(self, token: str) -> _User | None:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        status = self._request(TOKENS, {**kind, "spec": spec}, _TokenReview).status
        user = status.user
        if not status.authenticated or user is None:
            return None
        # An authenticator without audience support returns none, and has not checked them.
        if self._audiences and not {*self._audiences} & {*(status.audiences or ())}:
            return None
        return user if 0 < len(user.username) <= _LONGEST_NAME else None

    def _may_read(self, user: _User, page: str) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": {name: values or [] for name, values in (user.extra or {}).items()},
            "nonResourceAttributes": {"path": page, "verb": "get"},
        }
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        status = self._request(ACCESS, {**kind, "spec": spec}, _AccessReview).status
        return status.allowed and not status.denied

    def _request(self, path: str, review: object, shape: type[_Review]) -> _Review:
        resource = path.rpartition("/")[2]
        try:
            body = self._client.request("POST", path, review, wait_s=_WAIT_S)
            return msgspec.json.decode(body, type=shape)
        except Forbidden as error:
            raise Forbidden(f"we may not create {resource}", status=error.status) from None
        except ApiError as error:
            why = f"{resource}: the API server answered {error.status or 'nothing'}"
            raise ApiError(why, status=error.status) from None
        except (msgspec.DecodeError, RecursionError):
            raise NoResponse(f"{resource}: the response is not from an API server") from None
