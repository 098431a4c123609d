"""Probes, metrics and the read-only API of the operations port."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response, jsonify
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from extender.metrics import Metrics
from extender.plan.decision import Plan
from extender.web import api


class Probes:
    """What an operator asks: alive, ready, how much, and why does it wait."""

    def __init__(
        self, readiness: Callable[[], list[str]], plan: Callable[[], Plan], metrics: Metrics
    ) -> None:
        self._readiness = readiness
        self._plan = plan
        self._metrics = metrics

    def blueprint(self) -> Blueprint:
        """Give the routes."""
        routes = Blueprint("probes", __name__)
        routes.add_url_rule("/healthz", view_func=self.healthz)
        routes.add_url_rule("/readyz", view_func=self.readyz)
        routes.add_url_rule("/metrics", view_func=self.metrics)
        routes.add_url_rule("/", view_func=self.index)
        routes.add_url_rule("/api/v1/plan", view_func=self.plan)
        routes.add_url_rule("/api/v1/queues", view_func=self.queues)
        routes.add_url_rule("/api/v1/gangs", view_func=self.gangs)
        routes.add_url_rule("/api/v1/gangs/<namespace>/<name>", view_func=self.gang)
        return routes

    def healthz(self) -> ResponseReturnValue:
        """Say that the process answers."""
        return Response("ok\n", mimetype="text/plain")

    def readyz(self) -> ResponseReturnValue:
        """Say whether the mirror can be trusted, and if not, what is missing."""
        missing = self._readiness()
        self._metrics.ready.set(0 if missing else 1)
        text = "".join(f"{sentence}\n" for sentence in missing) or "ok\n"
        return Response(text, status=503 if missing else 200, mimetype="text/plain")

    def metrics(self) -> ResponseReturnValue:
        """Expose the series."""
        return Response(generate_latest(self._metrics.registry), mimetype=CONTENT_TYPE_LATEST)

    def index(self) -> ResponseReturnValue:
        """Name what is here."""
        return Response(
            "gang-extender\n\n/healthz /readyz /metrics\n"
            "/api/v1/plan /api/v1/queues /api/v1/gangs /api/v1/gangs/<namespace>/<name>\n",
            mimetype="text/plain",
        )

    def plan(self) -> ResponseReturnValue:
        """Give the last plan."""
        return jsonify(api.plan(self._plan()))

    def queues(self) -> ResponseReturnValue:
        """Give every queue's figures."""
        return jsonify(api.queues(self._plan()))

    def gangs(self) -> ResponseReturnValue:
        """Give every gang's verdict."""
        return jsonify(api.gangs(self._plan()))

    def gang(self, namespace: str, name: str) -> ResponseReturnValue:
        """Give one gang's verdict."""
        for gang in api.gangs(self._plan()):
            if (gang["namespace"], gang["name"]) == (namespace, name):
                return jsonify(gang)
        return jsonify({"error": f"no gang {namespace}/{name}; see /api/v1/gangs"}), 404
