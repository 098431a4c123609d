"""PodGroups read from the API server itself, past every cache: the last look before a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from extender.errors import ApiError, Forbidden, NoResponse
from extender.kube.client import refusal
from extender.kube.connection import Reply
from extender.kube.decode import resources
from extender.kube.decode.decoder import ObjectDecoder
from extender.kube.pipeline import Pipeline, object_path
from extender.model.gang import VERSIONS, PodGroup
from extender.ports import Reviewed


class GroupReads:
    """The `GroupReader` of the real cluster; whoever asks decides whether to ask again."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._codecs = {dialect: resources.groups(dialect) for dialect in VERSIONS}

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

        self._pipeline.request(self._pipeline.frame(b"GET", path), answered)


def _settle(
    live: Future[PodGroup | None], codec: ObjectDecoder[Any], path: str, reply: Reply
) -> None:
    """Tell what the reply says."""
    group = codec.item(reply.body) if reply.status == 200 else None
    if reply.status == 404 or isinstance(group, PodGroup):
        live.set_result(group if isinstance(group, PodGroup) else None)
    elif reply.status == 0:
        live.set_exception(NoResponse(f"GET {path}: no answer from the API server"))
    elif reply.status == 200:
        live.set_exception(ApiError(f"GET {path}: the answer is no PodGroup", status=200))
    else:
        live.set_exception(refusal("GET", path, reply.status, reply.body))


TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Of each of the two; somebody waits.
_WAIT_S = 4.0
#: Nobody is called longer; what is longer is an error, or somebody's wish to fill our memory.
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


class AsksSoon(Protocol):
    """What a review needs of the way to the API server."""

    def request(self, method: str, path: str, body: object = ..., *, wait_s: float = ...) -> bytes:
        """Ask once and give the body; anything but 2xx raises from the `ApiError` family."""


class TokenReviewer:
    """The `Reviewer` of a real cluster; with *audiences*, tokens must be made for one of them."""

    def __init__(self, access: AsksSoon, audiences: Sequence[str] = ()) -> None:
        self._access = access
        self._audiences = [*audiences]

    def review(self, token: str, page: str) -> Reviewed:
        """Ask who bears *token*, and whether that one may read *page*."""
        user = self._bearer(token)
        if user is None:
            return Reviewed()
        return Reviewed(user=user.username, may_read=self._may_read(user, page))

    def _bearer(self, token: str) -> _User | None:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        status = self._ask(TOKENS, {**kind, "spec": spec}, _TokenReview).status
        user = status.user
        if not status.authenticated or user is None:
            return None
        # One that knows nothing of audiences names none, and has not checked any.
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
        status = self._ask(ACCESS, {**kind, "spec": spec}, _AccessReview).status
        return status.allowed and not status.denied

    def _ask(self, path: str, review: object, shape: type[_Review]) -> _Review:
        resource = path.rpartition("/")[2]
        try:
            told = self._access.request("POST", path, review, wait_s=_WAIT_S)
            return msgspec.json.decode(told, type=shape)
        except Forbidden as error:
            raise Forbidden(f"we may not create {resource}", status=error.status) from None
        except ApiError as error:
            words = f"{resource}: the API server answered {error.status or 'nothing'}"
            raise ApiError(words, status=error.status) from None
        except (msgspec.DecodeError, RecursionError):
            raise NoResponse(f"{resource}: what answered is no API server") from None
