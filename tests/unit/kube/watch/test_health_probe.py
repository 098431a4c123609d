from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from extender.cache.freshness import Freshness
from extender.clock import SystemClock
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.watch import PATH, HealthProbe
from tests import objects
from tests.unit.kube.watch.test_reflector import FAST, LONG_S, api, put_pods, watching
from tests.unit.kube.watched_api import GROUPS, PODS, WatchedApi

__all__ = ["api"]  # a fixture


@contextmanager
def probing(
    access: ApiClient, freshness: Freshness, timeout_s: float = 0.05
) -> Iterator[threading.Event]:
    """Run a fast health probe; yield the event that is set when the server returns."""
    returned = threading.Event()
    probe = HealthProbe(
        access,
        freshness,
        SystemClock(),
        returned.set,
        interval_s=0.01,
        retry_s=0.01,
        timeout_s=timeout_s,
    )
    probe.start()
    try:
        yield returned
    finally:
        probe.stop()


def until(holds: Callable[[], object]) -> None:
    deadline, pause = time.monotonic() + LONG_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        pause.wait(0.005)


def long_ago() -> float:
    return SystemClock.monotonic() - 100


def receive_last(freshness: Freshness, at: float) -> None:
    """Let every watch have received its last event at that time."""
    for name in freshness.silence(0.0).keys() - {"API server"}:
        freshness.received(name, at)


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_any_response_counts_as_a_sign_of_life(api: WatchedApi, status: int) -> None:
    api.refusals[PATH] = [status] * 10_000
    freshness = Freshness(silent_s=LONG_S)
    with probing(api.access(), freshness) as returned:
        until(lambda: len(api.asked(PATH)) > 3)

    assert freshness.problems(SystemClock().monotonic()) == []
    assert not returned.is_set()


def test_a_server_that_accepts_connections_without_answering_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    freshness = Freshness(silent_s=0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:
        access = ApiClient(ApiServer(host="127.0.0.1", port=mute.getsockname()[1]))
        with probing(access, freshness):
            until(lambda: "timed out" in " ".join(freshness.problems(SystemClock.monotonic())))
            until(lambda: "API server does not answer" in caplog.text)

    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 1


def test_a_trickling_response_does_not_end_the_health_probe() -> None:
    asked: list[int] = []

    def serve(line: socket.socket) -> None:
        with line, suppress(OSError):
            while line.recv(65536):
                asked.append(len(asked))
                length = 100_000 if len(asked) == 3 else 0
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length)
                for _ in range(length):
                    line.sendall(b"o")
                    time.sleep(0.01)

    def listen(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                threading.Thread(target=serve, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, args=(listener,), daemon=True).start()
        access = ApiClient(ApiServer(host="127.0.0.1", port=listener.getsockname()[1]))
        # Longer than this process may pause between two pieces, which would end it, too.
        with probing(access, Freshness(silent_s=LONG_S), timeout_s=0.5):
            until(lambda: len(asked) > 5)
        listener.shutdown(socket.SHUT_RDWR)


def test_the_return_of_the_server_is_logged_once(
    api: WatchedApi, caplog: pytest.LogCaptureFixture
) -> None:
    freshness = Freshness(silent_s=LONG_S)
    with probing(api.access(), freshness) as returned:
        until(lambda: len(api.asked(PATH)) > 1)
        freshness.expect_probe(long_ago())
        assert returned.wait(LONG_S)
        asked = len(api.asked(PATH))
        until(lambda: len(api.asked(PATH)) > asked + 3)

    assert caplog.text.count("API server answers again") == 1


def test_after_a_silence_each_watch_is_resumed_where_it_was(api: WatchedApi) -> None:
    with watching(api, probe_s=0.01, limits=replace(FAST, absent_s=1000.0)) as watched:
        watched.ready()
        before = {path: len(api.asked(path)) for path in (PODS, GROUPS)}
        receive_last(watched.cluster.freshness, long_ago())
        watched.cluster.freshness.expect_probe(long_ago())
        # A resource that is not installed is requested at once, too, without its long pause.
        watched.until(lambda: all(len(api.asked(path)) > count for path, count in before.items()))
        watched.ready()
        api.put(PODS, objects.stored_pod("p"))
        watched.until(lambda: watched.has_pod("p"))

    assert len([query for query in api.asked(PODS) if "sendInitialEvents" in query]) == 1


@pytest.mark.parametrize("in_stream", [True, False])
@pytest.mark.parametrize("streams", [True, False])
def test_after_a_silence_a_cache_that_must_list_again_is_stale_until_the_list_completes(
    api: WatchedApi, streams: bool, in_stream: bool
) -> None:
    api.streams_lists, api.expires_in_stream = streams, in_stream
    put_pods(api, 300)
    with watching(api, probe_s=0.01, limits=replace(FAST, absent_s=1000.0)) as watched:
        watched.ready()
        api.put(PODS, objects.stored_pod("last"))
        watched.until(lambda: watched.has_pod("last"))  # it is watched by now
        freshness = watched.cluster.freshness
        receive_last(freshness, long_ago())
        with api.changed:  # no watch may resume before all of this has happened
            api.hang_up()
            api.delete(PODS, objects.stored_pod("p0"))
            api.compact()
            api.hold_lists(PODS)
        freshness.expect_probe(long_ago())

        watched.until(lambda: PODS in api.waiting)
        watched.until(
            lambda: all(each.startswith("pods: ") for each in watched.cluster.why_not_ready())
        )
        asked = len(api.asked(PATH))
        watched.until(lambda: len(api.asked(PATH)) > asked + 5)
        (complaint,) = watched.cluster.why_not_ready()  # p0 is still in the cache

        assert complaint.startswith("pods: nothing received since the API server fell silent")
        assert watched.has_pod("p0")
        api.end_lists(PODS)
        watched.ready()
        assert not watched.has_pod("p0")


def test_a_watch_with_recent_events_is_not_restarted(api: WatchedApi) -> None:
    with watching(api, probe_s=0.01, limits=replace(FAST, absent_s=1000.0)) as watched:
        watched.ready()
        before, freshness = len(api.asked(PODS)), watched.cluster.freshness
        receive_last(freshness, SystemClock.monotonic() + LONG_S)
        freshness.expect_probe(long_ago())
        asked = len(api.asked(PATH))
        watched.until(lambda: len(api.asked(PATH)) > asked + 5)

        assert watched.cluster.why_not_ready() == []
        assert len(api.asked(PODS)) == before
