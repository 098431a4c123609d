"""Decodes the objects of one kind: watch lines and list items in, changes out.

A line is decoded in one call into the few fields that we use. An object that cannot be decoded is
read again for its metadata alone: its name is enough for a placeholder with a problem that its
owner can read. An object that is nested too deeply is read without its deep parts. No content of an
object raises an exception from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from extender.cache.changes import Delete, Item, Kind, SeenPod, Upsert, key_of
from extender.errors import InvalidInput
from extender.kube.decode.limits import cut_nesting, shorten
from extender.logs import RateLimitedLog

log = logging.getLogger(__name__)
Raw = TypeVar("Raw")
_OBJECT_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
#: Marks the bookmark after which a streamed list is complete.
_INITIAL_END = "k8s.io/initial-events-end"
_TOO_DEEP = "an object is nested too deeply; its deep parts are not read"


class WatchLine(NamedTuple):
    """The content of one line of a watch."""

    #: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, or empty for a line that is not an event.
    type: str
    #: The resourceVersion from which a watch can continue.
    version: str = ""
    change: Upsert | Delete | None = None
    #: The streamed list is complete.
    is_end_of_list: bool = False
    #: The HTTP status of an ERROR.
    code: int = 0


class MinimalMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata that a placeholder or a log message of an object needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Any = None


class _MinimalObject(msgspec.Struct, gc=False):
    # No other field: the rest may be of any type.
    metadata: MinimalMeta


class _Status(msgspec.Struct, gc=False):
    code: Any = 0


class _Event(msgspec.Struct, Generic[Raw], gc=False):
    type: str
    object: Raw


_minimal_event = msgspec.json.Decoder(_Event[msgspec.Raw])
_minimal_object = msgspec.json.Decoder(_MinimalObject)
_status = msgspec.json.Decoder(_Status)


class ObjectDecoder(Generic[Raw]):
    """Decodes objects of one kind and dialect.

    *read* converts the decoded fields into an object of the model. *placeholder* creates one for an
    object that cannot be decoded, or returns None to leave it out. *trim* may remove unused parts
    of the JSON before it is decoded.
    """

    def __init__(
        self,
        kind: Kind,
        raw: type[Raw],
        read: Callable[[Raw], Item],
        *,
        placeholder: Callable[[MinimalMeta, str], Item | None] = lambda meta, why: None,
        dialect: str = "",
        trim: Callable[[bytes | msgspec.Raw], bytes | msgspec.Raw] = lambda data: data,
    ) -> None:
        self.kind = kind
        self.raw = raw
        self._trim = trim
        self.dialect = dialect
        self._read = read
        self._placeholder = placeholder
        #: Rate-limited, because tenants may write any number of objects, at any rate.
        self._limited_log = RateLimitedLog(log)
        self._object = msgspec.json.Decoder(raw)
        generic: Any = _Event  # mypy does not subscript a class by a variable; msgspec does
        self._event: msgspec.json.Decoder[_Event[Any]] = msgspec.json.Decoder(generic[raw])

    def read(self, data: bytes | msgspec.Raw) -> Item:
        """Decode one object; raises any error of it, and `plain_error` translates that."""
        return self._convert(self._object.decode(self._trim(data)))

    def item(self, data: bytes | msgspec.Raw) -> Item | None:
        """Decode one object of a list; returns None when it is left out."""
        try:
            return self.read(data)
        except Exception as error:
            problem = error
        meta = None if isinstance(problem, RecursionError) else _meta_unless_deep(data)
        cut = cut_nesting(bytes(data)) if meta is None else None
        if cut is None:
            return self._replacement(meta or _meta_unless_deep(data) or MinimalMeta(), problem)
        item = self.item(cut)
        self._warn(_TOO_DEEP, _name_of(item))
        return item

    def line(self, line: bytes) -> WatchLine:
        """Decode one line of a watch."""
        try:
            return self._regular_line(line) or self._fallback_line(line)
        except RecursionError:
            cut = cut_nesting(line)
        if cut is None:
            return WatchLine("")
        read = self.line(cut)
        if isinstance(read.change, Upsert):
            self._warn(_TOO_DEEP, _name_of(read.change.item))
        return read

    def _regular_line(self, line: bytes) -> WatchLine | None:
        try:
            event = self._event.decode(self._trim(line))
            meta = event.object.metadata
            if event.type == "DELETED":
                return WatchLine(event.type, meta.resource_version, self._deletion(meta))
            if event.type in _OBJECT_EVENTS:
                change = Upsert(self._convert(event.object), self.dialect)
                return WatchLine(event.type, meta.resource_version, change)
        except Exception:
            return None
        return None

    def _fallback_line(self, line: bytes) -> WatchLine:
        """Decode a bookmark, an error, or an object that is not valid."""
        try:
            event = _minimal_event.decode(line)
            if event.type == "ERROR":
                return WatchLine(event.type, code=_code(event.object))
            meta = _meta(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return WatchLine("")
        if meta is None:
            return self._unnamed(event)
        if event.type == "BOOKMARK":
            annotations = meta.annotations
            is_end = isinstance(annotations, dict) and _INITIAL_END in annotations
            return WatchLine(event.type, meta.resource_version, is_end_of_list=is_end)
        if event.type == "DELETED":
            return WatchLine(event.type, meta.resource_version, self._deletion(meta))
        item = self.item(event.object)
        change = Upsert(item, self.dialect) if item is not None else None
        return WatchLine(event.type, meta.resource_version, change)

    def _unnamed(self, event: _Event[msgspec.Raw]) -> WatchLine:
        """Skip the event of an object whose name cannot be read.

        It is still an event: one object must not break the stream of the others.
        """
        if event.type not in _OBJECT_EVENTS:
            return WatchLine("")
        self._warn("the name of an object cannot be read", "", event=event.type)
        return WatchLine(event.type)

    def _convert(self, raw: Any) -> Item:
        # An empty name has a meaning of its own elsewhere, such as the root of all queues.
        if not raw.metadata.name:
            raise InvalidInput("metadata.name is empty")
        return self._read(raw)

    def _deletion(self, meta: Any) -> Delete:
        if self.kind is Kind.POD:
            return Delete(self.kind, meta.uid, self.dialect)
        if self.kind in (Kind.GROUP, Kind.BUDGET, Kind.QUOTA):
            return Delete(self.kind, f"{meta.namespace or 'default'}/{meta.name}", self.dialect)
        return Delete(self.kind, meta.name, self.dialect)

    def _warn(self, sentence: str, name: str, **facts: Any) -> None:
        kind = self.kind.value
        self._limited_log.event(logging.WARNING, sentence, kind=kind, object=name, **facts)

    def _replacement(self, meta: MinimalMeta, error: Exception) -> Item | None:
        self._warn(
            "an object cannot be read", f"{meta.namespace}/{meta.name}", error=shorten(error)
        )
        return self._placeholder(meta, plain_error(error)) if meta.name else None


def _meta(data: bytes | msgspec.Raw) -> MinimalMeta | None:
    """Return the metadata of an object; None if it is not valid. Invalid JSON raises."""
    try:
        return _minimal_object.decode(data).metadata
    except msgspec.ValidationError:
        return None


def _meta_unless_deep(data: bytes | msgspec.Raw) -> MinimalMeta | None:
    """Return the metadata of an object; None if it is nested too deeply even for that."""
    try:
        return _meta(data) or MinimalMeta()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return MinimalMeta()
    except RecursionError:
        return None


def _code(data: msgspec.Raw) -> int:
    """Return the HTTP status of an ERROR; 0 without one."""
    try:
        code = _status.decode(data).code
    except msgspec.ValidationError:
        return 0
    return code if type(code) is int else 0


def _name_of(item: Item | None) -> str:
    if item is None:
        return ""
    return item.pod.key if isinstance(item, SeenPod) else key_of(item)


def plain_error(error: Exception) -> str:
    """Return an error of the decoder in the form of Kubernetes: the path, then the problem."""
    what, _, where = shorten(error).partition(" - at ")
    what = what.replace("`", "").replace("Expected", "expected")
    return f"{where.strip('`').removeprefix('$.')} {what}" if where else what
