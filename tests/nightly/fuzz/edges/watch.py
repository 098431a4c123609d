"""Watch events and pages of lists: the result does not depend on packets, and planning goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from extender.cache.changes import Delete, Upsert
from extender.cache.cluster import Cluster
from extender.clock import SystemClock
from extender.errors import ExtenderError
from extender.findings.audit import audit
from extender.kube.decode.resources import Resource, resources
from extender.kube.encode import dump
from extender.kube.list_watch import ListWatch, ReceivedItem, lines
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.settings import Settings
from extender.web.plan_documents import PlanDocuments, findings_of
from tests.nightly.fuzz.edge import Edge, must
from tests.nightly.fuzz.mutations import TEXTS, changed, written
from tests.nightly.fuzz.objects import OBJECTS, Object

_WIRE = Path(__file__).parents[3] / "unit" / "hooks" / "wire"
_SCHEDULERS = frozenset({"gang-scheduler", "default-scheduler"})
_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "added", "NEW")
_INITIAL_END = "k8s.io/initial-events-end"
_MOMENT = 1.8e9


class WatchEvents(Edge):
    """Input: the name of a resource, then events; after `page ` and the name, a page of a list."""

    name = "watch"
    count = 700
    suffix = ".events"
    longest = 30_000
    words = (
        *(json.dumps(each).encode() for each in (*_TYPES, _INITIAL_END, *TEXTS[:20])),
        b"\n", b"null", b"{}", b"[]", b"[" * 300, b'{"a":' * 300, b'"uid":', b'"name":', b"\xff",
    )  # fmt: skip

    def __enter__(self) -> Self:
        self._by_name = {each.name: each for each in resources(_SCHEDULERS)}
        self._names = sorted(self._by_name)
        return self

    def real(self) -> list[bytes]:
        pod = json.loads((_WIRE / "filter-member.call.json").read_text())["Pod"]
        nodes = json.loads((_WIRE / "filter-whole-nodes.call.json").read_text())["Nodes"]
        messages = [
            b"pods\n" + _event("ADDED", pod),
            b"nodes\n" + _event("ADDED", nodes["items"][0]),
        ]
        for name in self._names:
            things = _of(name)
            for thing in things:
                stream = [*(_event(each, thing) for each in _TYPES[:3]), _bookmark(), _error()]
                messages.append(name.encode() + b"\n" + b"".join(stream))
            page = {"metadata": {"resourceVersion": "9"}, "items": [*things, *things]}
            messages.append(b"page " + name.encode() + b"\n" + json.dumps(page).encode())
        return messages

    def made(self, rng: Random) -> bytes:
        name = rng.choice(self._names)
        things = _of(name)
        if rng.random() < 0.15:
            items = [rng.choice(things) for _ in range(3)]
            page = {"metadata": {"resourceVersion": "9", "continue": ""}, "items": items}
            document = changed(page, rng, rng.randrange(1, 4))
            return b"page " + name.encode() + b"\n" + written(document, rng)
        events = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            event = {
                "type": rng.choice(_TYPES[:3] * 3 + _TYPES),
                "object": rng.choice(things),
            }
            events.append(written(changed(event, rng, rng.randrange(1, 4)), rng))
        return name.encode() + b"\n" + b"\n".join((*events, _bookmark()))

    def judge(self, data: bytes) -> None:
        head, _, stream = data.partition(b"\n")
        is_page = head.startswith(b"page ")
        name = head.removeprefix(b"page ").decode("latin-1")
        resource = self._by_name.get(name) or self._by_name["pods"]
        if is_page:
            self._judge_page(resource, stream)
            return
        progress, received = _read(resource, [stream])
        for pieces in _cuts(stream):
            other = _read(resource, pieces)[1]
            must(other == received, "the events differ when the input is cut")
        cluster = _cluster(self._by_name)
        for each in received:
            if isinstance(each, Upsert | Delete):
                cluster.apply(each)
        _must_go_on(cluster, resource, progress)

    def _judge_page(self, resource: Resource, body: bytes) -> None:
        progress = ListWatch(resource.decoder, streaming=False)
        progress.next_request(9)
        cluster = _cluster(self._by_name)
        try:
            codec = resource.decoder
            cluster.replace(codec.kind, progress.page(body), codec.dialect)
        except ExtenderError:
            pass
        _must_go_on(cluster, resource, progress)


def _of(name: str) -> tuple[Object, ...]:
    """Return the objects of a resource; its name may contain the dialect."""
    return OBJECTS[name.partition(".")[0]]


def _event(kind: str, thing: Any) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def _bookmark() -> bytes:
    annotations = {_INITIAL_END: "true"}
    return _event("BOOKMARK", {"metadata": {"resourceVersion": "9", "annotations": annotations}})


def _error() -> bytes:
    return _event("ERROR", {"metadata": {}, "code": 410, "message": "too old"})


def _read(resource: Resource, pieces: list[bytes]) -> tuple[ListWatch, list[ReceivedItem]]:
    progress = ListWatch(resource.decoder)
    progress.next_request(9)
    return progress, [progress.line(line) for line in lines(pieces)]


def _cuts(stream: bytes) -> Iterator[list[bytes]]:
    sizes = (1, 7, 1000) if len(stream) < 4000 else (997,)
    for size in sizes:
        yield [stream[at : at + size] for at in range(0, len(stream), size)]


def _cluster(known: dict[str, Resource]) -> Cluster:
    """Return a cache with objects of each kind."""
    cluster = Cluster.of(Settings(), SystemClock())
    for name in ("nodes", "namespaces", "queues.scheduling.volcano.sh", "pods",
                 "podgroups.scheduling.volcano.sh"):  # fmt: skip
        for thing in _of(name):
            line = known[name].decoder.line(_event("ADDED", thing))
            if line.change is not None:
                cluster.apply(line.change)
    return cluster


def _must_go_on(cluster: Cluster, resource: Resource, progress: ListWatch) -> None:
    """Object unless a plan can be made and encoded, and the next event is applied."""
    snapshot = cluster.snapshot(_MOMENT)
    plan = make_plan(snapshot, policy_parser.DEFAULT)
    findings = findings_of(audit(snapshot))
    for document in (PlanDocuments(plan, snapshot).plan(), findings, dump(snapshot)):
        msgspec.json.encode(document)
    ordinary = _of(resource.name)[0]
    named = {**ordinary["metadata"], "name": "next", "uid": "uid-next"}
    good = {**ordinary, "metadata": named}
    progress.start_over()
    progress.next_request(9)
    received = progress.line(_event("ADDED", good))
    must(isinstance(received, Upsert), "the next good event is not read")
    assert isinstance(received, Upsert)
    cluster.apply(received)
    cluster.snapshot(_MOMENT)
