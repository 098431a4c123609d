"""gunicorn around one event loop: one process, because one process owns the truth.

The cache, the plan and the holds live in memory; a second worker would hold half of every gang.
gunicorn brings signals, logging and a restart should the worker die; uvicorn's worker brings the
loop in which a held bind costs a callback instead of a thread, and in it the operations port.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import platform
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from a2wsgi.asgi_typing import ASGIApp, Receive, Scope, Send
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker

from extender import __version__
from extender.kube.live import live_cluster
from extender.logs import event
from extender.settings import Settings, address
from extender.timing.clock import SystemClock
from extender.tls import rotation
from extender.tls.rotation import Certificates
from extender.web.app import on_a_loop
from extender.web.hookport import KEEP_ALIVE_S, HookPort
from extender.wiring import Runtime

log = logging.getLogger(__name__)

#: How long the interpreter lets one thread run. With the default of 5 ms a filter call beside a
#: busy planning thread took 11 ms; with 0.2 ms it takes 1 ms.
SWITCH_INTERVAL_S = 0.0002
#: On SIGTERM held binds are refused at once; binds on their way get this long to finish.
GRACE_S = 15

_PR_SET_PDEATHSIG = 1


def serve(settings: Settings) -> None:
    """Run until a signal ends us."""
    _Gunicorn(settings).run()


class Application:
    """The ASGI application of one worker; builds the runtime when the loop starts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hook_tls = rotation.of_the_hooks(settings)
        self._ops_tls = rotation.of_operations(settings)
        self._runtime: Runtime | None = None
        self._pages: ASGIApp | None = None
        self._hook_port: HookPort | None = None
        self._hook_socket: socket.socket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page, or start and stop with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._pages is not None:
            await self._pages(scope, receive, send)

    @property
    def ops_context(self) -> ssl.SSLContext | None:
        """Give what the operations port speaks TLS with, if it does."""
        return self._ops_tls.context() if self._ops_tls else None

    def take_hook_socket(self, listening: Sequence[Any]) -> list[Any]:
        """Keep the socket of the hooks for ourselves; give the others."""
        port = address(self._settings.listen, "--listen")[1]
        ours = [each for each in listening if each.getsockname()[1] == port]
        self._hook_socket = ours[0].sock
        return [each for each in listening if each not in ours]

    async def drain(self) -> None:
        """Refuse what waits, so that the server can close; what is being bound may finish."""
        if self._runtime is not None:
            self._runtime.drain()
        if self._hook_port is not None:
            await self._hook_port.close(GRACE_S)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        say_who_starts(self._settings)
        try:
            loop = asyncio.get_running_loop()
            certificates = [each for each in (self._hook_tls, self._ops_tls) if each]
            self._runtime = _build(self._settings, loop, certificates)
            self._runtime.start()
            self._pages = on_a_loop(self._runtime.pages)
            if self._hook_socket is not None:
                tls = self._hook_tls.context() if self._hook_tls else None
                self._hook_port = HookPort(self._runtime.hooks, loop, tls)
                await self._hook_port.listen(self._hook_socket)
        except Exception as error:
            log.exception("start failed")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._runtime.finish()
        await send({"type": "lifespan.shutdown.complete"})


def say_who_starts(settings: Settings) -> None:
    """Write into the log which version starts, and with what: settings name files, no secrets."""
    facts = {"version": __version__, "python": platform.python_version()}
    event(log, logging.INFO, "extender starts", **facts, settings=asdict(settings))


def _build(
    settings: Settings, loop: asyncio.AbstractEventLoop, certificates: Sequence[Certificates]
) -> Runtime:
    clock = SystemClock()
    reach = partial(live_cluster, settings, loop, clock)
    return Runtime(settings, loop, clock, reach, certificates)


class _DrainingServer(Server):
    def __init__(self, config: Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    async def shutdown(self, sockets: Any = None) -> None:
        # uvicorn waits for open requests before it tells the application that the end has come,
        # and held binds are open requests.
        await self._application.drain()
        await super().shutdown(sockets=sockets)


class Worker(UvicornWorker):  # type: ignore[misc]
    """uvicorn's worker with our time-outs and an orderly end for held binds."""

    CONFIG_KWARGS = {
        "interface": "asgi3",
        "loop": "uvloop",
        "http": "httptools",
        "lifespan": "on",
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": GRACE_S,
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        logging.getLogger("uvicorn.error").propagate = True

    def init_process(self) -> None:
        """Die with the arbiter: an orphan would keep the port and decide beside its successor."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        super().init_process()

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        self.config.load()
        # After the load, which makes a context only from files it would never read again.
        self.config.ssl = self.wsgi.ops_context
        server = _DrainingServer(self.config, self.wsgi)
        self._install_sigquit_handler()
        await server.serve(sockets=self.wsgi.take_hook_socket(self.sockets))
        if not server.started:
            sys.exit(3)


class RootLogger(Logger):  # type: ignore[misc]
    """gunicorn's messages, as the same JSON lines as ours."""

    def setup(self, cfg: Any) -> None:
        """Leave formatting and output to the root logger."""
        super().setup(cfg)
        for each in (self.error_log, self.access_log):
            each.handlers.clear()
            each.propagate = True


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        options = {
            "bind": [self._settings.listen, self._settings.ops_listen],
            "workers": 1,
            "worker_class": "extender.server.Worker",
            "keepalive": int(KEEP_ALIVE_S),
            "timeout": 60,
            "graceful_timeout": GRACE_S + 5,
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
