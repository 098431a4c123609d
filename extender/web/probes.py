"""Probes and metrics of the operations port."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from extender.metrics import Metrics


class Probes:
    """What an operator asks: alive, ready, and how much.

    *readiness* says what must be mended before we decide anything; *notes* says what should be
    mended although we go on.
    """

    def __init__(
        self,
        readiness: Callable[[], list[str]],
        metrics: Metrics,
        notes: Callable[[], list[str]] = list,
    ) -> None:
        self._readiness = readiness
        self._notes = notes
        self._metrics = metrics

    def blueprint(self) -> Blueprint:
        """Give the routes."""
        routes = Blueprint("probes", __name__)
        routes.add_url_rule("/healthz", view_func=self.healthz)
        routes.add_url_rule("/readyz", view_func=self.readyz)
        routes.add_url_rule("/metrics", view_func=self.metrics)
        return routes

    def healthz(self) -> ResponseReturnValue:
        """Say that the process answers."""
        return Response("ok\n", mimetype="text/plain")

    def readyz(self) -> ResponseReturnValue:
        """Say whether the mirror can be trusted, and if not, what is missing."""
        missing = self._readiness()
        self._metrics.ready.set(0 if missing else 1)
        lines = (missing or ["ok"]) + self._notes()
        text = "".join(f"{line}\n" for line in lines)
        return Response(text, status=503 if missing else 200, mimetype="text/plain")

    def metrics(self) -> ResponseReturnValue:
        """Expose the series."""
        return Response(generate_latest(self._metrics.registry), mimetype=CONTENT_TYPE_LATEST)
