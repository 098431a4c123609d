"""TLS handshakes: whatever somebody says in one, others are heard, and he is not."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Self

import uvloop

from extender.tls.server import ClientNames, PortCertificates
from tests.certificates import NAME, Wallet
from tests.nightly.fuzz.edge import Edge, must
from tests.nightly.fuzz.mutations import mutated
from tests.unit.web.conftest import World, eventually
from tests.unit.web.wire import Wire, question, request

#: Those who may not call, whatever they say: without a certificate, with one of a CA that is not
#: ours, with one of ours by another name.
STRANGERS = ("unnamed", "foreign", "another")
#: Where something else is said than should be: instead of the first words, in them, in the proof
#: of who one is, in the call behind it; and there by strangers.
_PLACES = ("raw", "hello", "proof", "call", *STRANGERS)
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
        shown = PortCertificates("hooks", self._wallet.files, ClientNames([NAME]))
        self._world = World(certificates=shown, new_loop=uvloop.new_event_loop).__enter__()
        self._world.node("node-0")
        self._question = request(question(self._world))
        self._context = self._wallet.kube_scheduler()
        self._theirs = dict(zip(STRANGERS, self._strangers(), strict=True))
        return self

    def _strangers(self) -> Iterator[ssl.SSLContext]:
        yield self._wallet.client()
        others = Wallet(Path(self._folder.name) / "others").authority
        yield self._wallet.client(others.for_client(NAME, days=5))
        yield self._wallet.client(self._wallet.authority.for_client("system:node:a", days=5))

    def __exit__(self, *error: object) -> None:
        self._world.__exit__(*error)
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        plain = self._question.hex()
        spoilt = [_said(place, 9, 3, "00ff") for place in _PLACES]
        strange = [_said(stranger, 0, 0, "") for stranger in STRANGERS]
        return [*spoilt, *strange, _said("raw", 0, 0, plain), _said("hello", 0, 0, "")]

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
            talk = Talk(self._theirs.get(given["at"], self._context))
            is_real = False
            answer = b""
            with suppress(OSError):  # who is put out hears that in many ways
                is_real = self._speak(caller, talk, given)
                answer = _heard(caller)
            said = talk.read(answer)
            must(b"HTTP/1" not in answer, "somebody is answered without TLS")
            must(given["at"] not in STRANGERS or b"HTTP/1" not in said, "a stranger is answered")
            must(is_real or b"NodeNames" not in said, "a call that was forged is answered")
        with closing(Wire(self._world.hook_port, self._context)) as good:
            good.send(self._question)
            must(b'"NodeNames":["node-0"]' in good.read(b"}"), "the next good call is not answered")
        eventually(lambda: not self._world.port.connections)
        # What the loop was at when the last one left is done when it answers.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._world.loop).result(10)

    def _speak(self, caller: socket.socket, talk: Talk, given: dict[str, Any]) -> bool:
        """Speak as was said; tell whether it is what kube-scheduler would have said."""
        if given["at"] == "raw":
            _send(caller, given["put"], given["cut"])
            return False
        hello = talk.begin()
        if given["at"] == "hello":
            return _say(caller, hello, given)
        caller.sendall(hello)
        while not talk.agrees():
            heard = caller.recv(65536)
            must(heard, "a good handshake is broken off")
            talk.incoming.write(heard)
        if given["at"] == "proof":
            return _say(caller, talk.outgoing.read(), given)
        talk.tls.write(self._question)
        return _say(caller, talk.outgoing.read(), given) and given["at"] not in STRANGERS


class Talk:
    """One caller's side of TLS, who sends and hears by hand."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def begin(self) -> bytes:
        """Give the first words."""
        self.agrees()
        return self.outgoing.read()

    def agrees(self) -> bool:
        """Go on with the handshake; tell whether it is over."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self, answer: bytes) -> bytes:
        """Give what was said in *answer*: on the way nobody can read it, nor we."""
        self.incoming.write(answer)
        said = b""
        with suppress(ssl.SSLError):
            while piece := self.tls.read(65536):
                said += piece
        return said


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


def _heard(caller: socket.socket) -> bytes:
    """Say no more, and hear all there is; what came before somebody was put out counts too."""
    got = b""
    with suppress(OSError):
        caller.shutdown(socket.SHUT_WR)
        while piece := caller.recv(65536):
            got += piece
    return got
