"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from urllib.parse import unquote_to_bytes

from flask import Flask, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RoutingException

from extender.audit.finding import Finding
from extender.metrics import Metrics
from extender.policyfile import PolicyFile
from extender.reporting.journal import Journal
from extender.web.ops import Ops
from extender.web.probes import Probes
from extender.web.series import FindingSeries, PlanSeries, WatchSeries

#: The page is complete in itself: it may ask only us, and nobody may frame it.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Prometheus has a right to it already, in many a cluster.
_METRICS = "/metrics"
#: What the names of all other pages begin with where rights name them.
_RIGHTS = "/gang-extender"


class Pages(Flask):
    """The app, with what its port needs besides: the probes it answers by itself, the series."""

    def __init__(self, probes: Probes, metrics: Metrics) -> None:
        super().__init__(__name__, static_folder=None)
        self.probes = probes
        self.metrics = metrics

    def named(self, path: bytes) -> str:
        """Name the page that is at *path* as rights do: one name for all gangs, one for all pods.

        Not by its path: every account of a cluster may `get` the nonResourceURLs `/api/*`, by the
        role system:discovery. What is nowhere is asked for like `/`: few names, so that nobody
        makes us ask for many.
        """
        text = unquote_to_bytes(path).decode("utf-8", "replace")
        try:
            rule, _ = self.url_map.bind("localhost").match(text, "GET", return_rule=True)
        except (HTTPException, RoutingException):
            return _RIGHTS
        name = rule.rule.partition("/<")[0]
        return name if name == _METRICS else _RIGHTS + name.removeprefix("/api/v1").rstrip("/")


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
) -> Pages:
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
    probes = Probes(
        readiness=readiness,
        warmth=warmth,
        standby=standby,
        notes=lambda: [*policies.notes(), *notes()],
    )
    app = Pages(probes, metrics)
    ops = Ops(journal, policies.current, findings=findings, standby=standby)
    app.register_blueprint(ops.blueprint())
    app.add_url_rule("/", view_func=dashboard)

    for path in probes.PATHS:
        app.add_url_rule(path, path, partial(_probe, probes, path))

    @app.get(_METRICS)
    def series() -> ResponseReturnValue:
        """Expose the series."""
        return Response(generate_latest(metrics.registry), mimetype=CONTENT_TYPE_LATEST)

    return app


def _probe(probes: Probes, path: str) -> ResponseReturnValue:
    status, text = probes.ask(path)
    return Response(text, status, mimetype="text/plain")


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
