"""What passes a proxy is in the record, as the verdict needs it."""

from __future__ import annotations

import json

from tests.cluster.framing import Answer, Head, Request
from tests.nightly.faults.record import Answered, Asked, BindingAnswered, CutOff, Record
from tests.nightly.faults.witness import BindingWitness, HookWitness, name_call, name_hook

CALL = {"PodName": "train-0", "PodNamespace": "a", "PodUID": "u1", "Node": "n1"}
BINDING = {"metadata": {"name": "train-0", "uid": "u1"}, "target": {"name": "n1"}}


def request(method: str, path: str, said: object) -> Request:
    body = json.dumps(said).encode()
    return Request(Head(b"", f"{method} {path} HTTP/1.1", {}), body, body)


def answer(status: int, said: object) -> Answer:
    body = json.dumps(said).encode()
    return Answer(Head(b"", f"HTTP/1.1 {status} Said", {}), body, body, True)


def test_calls_and_hooks_are_named_with_the_pod_they_are_about() -> None:
    path = "/api/v1/namespaces/a/pods/train-0/binding"
    assert name_call(request("POST", path, BINDING)) == ("bind", "train-0")
    assert name_hook(request("POST", "/bind", CALL)) == ("hook-bind", "train-0")
    asked = {"Pod": {"metadata": {"name": "train-1", "uid": "u2"}}, "NodeNames": ["n1"]}
    assert name_hook(request("POST", "/filter", asked)) == ("hook-filter", "train-1")
    assert name_hook(request("POST", "/filter", ["nonsense"])) == ("hook-filter", "")


def test_a_hook_that_was_answered_is_asked_and_answered_under_one_number() -> None:
    record = Record(now=lambda: 7.0)
    witness = HookWitness(record)
    bind = request("POST", "/bind", CALL)

    first, second = witness.request_sent(bind), witness.request_sent(bind)
    witness.response_received(first, bind, answer(200, {"Error": "no room"}), delivered=True)
    witness.connection_lost(second, by_caller=True)

    assert record.of(Asked) == [
        Asked(at=7.0, call=each, hook="bind", to="gang-extender", uid="u1", node="n1")
        for each in (first, second)
    ]
    assert record.of(Answered) == [Answered(at=7.0, call=first, status=200, error="no room")]
    assert record.of(CutOff) == [CutOff(at=7.0, call=second, by_caller=True)]


def test_only_bindings_are_noted_at_the_api_server_with_whether_we_were_told() -> None:
    record = Record(now=lambda: 7.0)
    witness = BindingWitness(record)
    bind = request("POST", "/api/v1/namespaces/a/pods/train-0/binding", BINDING)
    look = request("GET", "/api/v1/namespaces/a/pods/train-0", {})

    witness.response_received(witness.request_sent(look), look, answer(200, {}), delivered=True)
    witness.response_received(witness.request_sent(bind), bind, answer(201, {}), delivered=False)

    assert list(record) == [
        BindingAnswered(at=7.0, uid="u1", node="n1", status=201, delivered=False)
    ]
