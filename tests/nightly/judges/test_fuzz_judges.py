"""The checks of each edge detect planted faults."""

from __future__ import annotations

import asyncio
import json
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import pytest

from extender import policy_file, settings
from extender.cache.cluster import Cluster
from extender.cli import output, replay
from extender.doctor.reader import ApiReader
from extender.errors import InvalidConfiguration, InvalidHookCall, InvalidQuantity
from extender.hooks import http_connection, server as hookport, wire
from extender.hooks.handlers import Hooks
from extender.hooks.http_connection import HttpConnection
from extender.hooks.http_server import HttpServer
from extender.hooks.server import CallerCheck
from extender.kube.decode.decoder import ObjectDecoder
from extender.model import resources
from extender.planner import policy_parser
from extender.replay import recording
from extender.replay.recording import BEGINNING, frame
from extender.sim import scenario
from extender.tls import server
from extender.tls.server import ClientNames
from extender.web import api
from extender.whatif import manifests
from tests.nightly.fuzz import bounds
from tests.nightly.fuzz.bounds import ErrorLog, bounded
from tests.nightly.fuzz.edge import Objection, must_be_sentence, must_be_text
from tests.nightly.fuzz.edges import EDGES, handshakes, new, watch
from tests.nightly.fuzz.edges.recording import Recordings
from tests.nightly.fuzz.edges.scenario import Scenarios
from tests.nightly.fuzz.mutations import EVIL
from tests.nightly.fuzz.running import judged

Patch = pytest.MonkeyPatch


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def a_decoder_that_raises(patch: Patch) -> bytes:
    patch.setattr(ObjectDecoder, "line", raising(KeyError("x")))
    return b'pods\n{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n'


def an_event_that_is_lost_when_it_is_cut(patch: Patch) -> bytes:
    def lines(chunks: Any) -> Iterator[bytes]:
        return (line for chunk in chunks for line in chunk.split(b"\n") if line.endswith(b"}"))

    patch.setattr(watch, "lines", lines)
    return b'pods\n{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n'


def a_cache_that_fails(patch: Patch) -> bytes:
    patch.setattr(Cluster, "snapshot", raising(RecursionError()))
    return b"nodes\n{}\n"


def an_amount_that_is_another(patch: Patch) -> bytes:
    right = resources.parse_quantity
    patch.setattr(resources, "parse_quantity", lambda text: right(text) * 2)
    return b"500m"


def a_refusal_without_an_end(patch: Patch) -> bytes:
    def refuse(self: InvalidQuantity, text: object) -> None:
        Exception.__init__(self, f"{text}" * 2000)

    patch.setattr(InvalidQuantity, "__init__", refuse)
    return b"1Kii"


def a_policy_that_raises(patch: Patch) -> bytes:
    patch.setattr(policy_parser, "_parse", raising(KeyError("tiers")))
    return b"tiers: []\n"


def a_bad_file_that_changes_the_policy(patch: Patch) -> bytes:
    def keep(self: policy_file.PolicyFile, problem: str) -> None:
        self.problem, self._policy = problem, policy_parser.DEFAULT

    patch.setattr(policy_file.PolicyFile, "_keep_old", keep)
    return b"tiers: 1\n"


def a_hook_that_fails(patch: Patch) -> bytes:
    patch.setattr(wire, "read_preempt", raising(TypeError("x")))
    return b"preempt\n{}"


def an_error_with_control_characters(patch: Patch) -> bytes:
    patch.setattr(wire, "clean", str)
    patch.setattr(wire, "read_preempt", raising(InvalidHookCall(EVIL.replace("\n", ""))))
    return b"preempt\n{}"


def a_bind_that_is_answered_twice(patch: Patch) -> bytes:
    patch.setattr(Hooks, "bind", lambda self, body, answer: answer("no") or answer("no"))
    return b"bind\n{}"


def a_reader_that_counts_incorrectly(patch: Patch) -> bytes:
    right = HttpConnection.on_body

    def on_body(self: HttpConnection, body: bytes) -> None:
        right(self, body[:5])

    patch.setattr(HttpConnection, "on_body", on_body)
    return call(b"/filter")


def a_disconnected_caller_that_is_not_noticed(patch: Patch) -> bytes:
    patch.setattr(hookport.HookServer, "closed", lambda self, call: None)
    return call(b"/bind")


def a_connection_that_is_never_forgotten(patch: Patch) -> bytes:
    patch.setattr(HttpServer, "remove", lambda self, connection: None)
    return call(b"/filter")


def an_error_that_is_no_json(patch: Patch) -> bytes:
    patch.setattr(hookport, "_JSON", b"content-length: 1\r\n")
    return call(b"/nowhere")


def a_call_that_only_we_accept(patch: Patch) -> bytes:
    # Without the check of the Host header.
    patch.setattr(CallerCheck, "check", lambda self, headers, reached: None)
    return call(b"/filter").replace(b"Host: localhost\r\n", b"")


def a_coding_that_only_we_read(patch: Patch) -> bytes:
    patch.setitem(http_connection._CODINGS, "1.1", ([], [b"gzip, chunked"]))
    chunks = b'Transfer-Encoding: gzip, chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n'
    return call(b"/filter").partition(b"Content-Length")[0] + chunks


def call(path: bytes) -> bytes:
    return (
        b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 7\r\n\r\n{"a":1}'
    )


def a_page_with_control_characters(patch: Patch) -> bytes:
    patch.setattr(api, "_plain", bytes)
    return b"GET /api/v1/pods/a/%C2%9B HTTP/1.1\r\nHost: x\r\n\r\n"


def a_page_that_fails(patch: Patch) -> bytes:
    patch.setattr(api, "_json", raising(KeyError("x")))
    return b"GET /api/v1/plan HTTP/1.1\r\nHost: x\r\n\r\n"


def saved_objects_that_raise(patch: Patch) -> bytes:
    patch.setattr(manifests, "_check_amounts", raising(ValueError("x")))
    return b"table\nkind: Pod\nmetadata: {name: x}\n"


def a_message_with_control_characters(patch: Patch) -> bytes:
    patch.setattr(output, "clean", str)
    return f"table\nkind: {json.dumps(EVIL)}\nmetadata: {{name: x}}\n".encode()


def a_command_that_prints_control_characters(patch: Patch) -> bytes:
    patch.setattr(output, "clean", str)
    texts = ("namespace", "name", "queue", "phase", "verdict", "reason", "message")
    gang = {**dict.fromkeys(texts, "\x9b31m"), "members": 1, "min_member": 1, "share": 0.5}
    return gangs([{**gang, "placements": {}, "pipelined": {}}])


def a_command_that_raises(patch: Patch) -> bytes:
    patch.setattr("extender.cli.schema.get_document", raising(TypeError("x")))
    return gangs([])


def a_setting_that_is_quoted_as_it_is(patch: Patch) -> bytes:
    def address(text: str, flag: str) -> tuple[str, int]:
        raise InvalidConfiguration(f"{flag} {text} is not HOST:PORT")

    patch.setattr(output, "clean", str)
    patch.setattr(settings, "address", address)
    return json.dumps({"command": "serve", "text": "\x9b31m"}).encode()


def a_doctor_that_raises_at_a_cluster(patch: Patch) -> bytes:
    patch.setattr(ApiReader, "text", raising(LookupError("x")))
    return b'{"command": "doctor of"}'


def gangs(found: list[Any]) -> bytes:
    plan: dict[str, Any] = {key: [] for key in ("queues", "shares", "evictions", "held")}
    plan |= {"generation": 1, "idle": {}, "binds": {}, "gangs": found}
    return json.dumps({"command": "gangs", "response": plan}).encode()


def a_handshake_that_leaves_something_behind(patch: Patch) -> bytes:
    right = HttpConnection.connection_lost

    def lost(self: Any, exc: Exception | None) -> None:
        right(self, exc)
        raise KeyError("x")

    patch.setattr(HttpConnection, "connection_lost", lost)
    return b'{"at": "call", "from": 9, "drop": 1, "put": "00", "cut": 0}'


def a_call_that_is_forged(patch: Patch) -> bytes:
    def plain(self: HttpServer, name: str, loop: Any, metrics: Any, limits: Any, tls: Any) -> None:
        right(self, name, loop, metrics, limits, None)

    right = HttpServer.__init__
    patch.setattr(HttpServer, "__init__", plain)
    put = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".hex()
    return json.dumps({"at": "raw", "from": 0, "drop": 0, "put": put, "cut": 0}).encode()


def a_forged_call_that_is_answered(patch: Patch) -> bytes:
    def send(caller: Any, data: bytes, given: dict[str, Any]) -> bool:
        caller.sendall(data)
        return False

    patch.setattr(handshakes, "_send_changed", send)
    return b'{"at": "call", "from": 9, "drop": 1, "put": "00", "cut": 0}'


def a_name_check_that_admits_everyone(patch: Patch) -> bytes:
    patch.setattr(ClientNames, "check", lambda self, certificate: None)
    return b'{"at": "another", "from": 0, "drop": 0, "put": "", "cut": 0}'


def a_port_that_asks_for_no_certificate(patch: Patch) -> bytes:
    right = server.build

    def build(*arguments: Any) -> ssl.SSLContext:
        context = right(*arguments)
        context.verify_mode = ssl.CERT_NONE
        return context

    patch.setattr(server, "build", build)
    return b'{"at": "unnamed", "from": 0, "drop": 0, "put": "", "cut": 0}'


def a_scenario_that_raises(patch: Patch) -> bytes:
    patch.setattr(scenario, "_size", raising(ZeroDivisionError()))
    return Scenarios().real()[0]


def a_scenario_that_is_quoted_as_it_is(patch: Patch) -> bytes:
    patch.setattr(output, "clean", str)
    return b'"\\e[2J": 1\n'


def a_recording_that_raises(patch: Patch) -> bytes:
    patch.setattr(replay, "_replay_cycle", raising(KeyError("x")))
    return Recordings().real()[0]


def a_recording_that_is_unpacked_whole(patch: Patch) -> bytes:
    patch.setattr(
        recording, "_decompress", lambda unpacking, content, at: unpacking.decompress(content)
    )
    packing = zlib.compressobj()
    bomb = [packing.compress(bytes(1 << 20)) for _ in range((bounds.MOST_BYTES >> 20) + 64)]
    return b"bytes\n" + BEGINNING + frame(b"".join([*bomb, packing.flush()]))


#: Edge -> planted faults with the expected message.
FAULTS = {
    "quantities": {
        an_amount_that_is_another: "an amount is not what was read",
        a_refusal_without_an_end: "far too long",
    },
    "policy": {
        a_policy_that_raises: "does not say what is wrong",
        a_bad_file_that_changes_the_policy: "changed the policy",
    },
    "watch": {
        a_decoder_that_raises: "KeyError is raised",
        an_event_that_is_lost_when_it_is_cut: "differ when the input is cut",
        a_cache_that_fails: "RecursionError is raised",
    },
    "hooks": {
        a_hook_that_fails: "the hook fails",
        an_error_with_control_characters: "steers the terminal by U+001B",
        a_bind_that_is_answered_twice: "answered twice",
    },
    "hook-port": {
        a_reader_that_counts_incorrectly: "differs when the input is cut",
        a_disconnected_caller_that_is_not_noticed: "still waits",
        a_connection_that_is_never_forgotten: "still counted",
        an_error_that_is_no_json: "ProtocolError is raised",
        a_call_that_only_we_accept: "another parser does not see",
        a_coding_that_only_we_read: "another parser does not see",
    },
    "page-port": {
        a_page_with_control_characters: "steers the terminal by U+009B",
        a_page_that_fails: "a page fails",
        a_connection_that_is_never_forgotten: "still counted",
    },
    "plan": {
        saved_objects_that_raise: "ValueError is raised",
        a_message_with_control_characters: "steers the terminal by U+001B",
    },
    "terminal": {
        a_command_that_prints_control_characters: "steers the terminal by U+009B",
        a_command_that_raises: "TypeError is raised",
        a_setting_that_is_quoted_as_it_is: "steers the terminal by U+009B",
        a_doctor_that_raises_at_a_cluster: "LookupError is raised",
    },
    "scenario": {
        a_scenario_that_raises: "ZeroDivisionError is raised",
        a_scenario_that_is_quoted_as_it_is: "steers the terminal by U+001B",
    },
    "recording": {
        a_recording_that_raises: "KeyError is raised",
        a_recording_that_is_unpacked_whole: "too much memory",
    },
    "handshakes": {
        a_handshake_that_leaves_something_behind: "KeyError",
        a_call_that_is_forged: "without TLS",
        a_forged_call_that_is_answered: "a forged call is answered",
        a_name_check_that_admits_everyone: "an untrusted client is answered",
        a_port_that_asks_for_no_certificate: "an untrusted client is answered",
    },
}
#: Faults to plant before the edge is made.
WITHIN = (a_call_that_is_forged, a_port_that_asks_for_no_certificate)


def test_every_edge_has_faults() -> None:
    assert {*FAULTS} == {*EDGES}


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name, faults in FAULTS.items() for fault in faults],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_planted_fault_is_detected(
    name: str, fault: Callable[[Patch], bytes], monkeypatch: Patch
) -> None:
    with ExitStack() as stack:
        if fault in WITHIN:
            data = fault(monkeypatch)
        edge = stack.enter_context(new(name))
        if fault not in WITHIN:
            data = fault(monkeypatch)
        objection = judged(edge, data, stack.enter_context(ErrorLog()))
        monkeypatch.undo()

    assert FAULTS[name][fault] in objection


def test_hanging_input_is_interrupted() -> None:
    def hang() -> None:
        while True:
            with suppress(Exception):
                sum(range(1000))

    with pytest.raises(Objection, match="too long"), bounded(seconds=0.05):
        hang()


def test_use_of_too_much_memory_is_detected() -> None:
    # Twice: memory of the first run must not hide the second.
    for _ in range(2):
        with pytest.raises(Objection, match="too much memory"), bounded(size=1 << 20):
            bytearray(64 << 20)


def test_traceback_in_the_event_loop_is_detected() -> None:
    async def scene() -> None:
        asyncio.get_running_loop().call_soon(raising(KeyError("x")))
        await asyncio.sleep(0)

    with ErrorLog() as errors:
        asyncio.run(scene())
        with pytest.raises(Objection, match="KeyError"):
            errors.check()


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\r", "\x00", "\u202e", "\u2066", "\u2028"])
def test_control_characters_are_detected(sign: str) -> None:
    with pytest.raises(Objection, match="steers"):
        must_be_text(f"a{sign}b", "it")


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 5000, "Traceback (most recent call last):"])
def test_text_that_is_no_message_is_detected(text: str) -> None:
    with pytest.raises(Objection):
        must_be_sentence(text, "it")


def test_ordinary_text_passes() -> None:
    must_be_text("größer als ½\n研究 👩\u200d🔬", "it")
    must_be_sentence(msgspec.json.encode({"a": 1}).decode(), "it")
