"""TLS handshakes: whatever somebody says in one, others are heard, and he is not."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Self

import uvloop

from extender.tls.guard import Guard
from extender.tls.rotation import Certificates
from tests.fuzz.edge import Edge, must
from tests.fuzz.mutations import mutated
from tests.tls.wallet import NAME, Wallet
from tests.web.conftest import World, eventually
from tests.web.test_hookport import Wire, question, request

#: Where something else is said than should be: instead of the first words, in them, in the proof
#: of who one is, in the call behind it.
_PLACES = ("raw", "hello", "proof", "call")
_RECORDS = (20, 21, 22, 23, 24, 0, 128, 255)
_WAIT_S = 20.0


class Handshakes(Edge):
    """Input: JSON that says where, and which bytes are put there in place of how many."""

    name = "handshakes"
    count = 120
    suffix = ".json"
    longest = 40_000

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._wallet = Wallet(Path(self._folder.name))
        shown = Certificates("hooks", self._wallet.files, Guard([NAME]))
        self._world = World(certificates=shown, new_loop=uvloop.new_event_loop).__enter__()
        self._world.node("node-0")
        self._question = request(question(self._world))
        self._context = self._wallet.kube_scheduler()
        return self

    def __exit__(self, *error: object) -> None:
        self._world.__exit__(*error)
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        plain = self._question.hex()
        spoilt = [_said(place, 9, 3, "00ff") for place in _PLACES]
        return [*spoilt, _said("raw", 0, 0, plain), _said("hello", 0, 0, "")]

    def made(self, chance: Random) -> bytes:
        place = chance.choice(_PLACES)
        put = chance.choice((b"", chance.randbytes(chance.choice((1, 2, 8, 300))), _record(chance)))
        at = chance.choice((0, 1, 3, 5, 6, 9, 11, 43, 44, 76, chance.randrange(2500)))
        drop = chance.choice((0, 0, 1, 2, 4, chance.randrange(3000)))
        if place == "raw":
            put = mutated(put, chance)
        return _said(place, at, drop, put.hex(), chance.choice((0, 0, 1, 7)))

    def judge(self, data: bytes) -> None:
        given = _read(data)
        with closing(socket.create_connection(("127.0.0.1", self._world.hook_port))) as caller:
            caller.settimeout(_WAIT_S)
            with suppress(OSError):  # who is put out hears that in many ways
                is_real = self._speak(caller, given)
                caller.shutdown(socket.SHUT_WR)
                answer = _all_of(caller)
                must(b"HTTP/1" not in answer, "somebody is answered without TLS")
                must(is_real or b"NodeNames" not in answer, "a call that was forged is answered")
        with closing(Wire(self._world.hook_port, self._context)) as good:
            good.send(self._question)
            must(b'"NodeNames":["node-0"]' in good.read(b"}"), "the next good call is not answered")
        eventually(lambda: not self._world.port.connections)
        # What the loop was at when the last one left is done when it answers.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._world.loop).result(10)

    def _speak(self, caller: socket.socket, given: dict[str, Any]) -> bool:
        """Speak as was said; tell whether it is what kube-scheduler would have said."""
        if given["at"] == "raw":
            _send(caller, given["put"], given["cut"])
            return False
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        talk = self._context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            talk.do_handshake()
        hello = outgoing.read()
        if given["at"] == "hello":
            return _say(caller, hello, given)
        caller.sendall(hello)
        while True:
            try:
                talk.do_handshake()
                break
            except ssl.SSLWantReadError:
                heard = caller.recv(65536)
                must(heard, "a good handshake is broken off")
                incoming.write(heard)
        if given["at"] == "proof":
            return _say(caller, outgoing.read(), given)
        talk.write(self._question)
        return _say(caller, outgoing.read(), given)


def _said(place: str, at: int, drop: int, put: str, cut: int = 0) -> bytes:
    told = {"at": place, "from": at, "drop": drop, "put": put, "cut": cut}
    return json.dumps(told).encode()


def _read(data: bytes) -> dict[str, Any]:
    usual: dict[str, Any] = {"at": "raw", "from": 0, "drop": 0, "put": data[:9000], "cut": 0}
    try:
        given = json.loads(data)
        assert given["at"] in _PLACES
        numbers = {key: min(9000, max(0, int(given[key]))) for key in ("from", "drop", "cut")}
        return {"at": given["at"], "put": bytes.fromhex(given["put"]), **numbers}
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError, OverflowError):
        return usual


def _say(caller: socket.socket, words: bytes, given: dict[str, Any]) -> bool:
    at = given["from"]
    said = words[:at] + given["put"] + words[at + given["drop"] :]
    _send(caller, said, given["cut"])
    return said.startswith(words)


def _send(caller: socket.socket, words: bytes, cut: int) -> None:
    pieces = [words[at : at + cut] for at in range(0, len(words), cut)][:300] if cut else [words]
    for piece in pieces:
        caller.sendall(piece)


def _record(chance: Random) -> bytes:
    """Make a record of TLS, whole or not."""
    content = chance.randbytes(chance.choice((0, 1, 2, 60, 2000)))
    size = len(content) + chance.choice((0, 0, 0, 1, -1, 60000))
    version = chance.choice((b"\x03\x01", b"\x03\x03", b"\x03\x04", b"\x02\x00", b"\xff\xff"))
    return bytes([chance.choice(_RECORDS)]) + version + (size % 65536).to_bytes(2, "big") + content


def _all_of(caller: socket.socket) -> bytes:
    got = b""
    while piece := caller.recv(65536):
        got += piece
    return got
