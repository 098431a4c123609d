"""One kind of objects on the wire: watch lines and list items in, changes out.

A line is decoded in one go into the few fields we use. What does not decode is looked at again
with open hands: its name is enough to keep it as a spoilt object, whose problem its owner can
read. What is nested too deeply is read without its depths. Nothing an object contains can raise
from here.
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
_TOO_DEEP = "an object is nested too deeply; what is deep in it is not read"


class WatchLine(NamedTuple):
    """What one line of a watch says."""

    #: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, or empty for what is no event at all.
    type: str
    #: The resourceVersion it brings us to.
    version: str = ""
    change: Upsert | Delete | None = None
    #: A streamed list is complete here.
    is_end_of_list: bool = False
    #: The HTTP status of an ERROR.
    code: int = 0


class MinimalMeta(msgspec.Struct, rename="camel", gc=False):
    """The little one must know of an object to complain about it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Any = None


class _OddObject(msgspec.Struct, gc=False):
    # Nothing else: what is beside it may be whatever its owner writes.
    metadata: MinimalMeta


class _Status(msgspec.Struct, gc=False):
    code: Any = 0


class _Event(msgspec.Struct, Generic[Raw], gc=False):
    type: str
    object: Raw


_odd_event = msgspec.json.Decoder(_Event[msgspec.Raw])
_odd_object = msgspec.json.Decoder(_OddObject)
_status = msgspec.json.Decoder(_Status)


class ObjectDecoder(Generic[Raw]):
    """Reads objects of one kind and dialect.

    *read* turns the decoded fields into the model's object; *stand_in* makes one of an object
    that cannot be decoded, or gives None when such a one is better left out. *thin* may cut out of
    the JSON what nobody reads.
    """

    def __init__(
        self,
        kind: Kind,
        raw: type[Raw],
        read: Callable[[Raw], Item],
        *,
        stand_in: Callable[[MinimalMeta, str], Item | None] = lambda meta, why: None,
        dialect: str = "",
        thin: Callable[[bytes | msgspec.Raw], bytes | msgspec.Raw] = lambda data: data,
    ) -> None:
        self.kind = kind
        self._thin = thin
        self.dialect = dialect
        self._read = read
        self._stand_in = stand_in
        #: Whoever may write objects may write many, and each as often as he likes.
        self._seldom = RateLimitedLog(log)
        self._object = msgspec.json.Decoder(raw)
        generic: Any = _Event  # mypy does not subscript a class by a variable; msgspec does
        self._event: msgspec.json.Decoder[_Event[Any]] = msgspec.json.Decoder(generic[raw])

    def read(self, data: bytes | msgspec.Raw) -> Item:
        """Read one object, or raise whatever is wrong with it; `plain` says that in words."""
        return self._made(self._object.decode(self._thin(data)))

    def item(self, data: bytes | msgspec.Raw) -> Item | None:
        """Read one object of a list; None when it is left out."""
        try:
            return self.read(data)
        except Exception as error:
            complaint = error
        meta = None if isinstance(complaint, RecursionError) else _odd_meta(data)
        cut = cut_nesting(bytes(data)) if meta is None else None
        if cut is None:
            return self._make_do(meta or _odd_meta(data) or MinimalMeta(), complaint)
        item = self.item(cut)
        self._tell(_TOO_DEEP, _named(item))
        return item

    def line(self, line: bytes) -> WatchLine:
        """Read one line of a watch."""
        try:
            return self._usual_line(line) or self._odd_line(line)
        except RecursionError:
            cut = cut_nesting(line)
        if cut is None:
            return WatchLine("")
        read = self.line(cut)
        if isinstance(read.change, Upsert):
            self._tell(_TOO_DEEP, _named(read.change.item))
        return read

    def _usual_line(self, line: bytes) -> WatchLine | None:
        try:
            heard = self._event.decode(self._thin(line))
            meta = heard.object.metadata
            if heard.type == "DELETED":
                return WatchLine(heard.type, meta.resource_version, self._gone(meta))
            if heard.type in _OBJECT_EVENTS:
                change = Upsert(self._made(heard.object), self.dialect)
                return WatchLine(heard.type, meta.resource_version, change)
        except Exception:
            return None
        return None

    def _odd_line(self, line: bytes) -> WatchLine:
        """Read a bookmark, an error, or an object that is not what it should be."""
        try:
            heard = _odd_event.decode(line)
            if heard.type == "ERROR":
                return WatchLine(heard.type, code=_code(heard.object))
            meta = _meta(heard.object)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return WatchLine("")
        if meta is None:
            return self._nobody(heard)
        if heard.type == "BOOKMARK":
            marks = meta.annotations
            is_end = isinstance(marks, dict) and _INITIAL_END in marks
            return WatchLine(heard.type, meta.resource_version, is_end_of_list=is_end)
        if heard.type == "DELETED":
            return WatchLine(heard.type, meta.resource_version, self._gone(meta))
        item = self.item(heard.object)
        change = Upsert(item, self.dialect) if item is not None else None
        return WatchLine(heard.type, meta.resource_version, change)

    def _nobody(self, heard: _Event[msgspec.Raw]) -> WatchLine:
        """Pass over an event of an object that cannot even be named.

        It is still an event: the others of its stream must not be lost because of one object.
        """
        if heard.type not in _OBJECT_EVENTS:
            return WatchLine("")
        self._tell("an object cannot be named", "", event=heard.type)
        return WatchLine(heard.type)

    def _made(self, raw: Any) -> Item:
        # Without one it would be taken for what has none by nature, such as the top of all queues.
        if not raw.metadata.name:
            raise InvalidInput("metadata.name is empty")
        return self._read(raw)

    def _gone(self, meta: Any) -> Delete:
        if self.kind is Kind.POD:
            return Delete(self.kind, meta.uid, self.dialect)
        if self.kind in (Kind.GROUP, Kind.BUDGET, Kind.QUOTA):
            return Delete(self.kind, f"{meta.namespace or 'default'}/{meta.name}", self.dialect)
        return Delete(self.kind, meta.name, self.dialect)

    def _tell(self, sentence: str, thing: str, **facts: Any) -> None:
        kind = self.kind.value
        self._seldom.event(logging.WARNING, sentence, kind=kind, object=thing, **facts)

    def _make_do(self, meta: MinimalMeta, error: Exception) -> Item | None:
        self._tell(
            "an object cannot be read", f"{meta.namespace}/{meta.name}", error=shorten(error)
        )
        return self._stand_in(meta, plain_error(error)) if meta.name else None


def _meta(data: bytes | msgspec.Raw) -> MinimalMeta | None:
    """Read who an object is; None when that cannot be told. What is no JSON raises."""
    try:
        return _odd_object.decode(data).metadata
    except msgspec.ValidationError:
        return None


def _odd_meta(data: bytes | msgspec.Raw) -> MinimalMeta | None:
    """Read who an object is; None when it is nested too deeply even for that."""
    try:
        return _meta(data) or MinimalMeta()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return MinimalMeta()
    except RecursionError:
        return None


def _code(data: msgspec.Raw) -> int:
    """Read the HTTP status of an ERROR; 0 when there is none."""
    try:
        code = _status.decode(data).code
    except msgspec.ValidationError:
        return 0
    return code if type(code) is int else 0


def _named(item: Item | None) -> str:
    if item is None:
        return ""
    return item.pod.key if isinstance(item, SeenPod) else key_of(item)


def plain_error(error: Exception) -> str:
    """Say a decoder's complaint in Kubernetes' words: where, then what."""
    what, _, where = shorten(error).partition(" - at ")
    what = what.replace("`", "").replace("Expected", "expected")
    return f"{where.strip('`').removeprefix('$.')} {what}" if where else what
