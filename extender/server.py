"""Run the hook port on one event loop under gunicorn, in one process that holds all state.

The cache, the plan and the waiting binds live in memory; a second worker would get half of every
gang. gunicorn adds signals, logging and a restart if the worker dies. The worker runs the event
loop, on which a waiting bind costs a callback instead of a thread. The operations port has a loop
of its own.
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
#: The maximum duration of a stop, without the binds in progress.
_STOP_S = 5
_NOTIFY_S = 1.0

_PR_SET_PDEATHSIG = 1

#: Signals on which gunicorn starts another worker, or a second server, beside the active one.
_IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2)


def serve(settings: Settings) -> None:
    """Run until a signal ends the process."""
    _Gunicorn(settings).run()


def stops_within_s(settings: Settings) -> int:
    """Return how long a stop may take: binds in progress finish while their callers wait.

    A kill before that leaves a gang partly bound that was about to be complete.
    """
    return ceil(settings.bind_timeout_s) + _STOP_S


class Application:
    """What one worker runs; the parts exist once it has started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hook_tls = hook_certificates(settings)
        self._ops_tls = operations_certificates(settings)
        self._parts: tuple[Runtime, HookServer, OperationsServer] | None = None

    async def start(self, listening: Sequence[Any]) -> None:
        """Build all parts and start both ports."""
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
        runtime.pages.probes.watch_loop(lambda: hooks.stalled_s)
        pages = OperationsServer(runtime.pages, ops_tls, reviewer=runtime.ports.reviewer)
        pages.start(self._socket(listening, self._settings.ops_listen, "--ops-listen"))
        self._parts = runtime, hooks, pages

    async def stop(self) -> None:
        """End what `start` has started."""
        if self._parts is None:
            return
        await stop_parts(*self._parts, Timeouts.of(self._settings).answer_s)

    def _socket(self, listening: Sequence[Any], where: str, flag: str) -> Any:
        port = address(where, flag)[1]
        return next(each.sock for each in listening if each.getsockname()[1] == port)


async def stop_parts(
    runtime: Runtime, hooks: HookServer, pages: OperationsServer, answer_s: float
) -> None:
    """Refuse waiting binds, finish binds in progress, and serve pages in the meantime.

    A bind in progress never takes longer than its API call may take, so none is cut off. The hook
    port ends last: a call on its way to it would be lost.
    """
    runtime.drain()
    await hooks.drain(answer_s)
    # Concurrently: a standby waits for our lease and must not wait for readers of pages.
    ended = await asyncio.gather(
        runtime.finish(), asyncio.to_thread(pages.stop), return_exceptions=True
    )
    await hooks.end()
    for each in ended:
        if each is not None:
            raise each


def log_start(settings: Settings) -> None:
    """Log the version and all settings; settings name files but contain no secrets."""
    facts = {"version": __version__, "python": platform.python_version()}
    event(log, logging.INFO, "extender starts", **facts, settings=asdict(settings))


def _build(
    settings: Settings, loop: asyncio.AbstractEventLoop, certificates: Sequence[PortCertificates]
) -> Runtime:
    clock = SystemClock()
    connect = partial(live_cluster, settings, loop, clock)
    return Runtime(settings, loop, clock, connect, certificates)


class Worker(base.Worker):  # type: ignore[misc]
    """Runs one event loop, and ends it in order with its waiting binds."""

    def init_process(self) -> None:
        """End with the arbiter: an orphan would keep the port and decide beside its successor."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        super().init_process()

    def init_signals(self) -> None:
        """Reset signals; the loop handles those that end the process."""
        for each in self.SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        for each in _IGNORED_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self.handle_usr1)
        signal.siginterrupt(signal.SIGUSR1, False)

    def run(self) -> None:
        """Run until a signal comes."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            asyncio.get_running_loop().add_signal_handler(each, stopping.set)
        try:
            await self.wsgi.start(self.sockets)
        except Exception:
            log.exception("start failed")
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        while not stopping.is_set():
            self.notify()  # the arbiter kills a worker that does not notify
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _NOTIFY_S)
        await self.wsgi.stop()


class RootLogger(Logger):  # type: ignore[misc]
    """Logs gunicorn's messages as JSON lines like all others."""

    def setup(self, cfg: Any) -> None:
        """Delegate format and output to the root logger."""
        super().setup(cfg)
        for each in (self.error_log, self.access_log):
            each.handlers.clear()
            each.propagate = True


class OneWorker(Arbiter):  # type: ignore[misc]
    """gunicorn's arbiter, without the signals that start a second worker.

    Two workers would answer on the same ports, each with half of every gang.
    """

    def handle_hup(self) -> None:
        """Ignore the signal; gunicorn would start a new worker before it ends the old one."""
        self._ignore(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Ignore the signal; gunicorn would start one more worker."""
        self._ignore(signal.SIGTTIN)

    def handle_ttou(self) -> None:
        """Ignore the signal; gunicorn would end a worker, and there is only one."""
        self._ignore(signal.SIGTTOU)

    def handle_usr2(self) -> None:
        """Ignore the signal; gunicorn would start a second server on the same ports."""
        self._ignore(signal.SIGUSR2)

    def _ignore(self, received: signal.Signals) -> None:
        sentence = "signal ignored: files are reloaded automatically, settings need a restart"
        event(log, logging.WARNING, sentence, signal=received.name)


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
