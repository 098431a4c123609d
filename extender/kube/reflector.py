"""Follows everything the plan depends on, one thread per resource.

Each is a thin loop with sockets around its `Progress`.
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
from extender.kube.client import ApiClient
from extender.kube.decode.resources import Resource, resources
from extender.kube.list_watch import ListWatch, Mode, ReceivedItem, Request, Signal, Step, lines
from extender.kube.watch import EVERY_S, HealthProbe
from extender.logs import RateLimitedLog, event
from extender.ports import Clock

log = logging.getLogger(__name__)
#: Doubling further changes nothing, and a float has an end.
_MOST_DOUBLINGS = 10
#: Watches end by themselves by then, so that load finds its way to new servers.
WATCH_S = 540
#: A watch that ends sooner than this is followed by a pause.
_HASTE_S = 1.0
#: Not let in so often in a row, it is no API server that just began, or does not begin well.
_FORBIDDEN = 3
_CHUNK = 1 << 16
_PAUSE = Backoff(0.1, 15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """How long to wait for an answer, and before the next request."""

    #: A watch that brings nothing, not even a bookmark, for this long is taken for dead.
    silence_s: float = 75.0
    #: A watch answers at once that it begins; one that does not was sent into nowhere.
    opening_s: float = 20.0
    #: So long a list may be silent at first. Until all are complete nothing is decided, and asking
    #: again makes up at once for a request or an answer that was lost, but not for a slow server:
    #: every silence in a row may last twice as long as the one before.
    list_s: float = 2.5
    #: The same of a streamed list that has begun: some servers end it seconds late.
    stream_s: float = 6.0
    #: How often we look whether a resource that was not installed is there now.
    absent_s: float = 10.0
    #: After a failure, or a watch that ended at once.
    pause: Backoff = _PAUSE


LIMITS = WatchLimits()


class Watch:
    """Keeps *cluster* equal to what the API server shows.

    Ours are pods of *schedulers* and, where there are any, nodes with one of *node_labels*. In
    *exempt* namespaces nothing is a gang.
    """

    def __init__(
        self,
        access: ApiClient,
        cluster: Cluster,
        clock: Clock,
        schedulers: frozenset[str],
        node_labels: frozenset[tuple[str, str]] = frozenset(),
        exempt: frozenset[str] = frozenset(),
        *,
        streaming: bool = True,
        limits: WatchLimits = LIMITS,
        pulse_s: float = EVERY_S,
    ) -> None:
        self._cluster = cluster
        self._pulse = HealthProbe(access, cluster.freshness, clock, self.reopen, every_s=pulse_s)
        self._followers = [
            Reflector(resource, access, cluster, clock, streaming, limits)
            for resource in resources(schedulers, node_labels, exempt)
        ]

    def start(self) -> None:
        """Begin; `cluster.readiness()` tells when everything has been listed."""
        self._cluster.require_namespaces()
        for follower in self._followers:
            follower.start()
        self._pulse.start()

    def reopen(self) -> None:
        """Hear that the API server was mute: begin every watch anew that has not spoken since."""
        for follower in self._followers:
            follower.reopen()

    def stop(self) -> None:
        """Hang up and wait for all threads to end."""
        self._pulse.stop()
        for follower in self._followers:
            follower.stop()
        for follower in self._followers:
            follower.join(timeout_s=5)


class Reflector:
    """Tells *cluster* everything that happens to one resource, until stopped."""

    def __init__(
        self,
        resource: Resource,
        access: ApiClient,
        cluster: Cluster,
        clock: Clock,
        streaming: bool,
        limits: WatchLimits,
    ) -> None:
        self._resource = resource
        self._access = access
        self._cluster = cluster
        self._clock = clock
        self._limits = limits
        self._progress = ListWatch(resource.codec, streaming=streaming)
        self._chance = random.random
        self._seldom = RateLimitedLog(log)
        #: In a row; a watch that ended at once counts as one.
        self._failures = 0
        #: In a row, and a list in between does not count.
        self._forbidden = 0
        #: Requests in a row that were given up because nothing came; a list makes up for them.
        self._hushes = 0
        #: Versions that expired before a watch from them brought anything.
        self._expiries = 0
        self._stopping = threading.Event()
        #: Ends whatever pause we are in.
        self._hurry = threading.Event()
        #: We hung up ourselves, so that the watch is begun anew.
        self._is_reopening = False
        self._response: urllib3.BaseHTTPResponse | None = None
        self._was_listed = False
        #: While a watch that goes on has not said yet that it can: as of when we knew all before.
        self._proven_at: float | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"follow-{resource.name}", daemon=True
        )

    def start(self) -> None:
        """Begin; until the first list is complete, the mirror is not ready."""
        self._cluster.freshness.expect(self._resource.name, self._clock.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Hang up and end."""
        self._stopping.set()
        self._hurry.set()
        self._hang_up()

    def reopen(self) -> None:
        """Ask again at once, over another connection, unless the one we have is known to live."""
        if not self._cluster.freshness.is_suspect(self._resource.name):
            return
        self._failures = 0
        self._is_reopening = True
        self._hurry.set()
        self._hang_up()

    def _hang_up(self) -> None:
        response = self._response
        if response is not None:
            with suppress(OSError, ValueError, RuntimeError):  # it was closed already
                response.shutdown()  # wakes the thread that reads from it

    def join(self, timeout_s: float) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_or_recover()
            except Exception as error:
                # Our own mistake; a fresh list is the way back to a state we can vouch for.
                log.exception("following failed")
                self._progress.start_over()
                self._complain(f"{type(error).__name__}: {error}")

    def _follow_or_recover(self) -> None:
        try:
            self._follow()
        except ApiError as error:
            if self._is_reopening:
                self._is_reopening = False
                event(log, logging.INFO, "watch begun anew", resource=self._resource.name)
            elif not self._stopping.is_set():
                self._recover(error)

    def _follow(self) -> None:
        request = self._next_request()
        if request.mode is not Mode.WATCH:
            self._note_age()
        if request.mode is Mode.PAGE:
            self._take_list(self._pages(request))
            return
        with self._open(request) as response:
            heard = self._listen(response)
            if request.mode is Mode.STREAM:
                self._take_list(self._until_listed(heard))
                _wait_longer(response, self._limits.silence_s)
            self._watch(heard)

    def _next_request(self) -> Request:
        return self._progress.next_request(int(spread(WATCH_S, self._chance())))

    def _open(self, request: Request) -> urllib3.BaseHTTPResponse:
        path, mode = self._resource.path, request.mode
        if mode is not Mode.WATCH and "continue" not in request.query:
            self._access.metrics.listed(self._resource.name)
        response = self._access.open("GET", path, query=request.query, read_s=self._opening_s(mode))
        self._response = response
        if self._stopping.is_set():  # `stop` came before it could know of this response
            response.close()
            raise NoResponse("stopped")
        if response.status == 200:
            self._opened(response, mode)
            return response
        with response:
            raise self._access.refused("GET", path, response.status, _body(response))

    def _opened(self, response: urllib3.BaseHTTPResponse, mode: Mode) -> None:
        if mode is Mode.WATCH and self._proven_at is None:
            self._proven_at = self._cluster.freshness.current_at(self._resource.name)
        self._alive()
        self._is_reopening = False
        if mode is Mode.PAGE:
            return
        if mode is Mode.WATCH:
            self._hushes = 0
            _wait_longer(response, self._limits.silence_s)
        else:
            _wait_longer(response, self._patience_s(self._limits.stream_s, self._limits.silence_s))
        self._forbidden = 0
        self._cluster.freshness.followed(self._resource.name)

    def _opening_s(self, mode: Mode) -> float:
        """Say how long an answer may let us wait."""
        limits = self._limits
        opening_s = min(limits.opening_s, limits.silence_s)
        if mode is Mode.WATCH:
            return opening_s
        longest_s = limits.silence_s if mode is Mode.PAGE else opening_s
        return self._patience_s(limits.list_s, longest_s)

    def _patience_s(self, first_s: float, longest_s: float) -> float:
        return min(first_s * 2.0 ** min(self._hushes, _MOST_DOUBLINGS), longest_s)

    def _note_age(self) -> None:
        """Note that what we know is as old as before until a list that begins has ended."""
        freshness, name = self._cluster.freshness, self._resource.name
        as_of = freshness.current_at(name) if self._proven_at is None else self._proven_at
        freshness.relists(name, as_of)

    def _alive(self) -> None:
        self._cluster.freshness.received(self._resource.name, self._clock.monotonic())

    def _take_list(self, objects: Iterator[Item | Delete]) -> None:
        codec, name = self._resource.codec, self._resource.name
        began = time.monotonic()
        self._cluster.replace(codec.kind, objects, codec.dialect)
        self._cluster.freshness.listed(name, self._clock.monotonic())
        self._failures = self._hushes = 0
        self._was_listed = True
        self._proven_at = None
        took_s = round(time.monotonic() - began, 3)
        event(log, logging.INFO, "listed", resource=name, took_s=took_s)

    def _pages(self, request: Request) -> Iterator[Item]:
        yield from self._progress.page(self._page(request))
        while not self._progress.is_listed:
            yield from self._progress.page(self._later_page(self._progress.next_page()))

    def _page(self, request: Request) -> bytes:
        with self._open(request) as response:
            return _body(response)

    def _later_page(self, request: Request) -> bytes:
        """Ask until it is there: of hundreds of pages one is refused by a server under load.

        To begin anew each time might never end. Where we were expires after some minutes.
        """
        while True:
            try:
                return self._page(request)
            except ApiError as error:
                is_passing = error.status in (0, 429) or error.status >= 500
                if not is_passing or self._is_reopening or self._stopping.is_set():
                    raise
                self._hushes += _is_silence(error)
                self._complain(str(error))

    def _listen(self, response: urllib3.BaseHTTPResponse) -> Iterator[ReceivedItem]:
        try:
            for line in lines(response.stream(_CHUNK)):
                self._alive()
                yield self._progress.line(line)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, urllib3.exceptions.ReadTimeoutError):
                self._progress.timed_out()
            raise NoResponse(f"the watch of {self._resource.name} broke off: {error}") from error

    def _until_listed(self, heard: Iterator[ReceivedItem]) -> Iterator[Item | Delete]:
        for each in heard:
            if isinstance(each, Upsert):
                yield each.item
            elif isinstance(each, Delete):
                yield each
            elif each is Signal.LISTED:
                return
            elif each in (Signal.EXPIRED, Signal.BROKEN):
                break
        raise NoResponse(f"the list of {self._resource.name} broke off")

    def _watch(self, heard: Iterator[ReceivedItem]) -> None:
        began = time.monotonic()
        for each in heard:
            if isinstance(each, Upsert | Delete):
                self._cluster.apply(each)
            elif each in (Signal.EXPIRED, Signal.BROKEN):
                event(log, logging.INFO, each.value, resource=self._resource.name)
                self._watch_ended("expired" if each is Signal.EXPIRED else "broken")
                if each is Signal.EXPIRED:
                    self._wait_before_list()
                break
            elif each is Signal.OVERTAKEN:
                self._seldom.event(logging.WARNING, each.value, resource=self._resource.name)
            self._failures = self._expiries = 0
            self._proven_at = None
        else:
            self._watch_ended("ended")
        if self._progress.is_listed and time.monotonic() - began < _HASTE_S:
            self._wait_before_retry()

    def _watch_ended(self, cause: str) -> None:
        self._access.metrics.watch_ended(self._resource.name, cause)

    def _recover(self, error: ApiError) -> None:
        if self._progress.is_listed:
            self._watch_ended("expired" if error.status == 410 else "failed")
        self._hushes += _is_silence(error)
        step = self._progress.refused(error.status) if error.status else Step.RETRY
        if step in (Step.RELIST, Step.PAGES):
            event(log, logging.INFO, step.value, resource=self._resource.name)
            if step is Step.RELIST:
                self._wait_before_list()
            return
        if error.status == 403 and self._can_do_without():
            self._progress.start_over()
            self._note_absence(error)
            return
        if self._resource.is_optional and step is Step.ABSENT:
            self._note_absence(error)
            return
        if step is Step.RENEW:
            self._access.renew()
        self._forbidden = self._forbidden + 1 if error.status in (401, 403) else 0
        self._complain(str(error))

    def _can_do_without(self) -> bool:
        """Ask whether what we may not see can be left out: because it is not there, for one."""
        resource = self._resource
        if resource.is_dispensable or not resource.is_optional or self._was_listed:
            return resource.is_dispensable
        # Whoever is let in at all may ask which kinds there are.
        group, _, plural = resource.path.rpartition("/")
        try:
            said = _kinds(self._access.request("GET", group))
        except NotFound:
            return True
        except ApiError:
            return False
        return plural not in said

    def _complain(self, why: str) -> None:
        if self._forbidden >= _FORBIDDEN:
            self._cluster.freshness.forbidden(self._resource.name, why)
        else:
            self._cluster.freshness.failed(self._resource.name, why)
        event(log, logging.WARNING, "not heard", resource=self._resource.name, error=why)
        self._wait_before_retry()

    def _note_absence(self, error: ApiError) -> None:
        codec, name = self._resource.codec, self._resource.name
        self._cluster.replace(codec.kind, (), codec.dialect)
        self._cluster.freshness.listed(name, self._clock.monotonic())
        # What is not there cannot be forbidden, though it was said before anybody knew that.
        self._forbidden = 0
        self._cluster.freshness.followed(name)
        event(log, logging.DEBUG, "done without", resource=name, error=str(error))
        self._pause(spread(self._limits.absent_s, self._chance()))

    def _wait_before_retry(self) -> None:
        self._failures += 1
        self._pause(self._limits.pause.delay_s(self._failures, self._chance()))

    def _wait_before_list(self) -> None:
        """List anew at once, but not over and over.

        Where lists take longer than versions last, those who list again at once are the reason.
        """
        self._expiries += 1
        if self._expiries > 1:
            self._pause(self._limits.pause.delay_s(self._expiries - 1, self._chance()))

    def _pause(self, seconds: float) -> None:
        self._hurry.wait(seconds)
        if not self._stopping.is_set():
            self._hurry.clear()


class _Kind(msgspec.Struct):
    name: str


class _Kinds(msgspec.Struct):
    resources: list[_Kind] = []


_decode_kinds = msgspec.json.Decoder(_Kinds).decode


def _kinds(body: bytes) -> set[str]:
    try:
        return {each.name for each in _decode_kinds(body).resources}
    except msgspec.DecodeError as error:
        raise ApiError(f"the answer is no list of kinds: {error}") from error


def _wait_longer(response: urllib3.BaseHTTPResponse, seconds: float) -> None:
    """Let an answer that has begun be silent for so long, which a bookmark interrupts."""
    connection = response.connection
    if isinstance(connection, urllib3.connection.HTTPConnection) and connection.sock is not None:
        connection.sock.settimeout(seconds)


def _is_silence(error: ApiError) -> bool:
    """Ask whether we gave up waiting, which tells nothing of how long the answer would take."""
    why = error.__cause__
    if isinstance(why, urllib3.exceptions.NewConnectionError):  # a timeout by name only
        return False
    return isinstance(why, urllib3.exceptions.TimeoutError)


def _body(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NoResponse(f"the answer broke off: {error}") from error
