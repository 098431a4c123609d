"""The recorders of the proxies."""

from __future__ import annotations

import json

from tests.nightly.faults.framing import Answer, Head, Request
from tests.nightly.faults.record import Answered, Asked, BindingAnswered, CutOff, Record
from tests.nightly.faults.recorders import BindingRecorder, HookRecorder, name_call, name_hook

CALL = {"PodName": "train-0", "PodNamespace": "a", "PodUID": "u1", "Node": "n1"}
BINDING = {"metadata": {"name": "train-0", "uid": "u1"}, "target": {"name": "n1"}}


def request(method: str, path: str, document: object) -> Request:
    body = json.dumps(document).encode()
    return Request(Head(b"", f"{method} {path} HTTP/1.1", {}), body, body)


def answer(status: int, document: object) -> Answer:
    body = json.dumps(document).encode()
    return Answer(Head(b"", f"HTTP/1.1 {status} Said", {}), body, body, True)


def test_calls_have_their_site_and_pod() -> None:
    path = "/api/v1/namespaces/a/pods/train-0/binding"
    assert name_call(request("POST", path, BINDING)) == ("bind", "train-0")
    assert name_hook(request("POST", "/bind", CALL)) == ("hook-bind", "train-0")
    asked = {"Pod": {"metadata": {"name": "train-1", "uid": "u2"}}, "NodeNames": ["n1"]}
    assert name_hook(request("POST", "/filter", asked)) == ("hook-filter", "train-1")
    assert name_hook(request("POST", "/filter", ["nonsense"])) == ("hook-filter", "")


def test_call_and_answer_have_the_same_number() -> None:
    record = Record(now=lambda: 7.0)
    recorder = HookRecorder(record)
    bind = request("POST", "/bind", CALL)

    first, second = recorder.request_sent(bind), recorder.request_sent(bind)
    recorder.response_received(first, bind, answer(200, {"Error": "no room"}), delivered=True)
    recorder.connection_lost(second, by_caller=True)

    assert record.of(Asked) == [
        Asked(at=7.0, call=each, hook="bind", to="gang-extender", uid="u1", node="n1")
        for each in (first, second)
    ]
    assert record.of(Answered) == [Answered(at=7.0, call=first, status=200, error="no room")]
    assert record.of(CutOff) == [CutOff(at=7.0, call=second, by_caller=True)]


def test_only_bindings_are_recorded_at_the_api_server() -> None:
    record = Record(now=lambda: 7.0)
    recorder = BindingRecorder(record)
    bind = request("POST", "/api/v1/namespaces/a/pods/train-0/binding", BINDING)
    look = request("GET", "/api/v1/namespaces/a/pods/train-0", {})

    recorder.response_received(recorder.request_sent(look), look, answer(200, {}), delivered=True)
    recorder.response_received(recorder.request_sent(bind), bind, answer(201, {}), delivered=False)

    assert list(record) == [
        BindingAnswered(at=7.0, uid="u1", node="n1", status=201, delivered=False)
    ]
