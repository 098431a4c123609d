"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import unquote_to_bytes

from flask import Flask, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RoutingException, Rule

from extender.text import lines
from extender.web.api import Api
from extender.web.background import CachedRemedies
from extender.web.dashboard.context import AppContext
from extender.web.dashboard.routes import Dashboard
from extender.web.plan_metrics import FindingCollector, PlanCollector, WatchCollector
from extender.whatif.page import TOO_LONG

#: Nothing on the loop of the hooks takes a tenth of this.
_MAX_STALL_S = 20.0


class Probes:
    """Answers the probes from memory, in the calling thread."""

    PATHS = ("/healthz", "/readyz", "/warmz")

    def __init__(
        self,
        *,
        why_not_ready: Callable[[], list[str]],
        warmth: Callable[[], list[str]],
        standby: Callable[[], list[str]],
        notes: Callable[[], list[str]],
    ) -> None:
        self._why_not_ready = why_not_ready
        self._warmth = warmth
        self._standby = standby
        self._notes = notes
        self._stalled_s: Callable[[], float] = lambda: 0.0

    def watch_loop(self, stalled_s: Callable[[], float]) -> None:
        """Fail /healthz when the loop of the hooks has stalled for too long."""
        self._stalled_s = stalled_s

    def ask(self, path: str) -> tuple[int, str]:
        """Return the status of a probe and its text, one sentence a line."""
        if path == "/healthz":
            problems, notes = self._health(), []
        elif path == "/readyz":
            # With what is missing, or the notes.
            problems, notes = self._why_not_ready(), self._notes()
        else:
            # Whether this instance could lead; a standby cannot be more than that.
            problems, notes = self._warmth(), self._standby()
        return 503 if problems else 200, lines(*(problems or ["ok"]), *notes)

    def _health(self) -> list[str]:
        stalled_s = self._stalled_s()
        if stalled_s <= _MAX_STALL_S:
            return []
        return [f"the hooks have not answered for {stalled_s:.0f} s"]


#: In many clusters Prometheus has the right to read it already.
_METRICS = "/metrics"
#: The prefix of all other pages in nonResourceURLs of RBAC.
_RBAC_PREFIX = "/gang-extender"
_MAX_QUERY = 2048


class OperationsApp(Flask):
    """The Flask app, with the probes, the metrics and the RBAC names of pages."""

    def __init__(self, probes: Probes, context: AppContext) -> None:
        super().__init__(__name__, static_folder=None)
        self.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
        self.probes = probes
        self.metrics = context.metrics
        #: The content of /events.
        self.heartbeat = context.heartbeat
        #: Leadership and whether a plan exists; cached pages expire when it changes.
        self.state = lambda: (bool(context.standby()), context.history.last is None)
        self.site = Dashboard(context)

    def rbac_path(self, path: bytes) -> str:
        """Return the name of the page at *path* in RBAC: one name for all gangs, one for all pods.

        It is not the path: the role system:discovery lets every account of a cluster `get` the
        nonResourceURLs `/api/*`. An unknown path has the name of `/`, so that a client cannot
        cause reviews of many names.
        """
        rule = self._rule(path)
        if rule is None or rule.endpoint == "site.asset":
            return _RBAC_PREFIX
        name = rule.rule.partition("/<")[0]
        return name if name == _METRICS else _RBAC_PREFIX + name.removeprefix("/api/v1").rstrip("/")

    def used_query(self, path: bytes, query: bytes) -> bytes:
        """Return the part of *query* that the page at *path* uses; only the dashboard uses any.

        So a client cannot request the same costly page under many addresses.
        """
        rule = self._rule(path) if query else None
        if rule is None or not rule.endpoint.startswith("site."):
            return b""
        if len(query) <= _MAX_QUERY:
            return query
        # Filters are never so long. A what-if may be, and its page then shows an error.
        return f"{TOO_LONG}=1".encode() if rule.endpoint == "site.whatif" else b""

    def _rule(self, path: bytes) -> Rule | None:
        text = unquote_to_bytes(path).decode("utf-8", "replace")
        try:
            rule, _ = self.url_map.bind("localhost").match(text, "GET", return_rule=True)
        except (HTTPException, RoutingException):
            return None
        return rule


def create_app(context: AppContext) -> OperationsApp:
    """Create the app, and register the metrics that are computed at each scrape."""
    history, findings, standby = context.history, context.findings, context.standby
    metrics, policies = context.metrics, context.policies
    metrics.policy_refused.set_function(lambda: bool(policies.problem))
    # Evaluated at every scrape: probes may be configured for /warmz alone.
    metrics.ready.set_function(lambda: not context.why_not_ready())
    metrics.cache_synced.set_function(lambda: not context.warmth())
    metrics.registry.register(PlanCollector(lambda: None if standby() else history.last))
    metrics.registry.register(FindingCollector(lambda: None if standby() else findings()))
    metrics.registry.register(WatchCollector(context.silence))
    probes = Probes(
        why_not_ready=context.why_not_ready,
        warmth=context.warmth,
        standby=standby,
        notes=context.notes,
    )
    app = OperationsApp(probes, context)
    api = Api(
        history,
        policies.current,
        findings=findings,
        standby=standby,
        forecaster=context.forecaster,
        remedied=CachedRemedies(context.background),
    )
    app.register_blueprint(api.blueprint())
    app.register_blueprint(app.site.blueprint())

    for path in probes.PATHS:
        app.add_url_rule(path, path, partial(_probe, probes, path))

    @app.get(_METRICS)
    def series() -> ResponseReturnValue:
        """Return the metrics."""
        return Response(generate_latest(metrics.registry), mimetype=CONTENT_TYPE_LATEST)

    return app


def _probe(probes: Probes, path: str) -> ResponseReturnValue:
    status, text = probes.ask(path)
    return Response(text, status, mimetype="text/plain")
