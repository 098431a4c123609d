from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any

import pytest
from urllib3.exceptions import ReadTimeoutError

from extender.cache.changes import Change, Delete, Item, Kind, Upsert, kind_of
from extender.cache.cluster import Cluster
from extender.cache.freshness import STALE_S, Freshness
from extender.clock import SystemClock
from extender.durations import Backoff
from extender.errors import NoResponse
from extender.kube import reflector
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.decode.resources import resources
from extender.kube.reflector import LIMITS, WatchLimits
from extender.kube.watch import Watch
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import Clock
from tests import objects
from tests.unit.kube.watched_api import (
    BUILT_IN,
    DEEP_NESTING,
    GROUPS,
    PODS,
    QUEUES,
    QUOTAS,
    WatchedApi,
)

SCHEDULERS = frozenset({"gang-scheduler"})
LONG_S = 20.0
#: As in production, but without pauses before the next request.
FAST = WatchLimits(absent_s=0.02, pause=Backoff(0.01, 0.02))
#: A watch is not given up while a test lasts.
PATIENT = replace(FAST, opening_s=1000.0, silence_s=1000.0)


class RecordingCluster(Cluster):
    """A cache that records the kinds and dialects of which it received an object."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.received: set[tuple[Kind, str]] = set()

    def apply(self, change: Change) -> None:
        super().apply(change)
        if isinstance(change, Upsert):
            self.received.add((kind_of(change.item), change.dialect))

    def replace(
        self, kind: Kind, objects: Iterable[Item | Delete], dialect: str | None = None
    ) -> None:
        def recorded() -> Iterator[Item | Delete]:
            for each in objects:
                yield each
                self.received.add((kind, dialect or ""))

        super().replace(kind, recorded(), dialect)


class Watched:
    """A cache fed from a `WatchedApi`, and a way to wait for its changes."""

    def __init__(self, api: WatchedApi, **rest: Any) -> None:
        self.cluster = RecordingCluster(SystemClock())
        self.cluster.freshness = rest.pop("freshness", self.cluster.freshness)
        access = rest.pop("access", None) or api.access()
        rest.setdefault("limits", FAST)
        self.watches = Watch(access, self.cluster, SystemClock(), SCHEDULERS, **rest)
        self._changed = threading.Condition()
        self.cluster.on_change(self._notify)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until *holds*; changes wake the test, other conditions are polled."""
        deadline = time.monotonic() + LONG_S
        with self._changed:
            while not holds():
                assert time.monotonic() < deadline, "it never came to be"
                self._changed.wait(0.01)

    def ready(self) -> None:
        self.until(lambda: not self.cluster.why_not_ready())

    def has_pod(self, name: str) -> bool:
        return self.cluster.pod(PodUid(f"uid-{name}")) is not None

    def has_pods(self, number: int) -> bool:
        return all(self.has_pod(f"p{each}") for each in range(number))

    def group(self, name: str) -> PodGroup | None:
        return self.cluster.group(GangKey(f"a/{name}"))


@pytest.fixture
def api() -> Iterator[WatchedApi]:
    with WatchedApi() as made:
        yield made


@pytest.fixture(params=[True, False], ids=["as a stream", "in pages"])
def streams(api: WatchedApi, request: pytest.FixtureRequest) -> bool:
    """Return whether the API server streams lists."""
    api.streams_lists = bool(request.param)
    return api.streams_lists


def put_pods(api: WatchedApi, number: int) -> None:
    for each in range(number):
        api.put(PODS, objects.stored_pod(f"p{each}"))


def pages(api: WatchedApi) -> list[str | None]:
    """Return the continue token of each page of pods that was requested."""
    return [query.get("continue") for query in api.asked(PODS) if "limit" in query]


@contextmanager
def watching(api: WatchedApi, **rest: Any) -> Iterator[Watched]:
    watched = Watched(api, **rest)
    watched.watches.start()
    try:
        yield watched
    finally:
        watched.watches.stop()


@pytest.fixture
def watched(api: WatchedApi) -> Iterator[Watched]:
    """A cache that is watching."""
    with watching(api) as made:
        made.ready()
        yield made


@pytest.mark.parametrize("status", [400, 401])
def test_a_list_that_breaks_off_between_pages_deletes_nothing(api: WatchedApi, status: int) -> None:
    api.streams_lists = False
    put_pods(api, 600)
    api.refusals[PODS] = [422, 0, status]  # no stream, the first page, and not the second
    with watching(api) as watched:
        watched.ready()

        assert watched.has_pods(600)


def test_a_page_that_is_refused_temporarily_does_not_discard_earlier_pages(
    api: WatchedApi,
) -> None:
    api.streams_lists = False
    put_pods(api, 600)
    api.refusals[PODS] = [422, 0, 429, 503, 429, 0, 500]
    with watching(api) as watched:
        watched.ready()

    assert pages(api) == [None, *["250"] * 4, *["500"] * 2]


class SlowAccess(ApiClient):
    """A client of an API server that takes *takes_s* for each list, without real waiting."""

    def __init__(self, api: WatchedApi, takes_s: float, *, first_page_s: float = inf) -> None:
        super().__init__(ApiServer(host="127.0.0.1", port=api.port))
        self.takes_s = takes_s
        self._first_page_s = first_page_s
        #: The timeouts of the lists that failed.
        self.given_up: dict[str, list[float]] = defaultdict(list)
        #: The number of requests for each path.
        self.tries: Counter[str] = Counter()

    def open(self, method: str, path: str, body: object = None, **rest: Any) -> Any:
        self.tries[path] += 1
        query = rest.get("query") or {}
        takes_s = self.takes_s if "continue" in query else min(self.takes_s, self._first_page_s)
        is_list = path in BUILT_IN and "resourceVersion" not in query
        if is_list and rest["read_s"] <= takes_s:
            self.given_up[path].append(rest["read_s"])
            late = ReadTimeoutError(None, path, "Read timed out.")  # type: ignore[arg-type]
            raise NoResponse(f"{method} {path}: no answer from the API server") from late
        return super().open(method, path, body, **rest)


def test_a_list_that_takes_two_seconds_is_requested_once(api: WatchedApi, streams: bool) -> None:
    put_pods(api, 600)
    access = SlowAccess(api, takes_s=2.0)
    with watching(api, access=access) as watched:
        watched.ready()

        assert watched.has_pods(600)
    assert not access.given_up
    assert len([query for query in api.asked(PODS) if "resourceVersion" not in query]) == (
        1 if streams else 4  # a stream that is refused, and three pages
    )


def test_a_list_that_takes_fifteen_seconds_completes(api: WatchedApi, streams: bool) -> None:
    put_pods(api, 600)
    access = SlowAccess(api, takes_s=15.0)
    with watching(api, access=access) as watched:
        watched.ready()

        assert watched.has_pods(600)
    # Not once more for every page, of which there may be hundreds.
    assert access.given_up[PODS] == [2.5, 5.0, 10.0]


def test_later_pages_that_take_fifteen_seconds_complete(api: WatchedApi) -> None:
    api.streams_lists = False
    put_pods(api, 1100)
    access = SlowAccess(api, takes_s=15.0, first_page_s=0.0)
    with watching(api, access=access) as watched:
        watched.ready()

        assert watched.has_pods(1100)
    assert access.given_up[PODS] == [2.5, 5.0, 10.0]
    assert pages(api) == [None, "250", "500", "750", "1000"]


def test_the_list_timeout_grows_to_a_bound_and_is_reset_by_a_complete_list(
    api: WatchedApi, streams: bool
) -> None:
    api.expires_in_stream = False
    access = SlowAccess(api, takes_s=LIMITS.silence_s)
    with watching(api, access=access) as watched:
        watched.until(lambda: len(access.given_up[PODS]) > 5)
        assert access.given_up[PODS][:6] == [2.5, 5.0, 10.0, 20.0, 20.0, 20.0]
        access.takes_s = 0.0
        watched.ready()

        access.given_up.clear()
        access.takes_s = 3.0
        with api.changed:  # no watch may resume before all of this has happened
            api.hang_up()
            api.put(PODS, objects.stored_pod("later"))
            api.compact()
        watched.until(lambda: watched.has_pod("later"))
        assert access.given_up[PODS] == [2.5]


@pytest.mark.parametrize("status", [0, 503], ids=["not there", "not ready"])
def test_refusals_of_a_starting_api_server_do_not_raise_the_list_timeout(status: int) -> None:
    """A refusal is a response; it must not raise the timeout of later lists."""
    with WatchedApi() as api:
        access = SlowAccess(api, takes_s=0.0)
        if status:
            api.refuses_all = status
            _refuse_then_time_out(api, access)
    if not status:
        _refuse_then_time_out(api, access)

    assert access.given_up[PODS][0] == 2.5


def _refuse_then_time_out(api: WatchedApi, access: SlowAccess) -> None:
    """Be refused several times, then request a list that times out."""
    with watching(api, access=access) as watched:
        watched.until(lambda: min(access.tries[path] for path in BUILT_IN) > 4)
        access.takes_s = 2.5
        watched.until(lambda: access.given_up[PODS])


class UnresponsiveApi(WatchedApi):
    """An API server that never answers some requests."""

    def __init__(self) -> None:
        super().__init__()
        #: One entry for each request: whether it is answered.
        self.answers: list[bool] = []
        self._over = threading.Event()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        super().__exit__(*error)

    def page(self, path: str, query: dict[str, str]) -> Any:
        self._take(path)
        return super().page(path, query)

    def lines(self, path: str, query: dict[str, str]) -> Any:
        self._take(path)
        return super().lines(path, query)

    def _take(self, path: str) -> None:
        if path == PODS and self.answers and not self.answers.pop(0):
            self._over.wait()


@pytest.mark.parametrize(
    ("streams", "answers"),
    [
        pytest.param(True, [False], id="a stream that does not begin"),
        pytest.param(False, [False], id="the first page"),
        pytest.param(False, [True, False], id="a later page"),
        pytest.param(False, [False, False, True, False, False], id="many"),
    ],
)
def test_a_list_without_a_response_is_requested_again_soon(
    streams: bool, answers: list[bool]
) -> None:
    api = UnresponsiveApi()
    with api:
        api.streams_lists, api.answers = streams, answers
        put_pods(api, 600)
        with watching(api, limits=replace(PATIENT, list_s=0.03)) as watched:
            watched.ready()

            assert watched.has_pods(600)


def test_a_silent_streamed_list_is_restarted_soon_and_a_silent_watch_is_not(
    api: WatchedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    silences: list[tuple[str, float]] = []
    wait_longer = reflector.set_read_timeout

    def record(response: Any, seconds: float) -> None:
        silences.append((threading.current_thread().name, seconds))
        wait_longer(response, seconds)

    monkeypatch.setattr(reflector, "set_read_timeout", record)
    api.put(PODS, objects.stored_pod("p"))
    api.hold_lists(PODS)
    with watching(api, limits=replace(PATIENT, stream_s=0.05)) as watched:
        watched.until(lambda: api.waiting.count(PODS) == 3)
        api.end_lists(PODS)
        watched.ready()

        assert watched.has_pod("p")
        assert [each for name, each in silences if name == "reflector-pods"][:3] == [0.05, 0.1, 0.2]
        watched.until(lambda: ("reflector-pods", 1000.0) in silences)
        assert [query for query in api.asked(PODS) if "resourceVersion" in query] == []


def test_changes_reach_the_cache(api: WatchedApi, streams: bool, watched: Watched) -> None:
    api.put(PODS, objects.stored_pod("p"))
    watched.until(lambda: watched.has_pod("p"))
    api.delete(PODS, objects.stored_pod("p"))
    watched.until(lambda: not watched.has_pod("p"))


def test_a_broken_watch_resumes_where_it_was(api: WatchedApi, watched: Watched) -> None:
    api.put(PODS, objects.stored_pod("before"))
    watched.until(lambda: watched.has_pod("before"))
    api.hang_up()
    api.put(PODS, objects.stored_pod("meanwhile"))
    watched.until(lambda: watched.has_pod("meanwhile"))

    lists = [query for query in api.asked(PODS) if "sendInitialEvents" in query]
    assert len(lists) == 1


@pytest.mark.parametrize("in_stream", [True, False])
def test_an_expired_resource_version_leads_to_a_new_list(api: WatchedApi, in_stream: bool) -> None:
    api.expires_in_stream = in_stream
    api.put(PODS, objects.stored_pod("old"))
    with watching(api) as watched:
        watched.ready()
        with api.changed:  # no watch may resume before all of this has happened
            api.hang_up()
            api.delete(PODS, objects.stored_pod("old"))
            api.put(PODS, objects.stored_pod("new"))
            api.compact()
        watched.until(lambda: watched.has_pod("new") and not watched.has_pod("old"))


@dataclass(frozen=True)
class RecordingBackoff(Backoff):
    """Records each pause."""

    made: list[int]

    def delay_s(self, failures: int, chance: float = 1.0) -> float:
        self.made.append(failures)
        return super().delay_s(failures, chance)


@pytest.mark.parametrize("in_stream", [True, False])
def test_lists_are_not_repeated_without_pause_if_their_version_expires_at_once(
    api: WatchedApi, in_stream: bool
) -> None:
    api.streams_lists, api.expires_in_stream = False, in_stream
    api.compacted = 10**9  # the list took longer than the API server remembers
    pause = RecordingBackoff(1000.0, 1000.0, made=[])
    with watching(api, limits=replace(FAST, absent_s=1000.0, pause=pause)) as watched:
        watched.until(lambda: len(pause.made) == len(BUILT_IN))

    assert len(pages(api)) == 2


def test_a_cache_whose_new_list_never_completes_is_reported_as_stale(
    api: WatchedApi, streams: bool
) -> None:
    """Each request is answered, so data arrives all the time, but no complete list."""
    api.put(PODS, objects.stored_pod("old"))
    freshness = Freshness(silent_s=inf)
    with watching(api, freshness=freshness) as watched:
        watched.ready()
        with api.changed:
            api.cut_lists.add(PODS)
            api.hang_up()
            api.delete(PODS, objects.stored_pod("old"))
            api.put(PODS, objects.stored_pod("new"))
            api.compact()
        complaint = "pods: new list not complete for"

        def complains() -> bool:
            later = SystemClock.monotonic() + STALE_S
            return any(each.startswith(complaint) for each in freshness.problems(later))

        watched.until(complains)

        api.cut_lists.clear()
        watched.until(lambda: watched.has_pod("new") and not watched.has_pod("old"))
        watched.ready()


def test_a_restored_etcd_backup_is_detected(api: WatchedApi, streams: bool) -> None:
    """A watch from our version is accepted and silent: the version lies in the future."""
    for number in range(20):
        api.put(PODS, objects.stored_pod(f"lost-{number}"))
    with watching(api, limits=replace(FAST, silence_s=0.2)) as watched:
        watched.ready()
        with api.changed:
            api.restore()
            api.put(PODS, objects.stored_pod("after"))
        watched.until(lambda: watched.has_pod("after") and not watched.has_pod("lost-7"))


def test_a_dialect_installed_later_is_found(api: WatchedApi, watched: Watched) -> None:
    assert watched.group("train") is None

    api.put(GROUPS, objects.pod_group("train"))
    api.installed.add(GROUPS)
    watched.until(lambda: watched.group("train"))


def test_objects_of_an_uninstalled_dialect_are_removed(api: WatchedApi) -> None:
    api.installed |= {GROUPS, QUEUES}
    api.put(GROUPS, objects.pod_group("train"))
    with watching(api) as watched:
        watched.ready()

        assert watched.group("train")

        api.uninstall(GROUPS)
        watched.until(lambda: watched.group("train") is None)

        assert watched.cluster.why_not_ready() == []


def test_a_missing_permission_for_a_resource_that_is_not_installed_is_not_reported(
    api: WatchedApi,
) -> None:
    api.refusals[GROUPS] = [403] * 1000
    with watching(api) as watched:
        watched.ready()


def test_a_missing_permission_for_an_installed_resource_is_reported(
    api: WatchedApi, streams: bool
) -> None:
    api.installed.add(GROUPS)
    api.refusals[GROUPS] = [403] * 1000
    with watching(api) as watched:
        watched.until(
            lambda: is_only_complaint(
                watched, "podgroups.scheduling.volcano.sh: first list not complete (GET"
            )
        )


def test_without_permission_to_read_quotas_the_cache_becomes_ready(api: WatchedApi) -> None:
    api.installed.add(QUOTAS)
    api.refusals[QUOTAS] = [403] * 1000
    with watching(api) as watched:
        watched.ready()


def test_quotas_are_listed_once_the_permission_is_granted(api: WatchedApi) -> None:
    api.installed.add(QUOTAS)
    api.put(QUOTAS, quota("small"))
    with watching(api) as watched:
        watched.ready()
        watched.until(lambda: watched.cluster.snapshot(0.0).quotas)
        with api.changed:
            api.refusals[QUOTAS] = [403] * 3
            api.hang_up()
        watched.until(lambda: not watched.cluster.snapshot(0.0).quotas)
        watched.until(lambda: watched.cluster.snapshot(0.0).quotas)


def is_only_complaint(watched: Watched, complaint: str) -> bool:
    """Return whether *complaint* is the only reason not to be ready."""
    return [each.startswith(complaint) for each in watched.cluster.why_not_ready()] == [True]


def quota(name: str) -> dict[str, Any]:
    spec = {"hard": {"pods": "1"}}
    about = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    return {"metadata": about, "spec": spec, "status": spec}


def test_a_missing_permission_to_watch_is_reported(api: WatchedApi) -> None:
    api.streams_lists = False
    api.unwatched.add(PODS)
    with watching(api) as watched:
        watched.until(lambda: is_only_complaint(watched, "pods: changes are not received (GET"))

        # Repeated lists would load the API server and hide the problem.
        assert len(pages(api)) == 1

        api.unwatched.clear()
        watched.ready()


def test_one_or_two_refusals_of_a_starting_api_server_are_not_reported(
    api: WatchedApi, watched: Watched
) -> None:
    with api.changed:
        api.refusals[PODS] = [403, 403]
        api.hang_up()
    api.put(PODS, objects.stored_pod("p"))
    watched.until(lambda: watched.has_pod("p") or watched.cluster.why_not_ready())

    assert watched.cluster.why_not_ready() == []


def test_a_missing_permission_for_a_required_resource_is_reported(api: WatchedApi) -> None:
    api.refusals[PODS] = [403] * 1000
    with watching(api) as watched:
        watched.until(lambda: len(watched.cluster.why_not_ready()) == 1)
        watched.until(lambda: "403" in watched.cluster.why_not_ready()[0])

        assert watched.cluster.why_not_ready()[0].startswith("pods: first list not complete (GET")


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_refused_list_is_requested_again(api: WatchedApi, status: int) -> None:
    api.refusals[PODS] = [status, status]
    with watching(api) as watched:
        watched.ready()


def test_a_rotated_token_is_read_again(api: WatchedApi) -> None:
    tokens = iter(["Bearer old", "Bearer new", "Bearer new"])
    api.token = "new"
    port = api.access().port

    def endpoint() -> ApiServer:
        return ApiServer(host="127.0.0.1", port=port, token=lambda: next(tokens))

    access = api.access(token=lambda: "Bearer old", reload=endpoint)
    next(tokens)
    with watching(api, access=access) as watched:
        watched.ready()

    assert {each.headers["authorization"] for each in api.requests} == {"Bearer old", "Bearer new"}


#: If the CRD preserves unknown fields, any tenant may write such a PodGroup.
UNREADABLE = objects.pod_group("odd", min_member="three") | {"code": "x"}
DEEP = objects.pod_group("odd", min_member=3, networkTopology={"mode": DEEP_NESTING})


@pytest.mark.parametrize(
    ("odd", "minimum"), [(UNREADABLE, 1), (DEEP, 3)], ids=["unreadable", "nested too deeply"]
)
def test_an_invalid_pod_group_stops_neither_a_list_nor_a_watch(
    api: WatchedApi, streams: bool, odd: dict[str, Any], minimum: int
) -> None:
    api.installed.add(GROUPS)
    api.put(GROUPS, odd)
    api.put(GROUPS, objects.pod_group("fine"))
    with watching(api) as watched:
        watched.ready()
        assert watched.group("fine")
        api.put(GROUPS, odd)
        api.put(GROUPS, objects.pod_group("later"))
        watched.until(lambda: watched.group("later"))

        found = watched.group("odd")
        assert found is not None
        assert (found.min_member, bool(found.problem)) == (minimum, True)
        api.delete(GROUPS, odd)
        watched.until(lambda: watched.group("odd") is None)
    assert len([query for query in api.asked(GROUPS) if "resourceVersion" not in query]) == (
        1 if streams else 2  # a stream that is refused, and a page
    )


def test_a_streamed_list_that_keeps_failing_does_not_prevent_a_list(
    api: WatchedApi,
) -> None:
    lines = api.lines

    def with_invalid_line(path: str, query: dict[str, str]) -> Iterator[Any]:
        if path == PODS and "sendInitialEvents" in query:
            yield {"type": "NONSENSE"}
        yield from lines(path, query)

    api.lines = with_invalid_line  # type: ignore[method-assign]
    api.put(PODS, objects.stored_pod("p"))
    with watching(api) as watched:
        watched.ready()

        assert watched.has_pod("p")


def test_a_line_that_cannot_be_read_leads_to_a_new_watch(api: WatchedApi, watched: Watched) -> None:
    api.say(PODS, {"type": "NONSENSE"})
    api.put(PODS, objects.stored_pod("p"))
    watched.until(lambda: watched.has_pod("p"))


EVERYTHING = resources(SCHEDULERS)


def test_watches_that_fall_silent_without_closing_are_restarted(api: WatchedApi) -> None:
    api.installed.update(each.path for each in EVERYTHING)
    with watching(api, limits=replace(FAST, silence_s=0.3)) as watched:
        watched.ready()
        for resource in EVERYTHING:
            api.mute(resource.path)
            meanwhile = {"name": "meanwhile", "namespace": "a", "uid": "uid-meanwhile"}
            api.put(resource.path, {"metadata": meanwhile})
        everywhere = {(each.decoder.kind, each.decoder.dialect) for each in EVERYTHING}
        watched.until(lambda: watched.cluster.received >= everywhere)

        assert watched.cluster.why_not_ready() == []


@pytest.mark.parametrize(
    ("status", "streams", "are_installed"),
    [
        pytest.param(401, True, True, id="of an unknown token"),
        pytest.param(403, False, True, id="of pages"),
        pytest.param(403, True, False, id="without CRDs"),
    ],
)
def test_an_api_server_that_refuses_every_request_is_reported_and_tried_again(
    api: WatchedApi, status: int, streams: bool, are_installed: bool
) -> None:
    """The API server has restarted, and its authorizer has not read any role yet."""
    if are_installed:
        api.installed.update(each.path for each in EVERYTHING)
    with watching(api) as watched:
        watched.ready()
        with api.changed:
            api.refuses_all = status
            api.hang_up()
        watched.until(lambda: len(watched.cluster.why_not_ready()) >= len(BUILT_IN))
        assert all(f"{status}" in each for each in watched.cluster.why_not_ready())

        api.refuses_all = 0
        api.put(PODS, objects.stored_pod("p"))
        watched.ready()
        watched.until(lambda: watched.has_pod("p"))


def test_a_bug_while_applying_a_change_is_repaired_by_a_new_list(
    api: WatchedApi,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mistakes = [RuntimeError("bug")]
    apply = watched.cluster.apply

    def fail_once(change: Any) -> None:
        if mistakes:
            raise mistakes.pop()
        apply(change)

    monkeypatch.setattr(watched.cluster, "apply", fail_once)
    api.put(PODS, objects.stored_pod("p"))
    watched.until(lambda: watched.has_pod("p"))

    assert "reflector failed" in caplog.text


def test_stopping_ends_every_thread_at_once(watched: Watched) -> None:
    began = time.monotonic()
    watched.watches.stop()

    assert time.monotonic() - began < LIMITS.silence_s / 2
    assert not [each for each in threading.enumerate() if each.name.startswith("reflector-")]


def test_an_unreachable_server_is_reported() -> None:
    with WatchedApi() as api:
        access = api.access()
    with watching(api, access=access) as watched:
        watched.until(
            lambda: any(
                "no response from the API server" in each
                for each in watched.cluster.why_not_ready()
            )
        )


@pytest.mark.parametrize("seed", range(4))
def test_after_random_faults_the_cache_equals_the_server(api: WatchedApi, seed: int) -> None:
    chance = Random(seed)
    api.installed.add(GROUPS)
    api.streams_lists = seed % 2 == 0
    alive: dict[str, dict[str, Any]] = {}
    with watching(api) as watched:
        for _ in range(400):
            name = f"p{chance.randrange(40)}"
            if name in alive and chance.random() < 0.4:
                api.delete(PODS, alive.pop(name))
            else:
                alive[name] = objects.stored_pod(
                    name, node=chance.choice(["", "n"]), uid=f"uid-{name}"
                )
                api.put(PODS, alive[name])
            roll = chance.random()
            if roll < 0.03:
                api.hang_up()
            elif roll < 0.06:
                api.compact()
                api.hang_up()
            elif roll < 0.08:
                api.refusals[PODS] = [chance.choice([410, 429, 500])]
        api.put(PODS, objects.stored_pod("last"))
        watched.until(lambda: watched.has_pod("last") and not watched.cluster.why_not_ready())
        pods = [f"p{number}" for number in range(40)]

        assert [name for name in pods if watched.has_pod(name)] == [
            name for name in pods if name in alive
        ]
