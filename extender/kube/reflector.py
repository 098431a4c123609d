"""A reflector keeps the cache equal to one resource of the API server, in a thread of its own.

It is a small loop with sockets around its `ListWatch`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import urllib3

from extender.cache.changes import Delete, Item, Upsert
from extender.cache.cluster import Cluster
from extender.durations import Backoff, spread
from extender.errors import ApiError, NoResponse, NotFound
from extender.kube.client import ApiClient, set_read_timeout
from extender.kube.decode.resources import Resource
from extender.kube.list_watch import ListWatch, Mode, ReceivedItem, Request, Signal, Step, lines
from extender.logs import RateLimitedLog, event
from extender.ports import Clock

log = logging.getLogger(__name__)
#: Further doublings change nothing, and a float would overflow.
_MOST_DOUBLINGS = 10
#: The timeout that we request for watches, so that load moves to new API servers.
WATCH_S = 540
#: A watch that ends sooner than this is followed by a delay.
_SHORT_WATCH_S = 1.0
#: Refusals in a row that count as a missing permission: an API server that starts may refuse first.
_MAX_FORBIDDEN = 3
_CHUNK = 1 << 16
_PAUSE = Backoff(0.1, 15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """The timeouts of responses, and the delays before the next request."""

    #: A watch that receives nothing for this long, not even a bookmark, counts as dead.
    silence_s: float = 75.0
    #: The response to a watch begins at once; without that, the request or the response was lost.
    opening_s: float = 20.0
    #: The timeout of a list, at first. Until all lists are complete nothing is decided. A retry
    #: helps at once if a request or a response was lost, but not if the server is slow: so each
    #: timeout in a row doubles the next.
    list_s: float = 2.5
    #: The same for a streamed list that has begun: some servers end it seconds late.
    stream_s: float = 6.0
    #: The interval at which a resource that is not installed is requested again.
    absent_s: float = 10.0
    #: The delay after a failure, or after a watch that ended at once.
    pause: Backoff = _PAUSE


LIMITS = WatchLimits()


class Reflector:
    """Lists and watches one resource and applies its changes to *cluster*, until stopped."""

    def __init__(
        self,
        resource: Resource,
        client: ApiClient,
        cluster: Cluster,
        clock: Clock,
        streaming: bool,
        limits: WatchLimits,
    ) -> None:
        self._resource = resource
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._limits = limits
        self._list_watch = ListWatch(resource.decoder, streaming=streaming)
        self._random = random.random
        self._limited_log = RateLimitedLog(log)
        #: Failures in a row; a watch that ended at once counts as one.
        self._failures = 0
        #: Refusals in a row; a list in between does not reset them.
        self._forbidden = 0
        #: Timeouts in a row; a complete list resets them.
        self._timeouts = 0
        #: Versions in a row that expired before a watch from them received anything.
        self._expirations = 0
        self._stopping = threading.Event()
        #: Ends the current delay.
        self._wake = threading.Event()
        #: We closed the connection, so that the watch restarts.
        self._is_reopening = False
        self._response: urllib3.BaseHTTPResponse | None = None
        self._was_listed = False
        #: While a resumed watch has not received anything: as of when the state was current before.
        self._proven_at: float | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"reflector-{resource.name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread; until the first list is complete, the cache is not ready."""
        self._cluster.freshness.expect(self._resource.name, self._clock.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Close the connection and end the thread."""
        self._stopping.set()
        self._wake.set()
        self._close()

    def reopen(self) -> None:
        """Watch again at once, on another connection, unless this one is known to be alive."""
        if not self._cluster.freshness.is_suspect(self._resource.name):
            return
        self._failures = 0
        self._is_reopening = True
        self._wake.set()
        self._close()

    def _close(self) -> None:
        response = self._response
        if response is not None:
            with suppress(OSError, ValueError, RuntimeError):  # it was closed already
                response.shutdown()  # wakes the thread that reads from it

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_once()
            except Exception as error:
                # A bug of ours; a fresh list leads back to a known state.
                log.exception("reflector failed")
                self._list_watch.start_over()
                self._report_failure(f"{type(error).__name__}: {error}")

    def _run_once(self) -> None:
        try:
            self._list_or_watch()
        except ApiError as error:
            if self._is_reopening:
                self._is_reopening = False
                event(log, logging.INFO, "watch restarted", resource=self._resource.name)
            elif not self._stopping.is_set():
                self._recover(error)

    def _list_or_watch(self) -> None:
        request = self._list_watch.next_request(int(spread(WATCH_S, self._random())))
        if request.mode is not Mode.WATCH:
            self._note_age()
        if request.mode is Mode.PAGE:
            self._replace(self._pages(request))
            return
        with self._open(request) as response:
            received = self._listen(response)
            if request.mode is Mode.STREAM:
                self._replace(self._until_listed(received))
                set_read_timeout(response, self._limits.silence_s)
            self._watch(received)

    def _open(self, request: Request) -> urllib3.BaseHTTPResponse:
        path, mode = self._resource.path, request.mode
        if mode is not Mode.WATCH and "continue" not in request.query:
            self._client.metrics.list_started(self._resource.name)
        response = self._client.open("GET", path, query=request.query, read_s=self._opening_s(mode))
        self._response = response
        if self._stopping.is_set():  # `stop` was called before this response existed
            response.close()
            raise NoResponse("stopped")
        if response.status == 200:
            self._opened(response, mode)
            return response
        with response:
            raise self._client.refused("GET", path, response.status, _read_body(response))

    def _opened(self, response: urllib3.BaseHTTPResponse, mode: Mode) -> None:
        if mode is Mode.WATCH and self._proven_at is None:
            self._proven_at = self._cluster.freshness.current_at(self._resource.name)
        self._note_activity()
        self._is_reopening = False
        if mode is Mode.PAGE:
            return
        if mode is Mode.WATCH:
            self._timeouts = 0
            set_read_timeout(response, self._limits.silence_s)
        else:
            set_read_timeout(
                response, self._list_timeout_s(self._limits.stream_s, self._limits.silence_s)
            )
        self._forbidden = 0
        self._cluster.freshness.followed(self._resource.name)

    def _opening_s(self, mode: Mode) -> float:
        """Return the timeout of the response head."""
        limits = self._limits
        opening_s = min(limits.opening_s, limits.silence_s)
        if mode is Mode.WATCH:
            return opening_s
        longest_s = limits.silence_s if mode is Mode.PAGE else opening_s
        return self._list_timeout_s(limits.list_s, longest_s)

    def _list_timeout_s(self, first_s: float, longest_s: float) -> float:
        return min(first_s * 2.0 ** min(self._timeouts, _MOST_DOUBLINGS), longest_s)

    def _note_age(self) -> None:
        """Record that our state is as old as before until the list that begins is complete."""
        freshness, name = self._cluster.freshness, self._resource.name
        as_of = freshness.current_at(name) if self._proven_at is None else self._proven_at
        freshness.relists(name, as_of)

    def _note_activity(self) -> None:
        self._cluster.freshness.received(self._resource.name, self._clock.monotonic())

    def _replace(self, objects: Iterator[Item | Delete]) -> None:
        decoder, name = self._resource.decoder, self._resource.name
        began = time.monotonic()
        self._cluster.replace(decoder.kind, objects, decoder.dialect)
        self._cluster.freshness.listed(name, self._clock.monotonic())
        self._failures = self._timeouts = 0
        self._was_listed = True
        self._proven_at = None
        took_s = round(time.monotonic() - began, 3)
        event(log, logging.INFO, "listed", resource=name, took_s=took_s)

    def _pages(self, request: Request) -> Iterator[Item]:
        yield from self._list_watch.page(self._page(request))
        while not self._list_watch.is_listed:
            yield from self._list_watch.page(self._later_page(self._list_watch.next_page()))

    def _page(self, request: Request) -> bytes:
        with self._open(request) as response:
            return _read_body(response)

    def _later_page(self, request: Request) -> bytes:
        """Request a page until it arrives: a server under load refuses one of hundreds of pages.

        To list from the first page each time might never end. The continue token expires after some
        minutes.
        """
        while True:
            try:
                return self._page(request)
            except ApiError as error:
                is_temporary = error.status in (0, 429) or error.status >= 500
                if not is_temporary or self._is_reopening or self._stopping.is_set():
                    raise
                self._timeouts += _is_timeout(error)
                self._report_failure(str(error))

    def _listen(self, response: urllib3.BaseHTTPResponse) -> Iterator[ReceivedItem]:
        try:
            for line in lines(response.stream(_CHUNK)):
                self._note_activity()
                yield self._list_watch.line(line)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, urllib3.exceptions.ReadTimeoutError):
                self._list_watch.timed_out()
            raise NoResponse(f"the watch of {self._resource.name} broke off: {error}") from error

    def _until_listed(self, received: Iterator[ReceivedItem]) -> Iterator[Item | Delete]:
        for each in received:
            if isinstance(each, Upsert):
                yield each.item
            elif isinstance(each, Delete):
                yield each
            elif each is Signal.LISTED:
                return
            elif each in (Signal.EXPIRED, Signal.BROKEN):
                break
        raise NoResponse(f"the list of {self._resource.name} broke off")

    def _watch(self, received: Iterator[ReceivedItem]) -> None:
        began = time.monotonic()
        for each in received:
            if isinstance(each, Upsert | Delete):
                self._cluster.apply(each)
            elif each in (Signal.EXPIRED, Signal.BROKEN):
                event(log, logging.INFO, each.value, resource=self._resource.name)
                self._watch_ended("expired" if each is Signal.EXPIRED else "broken")
                if each is Signal.EXPIRED:
                    self._wait_before_list()
                break
            elif each is Signal.OVERTAKEN:
                self._limited_log.event(logging.WARNING, each.value, resource=self._resource.name)
            self._failures = self._expirations = 0
            self._proven_at = None
        else:
            self._watch_ended("ended")
        if self._list_watch.is_listed and time.monotonic() - began < _SHORT_WATCH_S:
            self._wait_before_retry()

    def _watch_ended(self, cause: str) -> None:
        self._client.metrics.watch_ended(self._resource.name, cause)

    def _recover(self, error: ApiError) -> None:
        if self._list_watch.is_listed:
            self._watch_ended("expired" if error.status == 410 else "failed")
        self._timeouts += _is_timeout(error)
        step = self._list_watch.refused(error.status) if error.status else Step.RETRY
        if step in (Step.RELIST, Step.PAGES):
            event(log, logging.INFO, step.value, resource=self._resource.name)
            if step is Step.RELIST:
                self._wait_before_list()
            return
        if error.status == 403 and self._is_dispensable():
            self._list_watch.start_over()
            self._note_absence(error)
            return
        if self._resource.is_optional and step is Step.ABSENT:
            self._note_absence(error)
            return
        if step is Step.RENEW:
            self._client.renew()
        self._forbidden = self._forbidden + 1 if error.status in (401, 403) else 0
        self._report_failure(str(error))

    def _is_dispensable(self) -> bool:
        """Return whether the plan can do without a resource that we may not list.

        One reason is that the resource is not installed: some authorizers answer 403 for it.
        """
        resource = self._resource
        if resource.is_dispensable or not resource.is_optional or self._was_listed:
            return resource.is_dispensable
        # Every authenticated account may list the resources of an API group.
        group, _, plural = resource.path.rpartition("/")
        try:
            kinds = _kinds(self._client.request("GET", group))
        except NotFound:
            return True
        except ApiError:
            return False
        return plural not in kinds

    def _report_failure(self, why: str) -> None:
        if self._forbidden >= _MAX_FORBIDDEN:
            self._cluster.freshness.forbidden(self._resource.name, why)
        else:
            self._cluster.freshness.failed(self._resource.name, why)
        event(log, logging.WARNING, "watch failed", resource=self._resource.name, error=why)
        self._wait_before_retry()

    def _note_absence(self, error: ApiError) -> None:
        decoder, name = self._resource.decoder, self._resource.name
        self._cluster.replace(decoder.kind, (), decoder.dialect)
        self._cluster.freshness.listed(name, self._clock.monotonic())
        # A resource that is absent is not forbidden; this clears what refusals recorded before.
        self._forbidden = 0
        self._cluster.freshness.followed(name)
        event(log, logging.DEBUG, "resource absent", resource=name, error=str(error))
        self._delay(spread(self._limits.absent_s, self._random()))

    def _wait_before_retry(self) -> None:
        self._failures += 1
        self._delay(self._limits.pause.delay_s(self._failures, self._random()))

    def _wait_before_list(self) -> None:
        """Delay a list, unless it is the first after a version expired.

        Where a list takes longer than a version lasts, immediate lists are the cause of the load.
        """
        self._expirations += 1
        if self._expirations > 1:
            self._delay(self._limits.pause.delay_s(self._expirations - 1, self._random()))

    def _delay(self, seconds: float) -> None:
        self._wake.wait(seconds)
        if not self._stopping.is_set():
            self._wake.clear()


class _Kind(msgspec.Struct):
    name: str


class _Kinds(msgspec.Struct):
    resources: list[_Kind] = []


_decode_kinds = msgspec.json.Decoder(_Kinds).decode


def _kinds(body: bytes) -> set[str]:
    try:
        return {each.name for each in _decode_kinds(body).resources}
    except msgspec.DecodeError as error:
        raise ApiError(f"the response is not a list of kinds: {error}") from error


def _is_timeout(error: ApiError) -> bool:
    """Return whether *error* is a timeout: the server may only be slower than that."""
    why = error.__cause__
    if isinstance(why, urllib3.exceptions.NewConnectionError):  # a subclass, but a refusal
        return False
    return isinstance(why, urllib3.exceptions.TimeoutError)


def _read_body(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NoResponse(f"the response broke off: {error}") from error
