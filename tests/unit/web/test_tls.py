"""The hook port over TLS: accepted and refused clients, and certificates that change."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import uvloop

from extender.hooks.server import LIMITS
from extender.tls.issue import Authority, Pair
from extender.tls.server import ClientNames, PortCertificates
from tests.certificates import HOSTS, NAME, Wallet, below, days_ago
from tests.unit.web.conftest import World, eventually
from tests.unit.web.wire import BOUND, Wire, bind, question, request, send_waiting_bind

#: The kernel hands over silent connections at once.
AT_ONCE = replace(LIMITS, defer_accept_s=0)
CALLERS, CHANGES = 3, 5


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path)


@pytest.fixture
def certificates(wallet: Wallet) -> PortCertificates:
    return PortCertificates("hooks", wallet.files, ClientNames([NAME]))


@pytest.fixture
def world(certificates: PortCertificates, request: pytest.FixtureRequest) -> Iterator[World]:
    new_loop = getattr(request, "param", uvloop.new_event_loop)
    with World(certificates=certificates, new_loop=new_loop) as made:
        made.node("node-0")
        yield made


def metric(world: World, name: str) -> float:
    text = world.runtime.pages.test_client().get("/metrics").text
    found = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[1]) if found else 0.0


def refused(world: World, reason: str) -> float:
    return metric(world, f'gang_extender_tls_refused_total{{reason="{reason}"}}')


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_accepted_with_http_1_only(
    world: World, wallet: Wallet, version: ssl.TLSVersion
) -> None:
    context = wallet.kube_scheduler()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])

    with closing(Wire(world.hook_port, context)) as wire:
        assert wire.socket.selected_alpn_protocol() == "http/1.1"  # type: ignore[attr-defined]
        for _ in range(3):
            wire.send(request(question(world)))
            assert b'"NodeNames":["node-0"]' in wire.read(b"}")


def is_refused(world: World, context: ssl.SSLContext) -> bool:
    """Send a request that must be refused; with TLS 1.3 the client learns of it when it reads."""
    try:
        with closing(Wire(world.hook_port, context)) as wire:
            wire.send(request(question(world)))
            return wire.is_closed()
    except (ssl.SSLError, ConnectionError):
        return True


Bad = Callable[[Wallet], Pair | None]


@pytest.mark.parametrize(
    ("caller", "reason"),
    [
        pytest.param(lambda w: None, "no_certificate", id="none"),
        pytest.param(
            lambda w: Authority.new("our CA", 9).for_client(NAME, 5), "unknown_ca", id="other CA"
        ),
        pytest.param(
            lambda w: w.authority.for_client(NAME, 1, days_ago(3)), "expired", id="expired"
        ),
        pytest.param(
            lambda w: w.authority.for_client(NAME, 9, days_ago(-3)), "not_yet_valid", id="early"
        ),
        pytest.param(lambda w: w.authority.for_client("system:node:a", 5), "name", id="wrong name"),
        pytest.param(
            lambda w: w.authority.for_server([NAME.replace(":", "."), "x"], 5),
            "bad_certificate",
            id="a server's",
        ),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_valid_certificate_is_refused_and_counted(
    world: World, wallet: Wallet, caller: Bad, reason: str, version: ssl.TLSVersion
) -> None:
    context = wallet.client(caller(wallet))
    context.maximum_version = version
    asked = 'gang_extender_hook_seconds_count{verb="filter"}'
    before = metric(world, asked)

    assert is_refused(world, context)

    eventually(lambda: refused(world, reason) == 1)
    assert len(world.port.connections) == 0
    assert metric(world, asked) == before


def test_plain_http_is_refused(world: World) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(question(world)))
        assert wire.is_closed()

    assert refused(world, "not_tls") == 1


@pytest.mark.filterwarnings("ignore:.*TLSv1_1:DeprecationWarning")
@pytest.mark.parametrize(
    ("version", "ciphers"),
    [
        (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256"),  # CBC mode with a separate MAC
    ],
    ids=["old version", "weak cipher"],
)
def test_old_versions_and_ciphers_without_authenticated_encryption_are_refused(
    world: World, wallet: Wallet, version: ssl.TLSVersion, ciphers: str
) -> None:
    context = wallet.kube_scheduler()
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version

    assert is_refused(world, context)


def test_an_intermediate_authority_may_be_trusted_alone(
    world: World, wallet: Wallet, certificates: PortCertificates
) -> None:
    middle = below(wallet.authority, "in the middle")
    caller = middle.for_client(NAME, days=5)

    wallet.write("ca.crt", middle.pair.certificate)
    look(world, certificates)

    with closing(Wire(world.hook_port, wallet.client(caller))) as wire:
        wire.send(request(question(world)))
        assert b"200 OK" in wire.read(b"}")


@pytest.mark.parametrize("orderly", [True, False], ids=["close_notify", "reset"])
def test_a_disconnected_client_ends_its_waiting_bind(
    world: World, wallet: Wallet, orderly: bool
) -> None:
    wire = Wire(world.hook_port, wallet.kube_scheduler())
    send_waiting_bind(world, wire, node=False)

    if orderly:
        wire.socket.unwrap()  # type: ignore[attr-defined]
    else:
        wire.close()

    eventually(lambda: world.runtime.core.permit.waiting_binds == 0)
    assert len(world.port.connections) == 0
    wire.close()


def test_a_client_that_does_not_close_its_side_does_not_keep_a_connection_open(
    world: World, wallet: Wallet
) -> None:
    with closing(Wire(world.hook_port, wallet.kube_scheduler())) as wire:
        wire.send(request(question(world)))
        wire.read(b"}")

        world.wait_for(world.port.close(grace_s=0.1))

        # Below TLS, so that the client answers nothing.
        with socket.socket(fileno=os.dup(wire.socket.fileno())) as tcp:
            tcp.settimeout(5)
            with suppress(ConnectionError):
                while tcp.recv(4096):
                    pass


def test_a_client_that_does_not_trust_the_server_is_counted(world: World, wallet: Wallet) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Wire(world.hook_port, wallet.client(trusts=Authority.new("another", 5)))

    eventually(lambda: refused(world, "caller_refused_us") == 1)


def test_a_client_that_never_finishes_its_handshake_is_disconnected(
    certificates: PortCertificates,
) -> None:
    limits = replace(AT_ONCE, handshake_s=0.1)
    with (
        World(certificates=certificates, new_loop=uvloop.new_event_loop, limits=limits) as world,
        closing(Wire(world.hook_port)) as wire,
    ):
        assert wire.is_closed()


def test_the_number_of_handshakes_is_limited_and_the_newest_stay(
    wallet: Wallet, certificates: PortCertificates
) -> None:
    full = 'gang_extender_calls_refused_total{port="hooks",reason="full"}'
    limits = replace(AT_ONCE, handshakes=4)
    with (
        World(certificates=certificates, new_loop=uvloop.new_event_loop, limits=limits) as world,
        ExitStack() as clients,
    ):
        world.node("node-0")
        silent = [clients.enter_context(closing(Wire(world.hook_port))) for _ in range(7)]
        assert all(wire.is_closed() for wire in silent[:3])

        with closing(Wire(world.hook_port, wallet.kube_scheduler())) as wire:
            wire.send(request(question(world)))
            assert b"200 OK" in wire.read(b"}")

        assert silent[3].is_closed()
        assert metric(world, full) == 4
        for wire in silent[4:]:
            wire.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                wire.is_closed()


def test_a_port_without_file_descriptors_accepts_again_when_there_are_some(
    world: World, wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter(range(3))
    accept = socket.socket.accept

    def scarce(listening: socket.socket) -> tuple[socket.socket, object]:
        if next(tries, None) is not None:
            raise OSError(errno.EMFILE, "too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    with closing(Wire(world.hook_port, wallet.kube_scheduler())) as wire:
        wire.send(request(question(world)))
        assert b"200 OK" in wire.read(b"}")
    assert next(tries, None) is None


def test_a_session_cannot_be_resumed_without_the_certificate(world: World, wallet: Wallet) -> None:
    context = wallet.kube_scheduler()
    with closing(Wire(world.hook_port, context)) as wire:
        wire.send(request(question(world)))
        wire.read(b"}")
        assert not wire.socket.session.has_ticket  # type: ignore[attr-defined]


def look(world: World, certificates: PortCertificates) -> None:
    """Let the loop reload the files, as it does every few seconds."""

    async def looking() -> bool:
        return certificates.reload()

    assert not asyncio.run_coroutine_threadsafe(looking(), world.loop).result(10)


def shown(world: World, context: ssl.SSLContext) -> datetime:
    """Return the expiry time of the certificate that new connections see."""
    with (
        socket.create_connection(("127.0.0.1", world.hook_port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wire,
    ):
        told = wire.getpeercert()
    assert told is not None
    return datetime.strptime(str(told["notAfter"]), "%b %d %H:%M:%S %Y %Z")


def test_a_waiting_bind_survives_new_certificates_and_a_new_authority(
    world: World, wallet: Wallet, certificates: PortCertificates
) -> None:
    first = Wire(world.hook_port, wallet.kube_scheduler())
    send_waiting_bind(world, first, node=False)
    after = Authority.new("the next CA", days=30)
    wallet.show(after.for_server(HOSTS, days=10))
    wallet.write("ca.crt", after.pair.certificate)

    look(world, certificates)
    pod = world.pod("train-1", "train")
    second = Wire(world.hook_port, wallet.client(after.for_client(NAME, days=5), trusts=after))
    second.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    second.read(b"}")
    second.send(bind(pod))

    assert second.read(b"}").endswith(BOUND)
    assert first.read(b"}").endswith(BOUND)
    first.close()
    second.close()


def test_a_removed_authority_is_not_trusted_for_new_connections(
    world: World, wallet: Wallet, certificates: PortCertificates
) -> None:
    scheduler = wallet.kube_scheduler()
    with closing(Wire(world.hook_port, scheduler)) as before:
        after = Authority.new("the next CA", days=30)
        wallet.write("ca.crt", after.pair.certificate)
        look(world, certificates)

        # From another thread: otherwise the error of this connection would surface at the next
        # read of the other one (docs/internals/hooks.md).
        with ThreadPoolExecutor(1) as elsewhere:
            assert elsewhere.submit(is_refused, world, scheduler).result()
        eventually(lambda: refused(world, "unknown_ca") == 1)
        before.send(request(question(world)))
        assert b"200 OK" in before.read(b"}")


def test_a_half_written_pair_keeps_the_old_one_and_is_reported(
    world: World, wallet: Wallet, certificates: PortCertificates
) -> None:
    scheduler = wallet.kube_scheduler()
    pair = wallet.authority.for_server(HOSTS, days=25)
    before = shown(world, scheduler)
    refusals = 'gang_extender_certificate_refused{port="hooks"}'
    expiry = 'gang_extender_certificate_expiry_seconds{setting="tls-cert-file"}'
    ends = metric(world, expiry)

    wallet.write("tls.crt", pair.certificate)
    look(world, certificates)
    assert shown(world, scheduler) == before
    assert metric(world, refusals) == 1
    ready = world.runtime.pages.test_client().get("/readyz")
    assert (ready.status_code, "does not belong to the cert" in ready.text) == (200, True)

    wallet.write("tls.key", pair.key)
    look(world, certificates)
    assert shown(world, scheduler) > before
    assert metric(world, refusals) == 0
    assert metric(world, expiry) > ends
    assert "certificate" not in world.runtime.pages.test_client().get("/readyz").text


def test_the_loop_reloads_the_files_by_itself(
    wallet: Wallet,
) -> None:
    certificates = PortCertificates("hooks", wallet.files, ClientNames([NAME]), reload_s=0.05)
    with World(certificates=certificates, new_loop=uvloop.new_event_loop):
        before = certificates.in_force()
        wallet.show(wallet.authority.for_server(HOSTS, days=25))
        eventually(lambda: certificates.in_force() is not before)


def test_certificates_rotate_under_load_without_a_failed_call(
    world: World, wallet: Wallet, certificates: PortCertificates
) -> None:
    """Each client reconnects for every third call; half-written files appear all the time."""
    asked = request(question(world))
    is_over = threading.Event()
    answers: list[bytes] = []

    def ask(context: ssl.SSLContext) -> None:
        while not is_over.is_set():
            with closing(Wire(world.hook_port, context)) as wire:
                for _ in range(3):
                    wire.send(asked)
                    answers.append(wire.read(b"}"))

    with ThreadPoolExecutor(CALLERS) as pool:
        asking = [pool.submit(ask, wallet.kube_scheduler()) for _ in range(CALLERS)]
        try:
            for _ in range(CHANGES):
                before = len(answers)
                pair = wallet.authority.for_server(HOSTS, days=25)
                wallet.write("tls.crt", pair.certificate[:100])
                look(world, certificates)
                wallet.show(pair)
                look(world, certificates)
                eventually(lambda before=before: len(answers) > before + 3 * CALLERS)
        finally:
            is_over.set()
        for each in asking:
            each.result()

    assert all(each.startswith(b"HTTP/1.1 200 OK") for each in answers)
    assert metric(world, 'gang_extender_certificate_refused{port="hooks"}') == 0


# Refused and broken connections do not affect other connections of the same event loop. OpenSSL
# keeps one error queue per thread, and the next call in that thread may take an old error for its
# own (docs/tls.md). All connections of the hook port share one thread.

#: Close with a reset, so that a later write of the server fails.
RESET = struct.pack("ii", 1, 0)
MANY = 8


def reset(wire: Wire) -> None:
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    os.close(wire.socket.detach())


def is_not_allowed(world: World, wallet: Wallet) -> None:
    broken = Authority.new("another", 9).for_client(NAME, 5)
    assert is_refused(world, wallet.client(broken))
    assert is_refused(world, wallet.client(None))


def sends_plain_text(world: World, wallet: Wallet) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(question(world)))
        assert wire.is_closed()


def breaks_off_in_the_handshake(world: World, wallet: Wallet) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = wallet.kube_scheduler().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    wire = Wire(world.hook_port)
    wire.send(outgoing.read())
    reset(wire)


def breaks_off_in_a_call(world: World, wallet: Wallet) -> None:
    wire = Wire(world.hook_port, wallet.kube_scheduler())
    wire.send(request(question(world))[:-5])
    reset(wire)


def breaks_off_before_the_answer(world: World, wallet: Wallet) -> None:
    wire = Wire(world.hook_port, wallet.kube_scheduler())
    # After so many requests at once the connection may be aborted before the last is sent.
    with suppress(OSError):
        for _ in range(MANY):
            wire.send(request(question(world)))
    reset(wire)


@pytest.mark.parametrize(
    "world",
    [uvloop.new_event_loop, asyncio.new_event_loop],
    ids=["uvloop", "asyncio"],
    indirect=True,
)
@pytest.mark.parametrize(
    "spoil",
    [
        is_not_allowed,
        sends_plain_text,
        breaks_off_in_the_handshake,
        breaks_off_in_a_call,
        breaks_off_before_the_answer,
    ],
    ids=lambda it: it.__name__,
)
def test_other_calls_and_a_waiting_bind_are_answered_after_a_broken_connection(
    world: World, wallet: Wallet, spoil: Callable[[World, Wallet], None]
) -> None:
    calls = Wire(world.hook_port, wallet.kube_scheduler())
    waiting = Wire(world.hook_port, wallet.kube_scheduler())
    with closing(calls), closing(waiting):
        send_waiting_bind(world, waiting, node=False)
        for _ in range(MANY):
            # From another thread: in this one the test's own connections would be affected.
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(spoil, world, wallet).result()
            calls.send(request(question(world)))
            assert b"200 OK" in calls.read(b"}")
        eventually(lambda: len(world.port.connections) == 2)

        pod = world.pod("train-1", "train")
        calls.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
        assert b"200 OK" in calls.read(b"}")
        calls.send(bind(pod))
        assert calls.read(b"}").endswith(BOUND)
        assert waiting.read(b"}").endswith(BOUND)
