"""An API server for list and watch: real sockets, a real history, faults on request."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from extender.kube.client import ApiClient
from extender.kube.config import ApiServer

Object = dict[str, Any]

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
QUOTAS = "/api/v1/resourcequotas"
BUILT_IN = (
    PODS,
    NODES,
    "/api/v1/namespaces",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/policy/v1/poddisruptionbudgets",
)


#: Placeholder in an object for nesting as deep as a real API server accepts.
DEEP_NESTING = "deep nesting"


@dataclass
class Event:
    version: int
    path: str
    type: str
    thing: Object


@dataclass
class ReceivedRequest:
    """One request as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)


class WatchedApi:
    """Holds objects by path and name; every change is an event with a resourceVersion."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.installed = set(BUILT_IN)
        self.streams_lists = True
        #: Paths whose lists end before they are complete.
        self.cut_lists: set[str] = set()
        #: Statuses with which the next requests for a path are answered.
        self.refusals: dict[str, list[int]] = defaultdict(list)
        #: Paths that may be listed, but not watched.
        self.unwatched: set[str] = set()
        #: Answer 410 as a line in the stream, as etcd's compaction shows, or as a status.
        self.expires_in_stream = True
        self.token = ""
        #: The status with which everything is refused, as by an API server that just began.
        self.refuses_all = 0
        #: How often the streams of a path were made to fall silent.
        self._mutes: dict[str, int] = defaultdict(int)
        #: Paths whose lists do not complete, and the requests that wait for the end.
        self._held_lists: set[str] = set()
        self.waiting: list[str] = []
        self.requests: list[ReceivedRequest] = []
        self.compacted = 0
        self._version = 1
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self._events: list[Event] = []
        self._hang_ups = 0
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> WatchedApi:
        return self

    def __exit__(self, *error: object) -> None:
        self.hang_up()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def access(self, *, reload: Any = None, **rest: Any) -> ApiClient:
        endpoint = ApiServer(host="127.0.0.1", port=self._server.server_port, **rest)
        return ApiClient(endpoint, reload=reload)

    def put(self, path: str, thing: Object) -> None:
        with self.changed:
            key = _key(thing)
            verb = "MODIFIED" if key in self._objects[path] else "ADDED"
            self._objects[path][key] = self._record(path, verb, thing)

    def delete(self, path: str, thing: Object) -> None:
        with self.changed:
            self._record(path, "DELETED", self._objects[path].pop(_key(thing)))

    def say(self, path: str, line: Object) -> None:
        """Send a line of the test into each watch of *path*."""
        with self.changed:
            self._version += 1
            self._events.append(Event(self._version, path, "SAID", line))
            self.changed.notify_all()

    def compact(self) -> None:
        """Drop the history: a watch from an older version must list again."""
        with self.changed:
            self.compacted = self._version

    def restore(self) -> None:
        """Restore an empty backup: versions begin again."""
        with self.changed:
            self._version = 1
            self._objects.clear()
            self._events.clear()
        self.hang_up()

    def hang_up(self) -> None:
        """Break every stream."""
        with self.changed:
            self._hang_ups += 1
            self.changed.notify_all()

    def mute(self, path: str) -> None:
        """Send no more events on the open streams of *path*, without closing them."""
        with self.changed:
            self._mutes[path] += 1

    def hold_lists(self, path: str) -> None:
        """Begin the lists of *path*, and complete none."""
        with self.changed:
            self._held_lists.add(path)

    def end_lists(self, path: str) -> None:
        """Let lists of *path* complete again."""
        with self.changed:
            self._held_lists.discard(path)
            self.changed.notify_all()

    def _end_of_list(self, path: str) -> None:
        with self.changed:
            hang_ups = self._hang_ups
            if path in self._held_lists:
                self.waiting.append(path)
            self.changed.wait_for(lambda: path not in self._held_lists or self._hang_ups > hang_ups)

    def uninstall(self, path: str) -> None:
        with self.changed:
            self.installed.discard(path)
            for thing in list(self._objects.pop(path, {}).values()):
                self._record(path, "DELETED", thing)
        self.hang_up()

    def asked(self, path: str) -> list[dict[str, str]]:
        return [each.query for each in self.requests if each.path == path]

    def kinds(self, group: str) -> Object | None:
        """The kinds of an API group, if it has any."""
        inside = (each.rpartition("/") for each in sorted(self.installed))
        names = [{"name": plural} for prefix, _, plural in inside if prefix == group]
        return {"resources": names} if names else None

    def _record(self, path: str, verb: str, thing: Object) -> Object:
        """Record an event with a copy of *thing*: an event that waits keeps its version."""
        self._version += 1
        meta = {**thing["metadata"], "resourceVersion": str(self._version)}
        self._events.append(Event(self._version, path, verb, {**thing, "metadata": meta}))
        self.changed.notify_all()
        return self._events[-1].thing

    # ── for the handler ──

    def page(self, path: str, query: dict[str, str]) -> Object:
        if "continue" in query:
            self._end_of_list(path)
        with self.changed:
            things, limit = list(self._objects[path].values()), int(query["limit"])
            begin = int(query.get("continue", "0"))
            meta = {"resourceVersion": str(self._version)} if path not in self.cut_lists else {}
            if begin + limit < len(things):
                meta["continue"] = str(begin + limit)
            return {"metadata": meta, "items": things[begin : begin + limit]}

    def lines(self, path: str, query: dict[str, str]) -> Iterator[Object | None]:
        """Give lines as they happen; None when the line is cut."""
        with self.changed:
            hang_ups, begin = self._hang_ups, len(self._events)
            mutes = self._mutes[path]
            listed = list(self._objects[path].values())
            version, resumed = str(self._version), 0
        if "sendInitialEvents" in query:
            yield from ({"type": "ADDED", "object": thing} for thing in listed)
            if path in self.cut_lists:
                return
            self._end_of_list(path)
            mark = {"k8s.io/initial-events-end": "true"}
            meta = {"resourceVersion": version, "annotations": mark}
            yield {"type": "BOOKMARK", "object": {"metadata": meta}}
        else:
            resumed = int(query["resourceVersion"])
            if resumed < self.compacted:
                yield {"type": "ERROR", "object": _status(410)}
                return
            begin = next(
                (at for at, each in enumerate(self._events) if each.version > resumed), begin
            )
        while True:
            with self.changed:
                while len(self._events) == begin and self._hang_ups == hang_ups:
                    self.changed.wait()
                if self._hang_ups > hang_ups:
                    return
                news, begin = self._events[begin:], len(self._events)
            for event in news:
                is_told = event.path == path and event.version > resumed
                if is_told and self._mutes[path] == mutes:
                    yield (
                        event.thing
                        if event.type == "SAID"
                        else {"type": event.type, "object": event.thing}
                    )


def _key(thing: Object) -> str:
    meta = thing["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _json(thing: Object | None) -> bytes:
    depth = 9_990
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    return json.dumps(thing).encode().replace(json.dumps(DEEP_NESTING).encode(), nested)


def _status(code: int) -> Object:
    return {"kind": "Status", "metadata": {}, "status": "Failure", "code": code, "message": "no"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, api: WatchedApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        api, url = self.server.api, urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        headers = {name.lower(): value for name, value in self.headers.items()}
        api.requests.append(ReceivedRequest(url.path, query, headers))
        status = self._refusal(api, url.path, query, headers)
        if not status and (kinds := api.kinds(url.path)):
            self._answer(200, kinds)
        elif status:
            self._answer(status, _status(status))
        elif "watch" in query:
            self._stream(api.lines(url.path, query))
        else:
            self._answer(200, api.page(url.path, query))

    def _refusal(
        self, api: WatchedApi, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> int:
        if api.token and headers.get("authorization") != f"Bearer {api.token}":
            return 401
        if api.refuses_all:
            return api.refuses_all
        if api.refusals[path]:
            return api.refusals[path].pop(0)
        if path in api.unwatched and "resourceVersion" in query:
            return 403
        if path not in api.installed and not api.kinds(path):
            return 404
        if "sendInitialEvents" in query and not api.streams_lists:
            return 422
        expired = "resourceVersion" in query and int(query["resourceVersion"]) < api.compacted
        return 410 if expired and not api.expires_in_stream else 0

    def _answer(self, status: int, body: Object) -> None:
        data = _json(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, lines: Iterator[Object | None]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for line in lines:
                data = _json(line) + b"\n"
                # Cut in the middle, as a network does.
                for piece in (data[:7], data[7:]):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the parent's name)
        """Keep quiet."""
