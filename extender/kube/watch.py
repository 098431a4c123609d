"""Starts the reflectors, and probes the API server: watches do not show in time that it is silent.

A watch without changes sends a bookmark once a minute. A stalled API server, or a network that
drops all packets, looks the same; meanwhile we would answer from an old cache. So one request goes
out on a connection of the pool. Any response counts, also a refusal or "not ready".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from extender.cache.cluster import Cluster
from extender.cache.freshness import Freshness
from extender.errors import ApiError
from extender.kube.client import ApiClient
from extender.kube.decode.resources import resources
from extender.kube.reflector import LIMITS, Reflector, WatchLimits
from extender.logs import event
from extender.ports import Clock

log = logging.getLogger(__name__)
#: The interval of probes while the API server answers.
INTERVAL_S = 3.0
#: The delay after a probe without a response.
RETRY_S = 1.0
#: The timeout of a probe.
TIMEOUT_S = 4.0
#: Open to every account, exempt from priority and fairness, and it reads no object.
PATH = "/readyz"


class HealthProbe:
    """Reports each probe to *freshness*; calls *on_return* when a silent API server answers."""

    def __init__(
        self,
        client: ApiClient,
        freshness: Freshness,
        clock: Clock,
        on_return: Callable[[], None],
        *,
        interval_s: float = INTERVAL_S,
        retry_s: float = RETRY_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._client = client
        self._freshness = freshness
        self._clock = clock
        self._on_return = on_return
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._timeout_s = timeout_s
        self._is_logged = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._freshness.expect_probe(self._clock.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; does not wait for a probe in flight."""
        self._stopping.set()

    def _run(self) -> None:
        delay_s = 0.0
        while not self._stopping.wait(delay_s):
            try:
                self._client.response("GET", PATH, wait_s=self._timeout_s)
                self._answered()
                delay_s = self._interval_s
            except ApiError as error:
                self._failed(str(error))
                delay_s = self._retry_s
            except Exception as error:
                # A bug of ours; without probes no call is answered, so the error is noticed.
                log.exception("probe failed")
                self._failed(f"{type(error).__name__}: {error}")
                delay_s = self._interval_s

    def _answered(self) -> None:
        silent_s = self._freshness.probe_answered(self._clock.monotonic())
        if silent_s:
            event(log, logging.WARNING, "API server answers again", silent_s=round(silent_s, 1))
            self._is_logged = False
            self._on_return()

    def _failed(self, why: str) -> None:
        self._freshness.probe_failed(why)
        if self._is_logged or not self._freshness.is_silent(self._clock.monotonic()):
            return
        self._is_logged = True
        event(log, logging.ERROR, "API server does not answer; nothing is decided", why=why)


class Watch:
    """Keeps *cluster* equal to the state in the API server.

    Ours are pods of *schedulers* and nodes with one of *node_labels*, or all nodes without any. In
    *exempt* namespaces no pod belongs to a gang.
    """

    def __init__(
        self,
        client: ApiClient,
        cluster: Cluster,
        clock: Clock,
        schedulers: frozenset[str],
        node_labels: frozenset[tuple[str, str]] = frozenset(),
        exempt: frozenset[str] = frozenset(),
        *,
        streaming: bool = True,
        limits: WatchLimits = LIMITS,
        probe_s: float = INTERVAL_S,
    ) -> None:
        self._cluster = cluster
        self._probe = HealthProbe(client, cluster.freshness, clock, self.reopen, interval_s=probe_s)
        self._reflectors = [
            Reflector(resource, client, cluster, clock, streaming, limits)
            for resource in resources(schedulers, node_labels, exempt)
        ]

    def start(self) -> None:
        """Start the threads; `cluster.why_not_ready()` shows when all lists are complete."""
        self._cluster.require_namespaces()
        for reflector in self._reflectors:
            reflector.start()
        self._probe.start()

    def reopen(self) -> None:
        """Restart each watch that has received nothing since the API server was silent."""
        for reflector in self._reflectors:
            reflector.reopen()

    def stop(self) -> None:
        """Close the connections and wait for all threads to end."""
        self._probe.stop()
        for reflector in self._reflectors:
            reflector.stop()
        for reflector in self._reflectors:
            reflector.join(timeout_s=5)
