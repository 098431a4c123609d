"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import cast

from a2wsgi import WSGIMiddleware
from a2wsgi.asgi_typing import ASGIApp
from a2wsgi.wsgi_typing import WSGIApp
from flask import Blueprint, Flask, Response
from flask.typing import ResponseReturnValue

from extender.metrics import Metrics
from extender.policyfile import PolicyFile
from extender.reporting.journal import Journal
from extender.web.ops import Ops
from extender.web.probes import Probes
from extender.web.series import PlanSeries, WatchSeries

#: The page is complete in itself: it may ask only us, and nobody may frame it.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(
    *,
    journal: Journal,
    policies: PolicyFile,
    metrics: Metrics,
    readiness: Callable[[], list[str]],
    notes: Callable[[], list[str]],
    silence: Callable[[], Mapping[str, float]],
) -> Flask:
    """Mount the pages, and let *metrics* show what is read when somebody scrapes."""

    def all_notes() -> list[str]:
        return [f"policy: {policies.problem}"] * bool(policies.problem) + notes()

    metrics.policy_refused.set_function(lambda: bool(policies.problem))
    metrics.registry.register(PlanSeries(lambda: journal.last))
    metrics.registry.register(WatchSeries(silence))
    app = Flask(__name__, static_folder=None)
    app.register_blueprint(Dashboard().blueprint())
    app.register_blueprint(Probes(readiness, metrics, all_notes).blueprint())
    app.register_blueprint(Ops(journal, policies.current).blueprint())
    return app


def on_a_loop(app: Flask) -> ASGIApp:
    """Let an event loop serve *app*, in threads of its own."""
    # Flask takes any environment; a2wsgi names every variable there can be.
    return WSGIMiddleware(cast(WSGIApp, app))


class Dashboard:
    """One page that draws what the API says; it has no state of its own."""

    def __init__(self) -> None:
        self._page = files("extender.web").joinpath("pages/dashboard.html").read_text("utf-8")

    def blueprint(self) -> Blueprint:
        """Give the route."""
        routes = Blueprint("dashboard", __name__)
        routes.add_url_rule("/", view_func=self.page)
        return routes

    def page(self) -> ResponseReturnValue:
        """Give the page."""
        headers = {
            "content-security-policy": _POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        return Response(self._page, mimetype="text/html", headers=headers)
