"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import cast

from a2wsgi import WSGIMiddleware
from a2wsgi.asgi_typing import ASGIApp
from a2wsgi.wsgi_typing import WSGIApp
from flask import Flask, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from extender.audit.finding import Finding
from extender.metrics import Metrics
from extender.policyfile import PolicyFile
from extender.reporting.journal import Journal
from extender.text.plain import lines
from extender.web.ops import Ops
from extender.web.series import FindingSeries, PlanSeries, WatchSeries

#: The page is complete in itself: it may ask only us, and nobody may frame it.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(
    *,
    journal: Journal,
    findings: Callable[[], Sequence[Finding] | None],
    policies: PolicyFile,
    metrics: Metrics,
    readiness: Callable[[], list[str]],
    warmth: Callable[[], list[str]],
    standby: Callable[[], list[str]],
    notes: Callable[[], list[str]],
    silence: Callable[[], Mapping[str, float]],
) -> Flask:
    """Mount the pages, and let *metrics* show what is read when somebody scrapes.

    *findings* says what makes no sense, None before anybody looked; *readiness* says what must
    be mended before we decide anything; *warmth* the same of the mirror alone; *standby* who leads
    while it is not us; *notes* says what should be mended although we go on.
    """
    metrics.policy_refused.set_function(lambda: bool(policies.problem))
    # Asked at every scrape: probes may ask for /warmz alone.
    metrics.ready.set_function(lambda: not readiness())
    metrics.warm.set_function(lambda: not warmth())
    metrics.registry.register(PlanSeries(lambda: None if standby() else journal.last))
    metrics.registry.register(FindingSeries(lambda: None if standby() else findings()))
    metrics.registry.register(WatchSeries(silence))
    app = Flask(__name__, static_folder=None)
    ops = Ops(journal, policies.current, findings=findings, standby=standby)
    app.register_blueprint(ops.blueprint())
    app.add_url_rule("/", view_func=dashboard)

    @app.get("/healthz")
    def healthz() -> ResponseReturnValue:
        """Say that the process answers."""
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> ResponseReturnValue:
        """Say whether the mirror can be trusted, and if not, what is missing."""
        missing = readiness()
        text = lines(*(missing or ["ok"]), *policies.notes(), *notes())
        return Response(text, status=503 if missing else 200, mimetype="text/plain")

    @app.get("/warmz")
    def warmz() -> ResponseReturnValue:
        """Say whether we could lead: of a standby nothing more can be asked."""
        missing = warmth()
        text = lines(*(missing or ["ok"]), *standby())
        return Response(text, status=503 if missing else 200, mimetype="text/plain")

    @app.get("/metrics")
    def series() -> ResponseReturnValue:
        """Expose the series."""
        return Response(generate_latest(metrics.registry), mimetype=CONTENT_TYPE_LATEST)

    return app


def on_a_loop(app: Flask) -> ASGIApp:
    """Let an event loop serve *app*, in threads of its own."""
    # Flask takes any environment; a2wsgi names every variable there can be.
    return WSGIMiddleware(cast(WSGIApp, app))


def dashboard() -> ResponseReturnValue:
    """Give the one page that draws what the API says; it has no state of its own."""
    headers = {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return Response(_page(), mimetype="text/html", headers=headers)


@cache
def _page() -> str:
    return files("extender.web").joinpath("pages/dashboard.html").read_text("utf-8")
