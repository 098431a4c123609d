"""TLS handshakes: a malformed one is not answered, and later calls are."""

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

#: Clients that are never answered: without a certificate, with one of another CA, with one of the
#: right CA for another name.
UNTRUSTED = ("unnamed", "foreign", "another")
#: Where bytes are changed: instead of the client hello, in it, in the certificate and its proof, in
#: the call; the same in the call of an untrusted client.
_PLACES = ("raw", "hello", "proof", "call", *UNTRUSTED)
_RECORDS = (20, 21, 22, 23, 24, 0, 128, 255)
_WAIT_S = 20.0


class Handshakes(Edge):
    """Input: JSON with a place, the bytes to put there, and how many they replace."""

    name = "handshakes"
    count = 120
    suffix = ".json"
    longest = 40_000

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._wallet = Wallet(Path(self._folder.name))
        certificates = PortCertificates("hooks", self._wallet.files, ClientNames([NAME]))
        self._world = World(certificates=certificates, new_loop=uvloop.new_event_loop).__enter__()
        self._world.node("node-0")
        self._question = request(question(self._world))
        self._context = self._wallet.kube_scheduler()
        self._contexts = dict(zip(UNTRUSTED, self._untrusted(), strict=True))
        return self

    def _untrusted(self) -> Iterator[ssl.SSLContext]:
        yield self._wallet.client()
        others = Wallet(Path(self._folder.name) / "others").authority
        yield self._wallet.client(others.for_client(NAME, days=5))
        yield self._wallet.client(self._wallet.authority.for_client("system:node:a", days=5))

    def __exit__(self, *error: object) -> None:
        self._world.__exit__(*error)
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        plain = self._question.hex()
        changes = [_input(place, 9, 3, "00ff") for place in _PLACES]
        untrusted = [_input(client, 0, 0, "") for client in UNTRUSTED]
        return [*changes, *untrusted, _input("raw", 0, 0, plain), _input("hello", 0, 0, "")]

    def made(self, rng: Random) -> bytes:
        place = rng.choice(_PLACES)
        put = rng.choice((b"", rng.randbytes(rng.choice((1, 2, 8, 300))), _record(rng)))
        at = rng.choice((0, 1, 3, 5, 6, 9, 11, 43, 44, 76, rng.randrange(2500)))
        drop = rng.choice((0, 0, 1, 2, 4, rng.randrange(3000)))
        if place == "raw":
            put = mutated(put, rng)
        return _input(place, at, drop, put.hex(), rng.choice((0, 0, 1, 7)))

    def judge(self, data: bytes) -> None:
        given = _read(data)
        with closing(socket.create_connection(("127.0.0.1", self._world.hook_port))) as caller:
            caller.settimeout(_WAIT_S)
            client = Client(self._contexts.get(given["at"], self._context))
            is_unchanged = False
            received = b""
            with suppress(OSError):  # a refused connection fails in many ways
                is_unchanged = self._send(caller, client, given)
                received = _receive_all(caller)
            answer = client.decrypt(received)
            must(b"HTTP/1" not in received, "a call is answered without TLS")
            is_trusted = given["at"] not in UNTRUSTED
            must(is_trusted or b"HTTP/1" not in answer, "an untrusted client is answered")
            must(is_unchanged or b"NodeNames" not in answer, "a forged call is answered")
        with closing(Wire(self._world.hook_port, self._context)) as good:
            good.send(self._question)
            must(b'"NodeNames":["node-0"]' in good.read(b"}"), "the next good call is not answered")
        eventually(lambda: not self._world.port.connections)
        # After this the event loop has handled the last disconnect.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._world.loop).result(10)

    def _send(self, caller: socket.socket, client: Client, given: dict[str, Any]) -> bool:
        """Send the input; return whether it equals a call of kube-scheduler."""
        if given["at"] == "raw":
            _send_cut(caller, given["put"], given["cut"])
            return False
        hello = client.hello()
        if given["at"] == "hello":
            return _send_changed(caller, hello, given)
        caller.sendall(hello)
        while not client.do_handshake():
            received = caller.recv(65536)
            must(received, "a good handshake is aborted")
            client.incoming.write(received)
        if given["at"] == "proof":
            return _send_changed(caller, client.outgoing.read(), given)
        client.tls.write(self._question)
        is_unchanged = _send_changed(caller, client.outgoing.read(), given)
        return is_unchanged and given["at"] not in UNTRUSTED


class Client:
    """The client side of TLS, without a socket."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        """Return the client hello."""
        self.do_handshake()
        return self.outgoing.read()

    def do_handshake(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def decrypt(self, received: bytes) -> bytes:
        """Return the content of the *received* records."""
        self.incoming.write(received)
        content = b""
        with suppress(ssl.SSLError):
            while piece := self.tls.read(65536):
                content += piece
        return content


def _input(place: str, at: int, drop: int, put: str, cut: int = 0) -> bytes:
    fields = {"at": place, "from": at, "drop": drop, "put": put, "cut": cut}
    return json.dumps(fields).encode()


def _read(data: bytes) -> dict[str, Any]:
    usual: dict[str, Any] = {"at": "raw", "from": 0, "drop": 0, "put": data[:9000], "cut": 0}
    try:
        given = json.loads(data)
        assert given["at"] in _PLACES
        numbers = {key: min(9000, max(0, int(given[key]))) for key in ("from", "drop", "cut")}
        return {"at": given["at"], "put": bytes.fromhex(given["put"]), **numbers}
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError, OverflowError):
        return usual


def _send_changed(caller: socket.socket, data: bytes, given: dict[str, Any]) -> bool:
    at = given["from"]
    changed = data[:at] + given["put"] + data[at + given["drop"] :]
    _send_cut(caller, changed, given["cut"])
    return changed.startswith(data)


def _send_cut(caller: socket.socket, data: bytes, cut: int) -> None:
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)][:300] if cut else [data]
    for piece in pieces:
        caller.sendall(piece)


def _record(rng: Random) -> bytes:
    """Return a TLS record, complete or not."""
    content = rng.randbytes(rng.choice((0, 1, 2, 60, 2000)))
    size = len(content) + rng.choice((0, 0, 0, 1, -1, 60000))
    version = rng.choice((b"\x03\x01", b"\x03\x03", b"\x03\x04", b"\x02\x00", b"\xff\xff"))
    return bytes([rng.choice(_RECORDS)]) + version + (size % 65536).to_bytes(2, "big") + content


def _receive_all(caller: socket.socket) -> bytes:
    """Send no more, and receive everything, also what came before an abort."""
    received = b""
    with suppress(OSError):
        caller.shutdown(socket.SHUT_WR)
        while piece := caller.recv(65536):
            received += piece
    return received
