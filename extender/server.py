"""gunicorn around one event loop: one process, because one process owns the truth.

The cache, the plan and the holds live in memory; a second worker would hold half of every gang.
gunicorn brings signals, logging and a restart should the worker die; the worker brings the loop in
which a held bind costs a callback instead of a thread. The operations port has another.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import platform
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import ceil
from typing import Any

import uvloop
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers import base

from extender import __version__
from extender.clock import SystemClock
from extender.hooks.server import HookServer
from extender.kube.live import live_cluster
from extender.logs import event
from extender.permit.timeouts import Timeouts
from extender.settings import Settings, address
from extender.tls import hook_secret
from extender.tls.server import PortCertificates, hook_certificates, operations_certificates
from extender.web.server import OperationsServer
from extender.wiring import Runtime

log = logging.getLogger(__name__)

#: How long the interpreter lets one thread run. With the default of 5 ms a filter call beside a
#: busy planning thread took 11 ms; with 0.2 ms it takes 1 ms.
SWITCH_INTERVAL_S = 0.0002
#: What an end takes at the most, besides bindings that were sent.
_END_S = 5
_NOTIFY_S = 1.0

_PR_SET_PDEATHSIG = 1

#: What makes gunicorn start another worker, or a whole second server, beside the one that acts.
_UNHEEDED = (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2)


def serve(settings: Settings) -> None:
    """Run until a signal ends us."""
    _Gunicorn(settings).run()


def stops_within_s(settings: Settings) -> int:
    """Say how long a stop may take: binds on their way finish, as long as anybody waits for them.

    Whoever ends us sooner leaves a gang bound in part that we were about to finish.
    """
    return ceil(settings.bind_timeout_s) + _END_S


class Application:
    """What one worker runs; its parts are there once it has started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hook_tls = hook_certificates(settings)
        self._ops_tls = operations_certificates(settings)
        self._parts: tuple[Runtime, HookServer, OperationsServer] | None = None

    async def start(self, listening: Sequence[Any]) -> None:
        """Put everything together and let both ports answer."""
        log_start(self._settings)
        loop = asyncio.get_running_loop()
        certificates = [each for each in (self._hook_tls, self._ops_tls) if each]
        runtime = _build(self._settings, loop, certificates)
        runtime.start()
        hook_tls, ops_tls = (
            each.context() if each else None for each in (self._hook_tls, self._ops_tls)
        )
        hooks = HookServer(
            runtime.hooks,
            runtime.pages.metrics,
            loop,
            hook_tls,
            secret=hook_secret.read(self._settings.hook_secret_file),
        )
        await hooks.listen(self._socket(listening, self._settings.listen, "--listen"))
        runtime.pages.probes.listen_for(lambda: hooks.silent_s)
        pages = OperationsServer(runtime.pages, ops_tls, reviewer=runtime.ports.reviewer)
        pages.start(self._socket(listening, self._settings.ops_listen, "--ops-listen"))
        self._parts = runtime, hooks, pages

    async def stop(self) -> None:
        """Refuse what waits; what is being bound may finish, and people may look meanwhile.

        No binding is under way longer than its call may take: nobody is cut off here. The
        hook port ends last: a call that is on its way to it would be lost.
        """
        if self._parts is None:
            return
        runtime, hooks, pages = self._parts
        runtime.drain()
        await hooks.drain(Timeouts.of(self._settings).answer_s)
        # Side by side: a standby waits for our lease, and must not wait for those who read pages.
        ended = await asyncio.gather(
            runtime.finish(), asyncio.to_thread(pages.stop), return_exceptions=True
        )
        await hooks.end()
        for each in ended:
            if each is not None:
                raise each

    def _socket(self, listening: Sequence[Any], where: str, flag: str) -> Any:
        port = address(where, flag)[1]
        return next(each.sock for each in listening if each.getsockname()[1] == port)


def log_start(settings: Settings) -> None:
    """Write into the log which version starts, and with what: settings name files, no secrets."""
    facts = {"version": __version__, "python": platform.python_version()}
    event(log, logging.INFO, "extender starts", **facts, settings=asdict(settings))


def _build(
    settings: Settings, loop: asyncio.AbstractEventLoop, certificates: Sequence[PortCertificates]
) -> Runtime:
    clock = SystemClock()
    reach = partial(live_cluster, settings, loop, clock)
    return Runtime(settings, loop, clock, reach, certificates)


class Worker(base.Worker):  # type: ignore[misc]
    """One event loop, and an orderly end for held binds."""

    def init_process(self) -> None:
        """Die with the arbiter: an orphan would keep the port and decide beside its successor."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        super().init_process()

    def init_signals(self) -> None:
        """Leave signals as they are before anybody heeds them; those that end us the loop does."""
        for each in self.SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        for each in _UNHEEDED:
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self.handle_usr1)
        signal.siginterrupt(signal.SIGUSR1, False)

    def run(self) -> None:
        """Live until a signal comes."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        ending = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            asyncio.get_running_loop().add_signal_handler(each, ending.set)
        try:
            await self.wsgi.start(self.sockets)
        except Exception:
            log.exception("start failed")
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        while not ending.is_set():
            self.notify()  # else the arbiter takes us for dead
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _NOTIFY_S)
        await self.wsgi.stop()


class RootLogger(Logger):  # type: ignore[misc]
    """gunicorn's messages, as the same JSON lines as ours."""

    def setup(self, cfg: Any) -> None:
        """Leave formatting and output to the root logger."""
        super().setup(cfg)
        for each in (self.error_log, self.access_log):
            each.handlers.clear()
            each.propagate = True


class OneWorker(Arbiter):  # type: ignore[misc]
    """gunicorn's arbiter, whom no signal tells to have two workers at once.

    Both would answer on the same ports, each with the half of every gang that came to it.
    """

    def handle_hup(self) -> None:
        """Go on; others would start a worker and only then end the old one."""
        self._go_on(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Go on; others would start one worker more."""
        self._go_on(signal.SIGTTIN)

    def handle_ttou(self) -> None:
        """Go on; others would end a worker, and there is one."""
        self._go_on(signal.SIGTTOU)

    def handle_usr2(self) -> None:
        """Go on; others would start a second server on the same ports."""
        self._go_on(signal.SIGUSR2)

    def _go_on(self, heard: signal.Signals) -> None:
        why = "a signal changes nothing: files are read again by themselves, and settings by a"
        event(log, logging.WARNING, f"{why} restart", signal=heard.name)


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__()

    def run(self) -> None:
        OneWorker(self).run()

    def load_config(self) -> None:
        options = {
            "bind": [self._settings.listen, self._settings.ops_listen],
            "workers": 1,
            "worker_class": "extender.server.Worker",
            "timeout": 60,
            "graceful_timeout": stops_within_s(self._settings),
            "backlog": 4096,
            "control_socket_disable": True,
            "loglevel": self._settings.log_level,
            "logger_class": "extender.server.RootLogger",
            "proc_name": "gang-extender",
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Application:
        return Application(self._settings)
