from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from extender.cache.cluster import Cluster
from extender.kube.api.kubeconfig import Endpoint
from extender.kube.decode.watched import Resource, resources
from extender.kube.watch import follow
from extender.kube.watch.follow import Watches
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.timing.clock import SystemClock
from extender.timing.freshness import STALE_S
from extender.timing.pause import Pause
from tests.kube import json_objects as make
from tests.kube.watched_api import ABYSS, BUILT_IN, GROUPS, NODES, PODS, QUEUES, QUOTAS, WatchedApi

SCHEDULERS = frozenset({"gang-scheduler"})
LONG_S = 20.0


class Watched:
    """A mirror of a `WatchedApi`, and a way to wait for what it hears."""

    def __init__(self, api: WatchedApi, **rest: Any) -> None:
        self.cluster = Cluster(SystemClock())
        access = rest.pop("access", None) or api.access()
        rest.setdefault("absent_s", 0.02)
        self.watches = Watches(access, self.cluster, SystemClock(), SCHEDULERS, **rest)
        self._heard = threading.Condition()
        self.cluster.on_change(self._notice)

    def _notice(self) -> None:
        with self._heard:
            self._heard.notify_all()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until *holds*; changes wake us, what is not a change is looked for now and then."""
        deadline = time.monotonic() + LONG_S
        with self._heard:
            while not holds():
                assert time.monotonic() < deadline, "it never came to be"
                self._heard.wait(0.01)

    def ready(self) -> None:
        self.until(lambda: not self.cluster.readiness())

    def has_pod(self, name: str) -> bool:
        return self.cluster.pod(PodUid(f"uid-{name}")) is not None


@pytest.fixture
def api() -> Iterator[WatchedApi]:
    with WatchedApi() as made:
        yield made


@contextmanager
def watching(api: WatchedApi, **rest: Any) -> Iterator[Watched]:
    watched = Watched(api, **rest)
    watched.watches.start()
    try:
        yield watched
    finally:
        watched.watches.stop()


@pytest.mark.parametrize("streams", [True, False])
def test_what_is_there_is_listed_before_the_mirror_is_ready(api: WatchedApi, streams: bool) -> None:
    api.streams_lists = streams
    for number in range(600):
        api.put(PODS, make.pod(f"p{number}"))
    with watching(api) as watched:
        watched.ready()

        assert all(watched.has_pod(f"p{number}") for number in range(600))


def test_a_server_that_cannot_stream_lists_is_asked_for_pages(api: WatchedApi) -> None:
    api.streams_lists = False
    for number in range(600):
        api.put(PODS, make.pod(f"p{number}"))
    with watching(api) as watched:
        watched.ready()

    pages = [query.get("continue") for query in api.asked(PODS) if "limit" in query]
    assert pages == [None, "250", "500"]


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_nothing_is_forgotten_where_pages_break_off(api: WatchedApi, status: int) -> None:
    api.streams_lists = False
    for number in range(600):
        api.put(PODS, make.pod(f"p{number}"))
    api.refusals[PODS] = [422, 0, status]  # no stream, the first page, and not the second
    with watching(api) as watched:
        watched.ready()

        assert [number for number in range(600) if not watched.has_pod(f"p{number}")] == []


def test_a_page_that_is_refused_for_a_while_does_not_cost_those_before_it(
    api: WatchedApi,
) -> None:
    api.streams_lists = False
    for number in range(600):
        api.put(PODS, make.pod(f"p{number}"))
    api.refusals[PODS] = [422, 0, 429, 503, 429, 0, 500]
    with watching(api) as watched:
        watched.ready()

    pages = [query.get("continue") for query in api.asked(PODS) if "limit" in query]
    assert pages == [None, *["250"] * 4, *["500"] * 2]


@pytest.mark.parametrize("streams", [True, False])
def test_changes_are_heard_as_they_happen(api: WatchedApi, streams: bool) -> None:
    api.streams_lists = streams
    with watching(api) as watched:
        watched.ready()
        api.put(PODS, make.pod("p"))
        watched.until(lambda: watched.has_pod("p"))
        api.delete(PODS, make.pod("p"))
        watched.until(lambda: not watched.has_pod("p"))


def test_a_broken_watch_goes_on_where_it_was(api: WatchedApi) -> None:
    with watching(api) as watched:
        watched.ready()
        api.put(PODS, make.pod("before"))
        watched.until(lambda: watched.has_pod("before"))
        api.hang_up()
        api.put(PODS, make.pod("meanwhile"))
        watched.until(lambda: watched.has_pod("meanwhile"))

    lists = [query for query in api.asked(PODS) if "sendInitialEvents" in query]
    assert len(lists) == 1


@pytest.mark.parametrize("in_stream", [True, False])
def test_an_expired_version_leads_to_a_new_list(api: WatchedApi, in_stream: bool) -> None:
    api.expires_in_stream = in_stream
    api.put(PODS, make.pod("old"))
    with watching(api) as watched:
        watched.ready()
        with api.changed:  # nobody may resume before all of this has happened
            api.hang_up()
            api.delete(PODS, make.pod("old"))
            api.put(PODS, make.pod("new"))
            api.compact()
        watched.until(lambda: watched.has_pod("new") and not watched.has_pod("old"))


@pytest.mark.parametrize("in_stream", [True, False])
def test_versions_that_expire_at_once_are_not_listed_anew_over_and_over(
    api: WatchedApi, in_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.streams_lists, api.expires_in_stream = False, in_stream
    api.compacted = 10**9  # the list took longer than the API server remembers
    monkeypatch.setattr(follow, "_PAUSE", Pause(1000.0, 1000.0))
    pauses: list[float] = []
    pause = follow.Follower._pause

    def note(self: follow.Follower, seconds: float) -> None:
        pauses.append(seconds)
        pause(self, seconds)

    monkeypatch.setattr(follow.Follower, "_pause", note)
    with watching(api, absent_s=1000.0) as watched:
        watched.until(lambda: len(pauses) == len(EVERYTHING))

    assert len([query for query in api.asked(PODS) if "limit" in query]) == 2


@pytest.mark.parametrize("streams", [True, False])
def test_a_mirror_whose_new_list_never_ends_is_not_trusted(
    api: WatchedApi, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is answered, so something is heard all the time; only nothing that is new."""
    api.streams_lists = streams
    monkeypatch.setattr(follow, "_PAUSE", Pause(0.01, 0.01))
    api.put(PODS, make.pod("old"))
    with watching(api) as watched:
        watched.ready()
        with api.changed:
            api.cut_lists.add(PODS)
            api.hang_up()
            api.delete(PODS, make.pod("old"))
            api.put(PODS, make.pod("new"))
            api.compact()
        watched.cluster.freshness._stale_s = 0.5
        complaint = "pods: new list not complete for"
        watched.until(
            lambda: any(each.startswith(complaint) for each in watched.cluster.readiness())
        )

        watched.cluster.freshness._stale_s = STALE_S
        api.cut_lists.clear()
        watched.until(lambda: watched.has_pod("new") and not watched.has_pod("old"))
        watched.ready()


@pytest.mark.parametrize("streams", [True, False])
def test_a_backup_that_was_restored_is_found_out(api: WatchedApi, streams: bool) -> None:
    """A watch from where we were is let in and silent: that version is one of the future."""
    api.streams_lists = streams
    for number in range(20):
        api.put(PODS, make.pod(f"lost-{number}"))
    with watching(api, silence_s=0.3) as watched:
        watched.ready()
        with api.changed:
            api.restore()
            api.put(PODS, make.pod("after"))
        watched.until(lambda: watched.has_pod("after") and not watched.has_pod("lost-7"))


def test_a_dialect_installed_later_is_found(api: WatchedApi) -> None:
    with watching(api) as watched:
        watched.ready()

        assert watched.cluster.group(GangKey("a/train")) is None

        api.put(GROUPS, make.group("train"))
        api.installed.add(GROUPS)
        watched.until(lambda: watched.cluster.group(GangKey("a/train")))


def test_a_dialect_that_is_removed_takes_its_objects_with_it(api: WatchedApi) -> None:
    api.installed |= {GROUPS, QUEUES}
    api.put(GROUPS, make.group("train"))
    with watching(api) as watched:
        watched.ready()

        assert watched.cluster.group(GangKey("a/train"))

        api.uninstall(GROUPS)
        watched.until(lambda: watched.cluster.group(GangKey("a/train")) is None)

        assert watched.cluster.readiness() == []


def test_what_we_may_not_read_and_is_not_installed_is_not_missed(api: WatchedApi) -> None:
    api.refusals[GROUPS] = [403] * 1000
    with watching(api) as watched:
        watched.ready()


@pytest.mark.parametrize("streams", [True, False])
def test_what_is_installed_and_hidden_from_us_is_named(api: WatchedApi, streams: bool) -> None:
    api.streams_lists = streams
    api.installed.add(GROUPS)
    api.refusals[GROUPS] = [403] * 1000
    with watching(api) as watched:
        watched.until(
            lambda: only(watched, "podgroups.scheduling.volcano.sh: first list not complete (GET")
        )


def test_quotas_that_we_may_not_read_are_decided_without(api: WatchedApi) -> None:
    api.installed.add(QUOTAS)
    api.refusals[QUOTAS] = [403] * 1000
    with watching(api) as watched:
        watched.ready()


def test_quotas_are_read_whole_once_we_may(api: WatchedApi) -> None:
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


def only(watched: Watched, complaint: str) -> bool:
    """Whether nothing else is missing."""
    return [each.startswith(complaint) for each in watched.cluster.readiness()] == [True]


def quota(name: str) -> dict[str, Any]:
    spec = {"hard": {"pods": "1"}}
    about = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    return {"metadata": about, "spec": spec, "status": spec}


def test_what_we_may_list_but_not_watch_is_named(api: WatchedApi) -> None:
    api.streams_lists = False
    api.unwatched.add(PODS)
    with watching(api) as watched:
        watched.until(lambda: only(watched, "pods: changes are not heard (GET"))

        # Listing over and over instead would be a burden, and hide what is wrong.
        assert len([query for query in api.asked(PODS) if "limit" in query]) == 1

        api.unwatched.clear()
        watched.ready()


def test_an_api_server_that_just_began_may_refuse_once_or_twice(api: WatchedApi) -> None:
    with watching(api) as watched:
        watched.ready()
        with api.changed:
            api.refusals[PODS] = [403, 403]
            api.hang_up()
        api.put(PODS, make.pod("p"))
        watched.until(lambda: watched.has_pod("p") or watched.cluster.readiness())

        assert watched.cluster.readiness() == []


def test_what_we_must_read_and_may_not_is_named(api: WatchedApi) -> None:
    api.refusals[PODS] = [403] * 1000
    with watching(api) as watched:
        watched.until(lambda: len(watched.cluster.readiness()) == 1)
        watched.until(lambda: "403" in watched.cluster.readiness()[0])

        assert watched.cluster.readiness()[0].startswith("pods: first list not complete (GET")


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_refusal_is_tried_again(api: WatchedApi, status: int) -> None:
    api.refusals[PODS] = [status, status]
    with watching(api) as watched:
        watched.ready()


def test_a_version_the_server_cannot_serve_is_given_up(api: WatchedApi) -> None:
    with watching(api) as watched:
        watched.ready()
        with api.changed:
            api.refusals[PODS] = [504, 504, 504]  # "too large resource version", for ever
            api.hang_up()
        api.put(PODS, make.pod("p"))
        watched.until(lambda: watched.has_pod("p"))

    assert len([query for query in api.asked(PODS) if "sendInitialEvents" in query]) == 2


def test_a_token_that_was_rotated_is_read_again(api: WatchedApi) -> None:
    tokens = iter(["Bearer old", "Bearer new", "Bearer new"])
    api.token = "new"
    port = api.access().port

    def endpoint() -> Endpoint:
        return Endpoint(host="127.0.0.1", port=port, token=lambda: next(tokens))

    access = api.access(token=lambda: "Bearer old", reload=endpoint)
    next(tokens)
    with watching(api, access=access) as watched:
        watched.ready()

    assert {each.headers["authorization"] for each in api.requests} == {"Bearer old", "Bearer new"}


def test_an_odd_object_does_not_stall_the_watch(api: WatchedApi) -> None:
    api.installed.add(GROUPS)
    with watching(api) as watched:
        watched.ready()
        api.put(GROUPS, make.group("odd", "three"))
        api.put(GROUPS, make.group("fine"))
        watched.until(lambda: watched.cluster.group(GangKey("a/fine")))

        odd = watched.cluster.group(GangKey("a/odd"))
        assert odd is not None
        assert "spec.minMember expected int" in odd.problem


@pytest.mark.parametrize(
    "line",
    [
        {"type": "ERROR", "object": {"metadata": {}, "code": 500, "message": "etcd is ill"}},
        {"type": "NONSENSE"},
        {},
    ],
    ids=["error", "nonsense", "nothing"],
)
def test_a_line_nobody_understands_leads_to_a_new_watch(
    api: WatchedApi, line: dict[str, Any]
) -> None:
    with watching(api) as watched:
        watched.ready()
        api.say(PODS, line)
        api.put(PODS, make.pod("p"))
        watched.until(lambda: watched.has_pod("p"))


def test_a_silent_watch_is_taken_for_dead_and_begun_anew(api: WatchedApi) -> None:
    with watching(api, silence_s=0.05) as watched:
        watched.ready()
        watched.until(lambda: len(api.asked(NODES)) > 3)

        assert watched.cluster.readiness() == []


EVERYTHING = resources(SCHEDULERS)


@pytest.mark.parametrize("resource", EVERYTHING, ids=lambda each: each.name)
def test_a_watch_that_falls_silent_without_closing_is_begun_anew(
    api: WatchedApi, resource: Resource
) -> None:
    api.installed.update(each.path for each in EVERYTHING)
    kind, dialect = resource.codec.kind, resource.codec.dialect
    with watching(api, silence_s=0.3) as watched:
        watched.ready()
        api.mute(resource.path)
        meanwhile = {"name": "meanwhile", "namespace": "a", "uid": "uid-meanwhile"}
        api.put(resource.path, {"metadata": meanwhile})
        told = watched.cluster._stores[kind].told
        watched.until(lambda: told(dialect))

        assert watched.cluster.readiness() == []


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("are_installed", [True, False], ids=["with CRDs", "without CRDs"])
def test_an_api_server_that_lets_nobody_in_for_a_while_is_named_and_asked_again(
    api: WatchedApi, status: int, streams: bool, are_installed: bool
) -> None:
    """It has begun anew, and its authorizer does not know yet what anybody may do."""
    api.streams_lists = streams
    if are_installed:
        api.installed.update(each.path for each in EVERYTHING)
    with watching(api) as watched:
        watched.ready()
        with api.changed:
            api.refuses_all = status
            api.hang_up()
        watched.until(lambda: len(watched.cluster.readiness()) >= len(BUILT_IN))
        assert all(f"{status}" in each for each in watched.cluster.readiness())

        api.refuses_all = 0
        api.put(PODS, make.pod("p"))
        watched.ready()
        watched.until(lambda: watched.has_pod("p"))


def test_our_own_mistake_is_mended_by_a_new_list(
    api: WatchedApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(api) as watched:
        watched.ready()
        mistakes = [RuntimeError("bug")]
        apply = watched.cluster.apply

        def fail_once(change: Any) -> None:
            if mistakes:
                raise mistakes.pop()
            apply(change)

        monkeypatch.setattr(watched.cluster, "apply", fail_once)
        api.put(PODS, make.pod("p"))
        watched.until(lambda: watched.has_pod("p"))

    assert "following failed" in caplog.text


def test_stopping_ends_every_thread_at_once(api: WatchedApi) -> None:
    with watching(api) as watched:
        watched.ready()
        began = time.monotonic()

    assert time.monotonic() - began < follow.SILENCE_S / 2
    assert not [each for each in threading.enumerate() if each.name.startswith("follow-")]


def test_a_server_that_is_not_there_is_named_until_it_is() -> None:
    with WatchedApi() as api:
        access = api.access()
    with watching(api, access=access) as watched:
        watched.until(
            lambda: any(
                "no answer from the API server" in each for each in watched.cluster.readiness()
            )
        )


@pytest.mark.parametrize("seed", range(4))
def test_after_any_trouble_the_mirror_equals_the_server(api: WatchedApi, seed: int) -> None:
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
                alive[name] = make.pod(name, node=chance.choice(["", "n"]), uid=f"uid-{name}")
                api.put(PODS, alive[name])
            trouble = chance.random()
            if trouble < 0.03:
                api.hang_up()
            elif trouble < 0.06:
                api.compact()
                api.hang_up()
            elif trouble < 0.08:
                api.refusals[PODS] = [chance.choice([410, 429, 500])]
        api.put(PODS, make.pod("last"))
        watched.until(lambda: watched.has_pod("last") and not watched.cluster.readiness())
        pods = [f"p{number}" for number in range(40)]

        assert [name for name in pods if watched.has_pod(name)] == [
            name for name in pods if name in alive
        ]


@pytest.mark.parametrize("streams", [True, False])
def test_an_object_that_is_nested_too_deeply_does_not_stop_the_mirror(
    api: WatchedApi, streams: bool
) -> None:
    api.streams_lists = streams
    api.installed.add(GROUPS)
    api.put(GROUPS, make.group("deep", networkTopology=ABYSS))
    api.put(GROUPS, make.group("plain"))
    with watching(api) as watched:
        watched.ready()
        assert watched.cluster.group(GangKey("a/plain")) is not None
        for name in ("deep", "deeper"):
            api.put(GROUPS, make.group(name, 3, networkTopology={"mode": ABYSS}))
        api.put(GROUPS, make.group("later"))
        watched.until(lambda: watched.cluster.group(GangKey("a/later")))

        deep = watched.cluster.group(GangKey("a/deep"))
        assert deep is not None
        assert (deep.min_member, bool(deep.problem)) == (3, True)
        api.delete(GROUPS, make.group("deep"))
        watched.until(lambda: watched.cluster.group(GangKey("a/deep")) is None)
    assert [query for query in api.asked(GROUPS) if "resourceVersion" in query] == (
        [] if streams else api.asked(GROUPS)[-1:]
    )
