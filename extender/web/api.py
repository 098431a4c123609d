"""The read-only API of the operations port: queues, gangs, findings, and why a gang waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from flask import Blueprint, Response
from flask.typing import ResponseReturnValue

from extender.findings.finding import Finding
from extender.forecast.forecaster import Forecaster
from extender.kube.encode import listing
from extender.model.gang import GangKey
from extender.planner.explain.explain import Remedying, explain, remedies
from extender.planner.policy import Policy
from extender.status.history import CycleResult, GangHistory
from extender.text import escaped
from extender.web import documents
from extender.web.plan_documents import PlanDocuments, findings_of, history_of

#: The minimum size of a chunk, except the last.
CHUNK = 64 * 1024
_encode = msgspec.json.Encoder().encode


def json_chunks(document: object) -> Iterator[bytes]:
    """Encode *document* in chunks: the fields of an object and the items of lists one by one."""
    chunk = bytearray()
    for part in _parts(document):
        chunk += part
        if len(chunk) >= CHUNK:
            yield _plain(bytes(chunk))
            chunk.clear()
    if chunk:
        yield _plain(bytes(chunk))


def _plain(chunk: bytes) -> bytes:
    """Return *chunk* with control characters escaped as JSON: people read it in a terminal."""
    if chunk.isascii() and b"\x7f" not in chunk:
        return chunk
    return escaped(chunk.decode()).encode()


def _parts(document: Any, depth: int = 2) -> Iterator[bytes]:
    if depth and isinstance(document, msgspec.Struct):
        names = document.__struct_encode_fields__
        document = dict(zip(names, msgspec.structs.astuple(document), strict=True))
    if depth and isinstance(document, Mapping):
        comma = b"{"
        for key, value in document.items():
            yield comma + _encode(str(key)) + b":"
            yield from _parts(value, depth - 1)
            comma = b","
        yield b"}" if comma == b"," else b"{}"
    elif depth and isinstance(document, list | tuple | Iterator):
        comma = b"["
        for each in document:
            yield comma + _encode(each)
            comma = b","
        yield b"]" if comma == b"," else b"[]"
    else:
        yield _encode(document)


class Api:
    """Answers from the history, which holds the last cycle and the story of every gang."""

    def __init__(
        self,
        history: GangHistory,
        policy: Callable[[], Policy],
        now: Callable[[], float] = time.time,
        findings: Callable[[], Sequence[Finding] | None] = lambda: None,
        standby: Callable[[], Sequence[str]] = lambda: (),
        forecaster: Forecaster | None = None,
        remedied: Remedying = remedies,
    ) -> None:
        self._history = history
        self._policy = policy
        self._findings = findings
        self._standby = standby
        self._now = now
        self._forecaster = forecaster or Forecaster(policy)
        self._remedied = remedied

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("ops", __name__, url_prefix="/api/v1")
        routes.before_request(self.refuse_on_standby)
        routes.add_url_rule("/plan", view_func=self.plan)
        routes.add_url_rule("/queues", view_func=self.queues)
        routes.add_url_rule("/gangs", view_func=self.gangs)
        routes.add_url_rule("/gangs/<namespace>/<name>", view_func=self.gang)
        routes.add_url_rule("/pods/<namespace>/<name>", view_func=self.pod)
        routes.add_url_rule("/findings", view_func=self.findings)
        routes.add_url_rule("/snapshot", view_func=self.snapshot)
        return routes

    def refuse_on_standby(self) -> ResponseReturnValue | None:
        """Answer 503 with the name of the leader on a standby: its plan is old or missing."""
        for sentence in self._standby():
            return _json({"error": f"{sentence}; call it instead"}, 503)
        return None

    def plan(self) -> ResponseReturnValue:
        """Return the last plan."""
        last = self._history.last
        return _json(self._documents(last).plan() if last else documents.NO_PLAN)

    def queues(self) -> ResponseReturnValue:
        """Return the figures of every queue."""
        last = self._history.last
        return _json(self._documents(last).queues() if last else [])

    def gangs(self) -> ResponseReturnValue:
        """Return the verdict on every gang."""
        last = self._history.last
        return _json(self._documents(last).gangs() if last else [])

    def gang(self, namespace: str, name: str) -> ResponseReturnValue:
        """Return the explanation of one gang."""
        key, last = GangKey(f"{namespace}/{name}"), self._history.last
        if last is None:
            return _not_planned()
        story = self._history.entries(key)
        explanation = explain(last.snapshot, last.plan, self._policy(), key, self._remedied)
        if explanation is None:
            message = f"there is no gang {key}; /api/v1/gangs lists those there are"
            return _json({"error": message, "history": history_of(story)}, 404)
        return _json(
            self._documents(last).explanation(
                explanation,
                now=self._now(),
                reason_since=self._history.reason_since(key),
                story=story,
            )
        )

    def _documents(self, last: CycleResult) -> PlanDocuments:
        estimates = partial(self._forecaster.estimate, last.snapshot, last.plan)
        return PlanDocuments(last.plan, last.snapshot, self._history.since, estimates)

    def pod(self, namespace: str, name: str) -> ResponseReturnValue:
        """Return the explanation of the gang of one pod."""
        last = self._history.last
        if last is None:
            return _not_planned()
        for gang in last.snapshot.gangs.values():
            if gang.group.namespace == namespace and any(pod.name == name for pod in gang.pods):
                return self.gang(namespace, gang.group.name)
        return _json({"error": f"{namespace}/{name} is not a pod of this extender"}, 404)

    def findings(self) -> ResponseReturnValue:
        """Return the inconsistencies found in objects; 503 before the first check."""
        found = self._findings()
        if found is None:
            return _not_planned()
        return _json(findings_of(found))

    def snapshot(self) -> ResponseReturnValue:
        """Return the cluster as the last plan saw it, as a List that `plan -f` reads."""
        last = self._history.last
        return _json(listing(last.snapshot) if last else {"kind": "List", "items": []})


def _not_planned() -> Response:
    """Answer 503: an empty answer would be mistaken for the result."""
    return _json({"error": "the first plan is being made; try again in a moment"}, 503)


def _json(document: object, status: int = 200) -> Response:
    return Response(list(json_chunks(document)), status, mimetype="application/json")
