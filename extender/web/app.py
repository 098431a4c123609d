"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import unquote_to_bytes

from flask import Flask, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RoutingException, Rule

from extender.findings.finding import Finding
from extender.forecast.durations import DurationHistory
from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.policy_file import PolicyFile
from extender.status.history import GangHistory
from extender.text import lines
from extender.web.api import Api
from extender.web.background import CachedRemedies
from extender.web.dashboard.context import AppContext
from extender.web.dashboard.gangs import Promises
from extender.web.dashboard.routes import Dashboard
from extender.web.plan_metrics import FindingCollector, PlanCollector, WatchCollector
from extender.whatif.page import TOO_LONG, RunWhatIf, no_whatif

#: Nothing we do on the loop of the hooks takes a tenth of this.
_SILENT_S = 20.0


class Probes:
    """Answers from memory, in whatever thread asks.

    *readiness* says what must be mended before we decide anything; *warmth* the same of the mirror
    alone; *standby* who leads while it is not us; *notes* what should be mended although we go on.
    """

    PATHS = ("/healthz", "/readyz", "/warmz")

    def __init__(
        self,
        *,
        readiness: Callable[[], list[str]],
        warmth: Callable[[], list[str]],
        standby: Callable[[], list[str]],
        notes: Callable[[], list[str]],
    ) -> None:
        self._readiness = readiness
        self._warmth = warmth
        self._standby = standby
        self._notes = notes
        self._silent_s: Callable[[], float] = lambda: 0.0

    def listen_for(self, silent_s: Callable[[], float]) -> None:
        """Call us dead when the loop of the hooks, *silent_s* ago last heard of, comes no more."""
        self._silent_s = silent_s

    def ask(self, path: str) -> tuple[int, str]:
        """Give the status of a probe, and what it has to say in lines."""
        if path == "/healthz":
            wrong, besides = self._health(), []
        elif path == "/readyz":
            # Whether the mirror can be trusted, and if not, what is missing.
            wrong, besides = self._readiness(), self._notes()
        else:
            # Whether we could lead: of a standby nothing more can be asked.
            wrong, besides = self._warmth(), self._standby()
        return 503 if wrong else 200, lines(*(wrong or ["ok"]), *besides)

    def _health(self) -> list[str]:
        silent_s = self._silent_s()
        if silent_s <= _SILENT_S:
            return []
        return [f"the hooks have not answered for {silent_s:.0f} s"]


#: Prometheus has a right to it already, in many a cluster.
_METRICS = "/metrics"
#: What the names of all other pages begin with where rights name them.
_RIGHTS = "/gang-extender"
_LONGEST_QUERY = 2048


class OperationsApp(Flask):
    """The app, with what its port needs besides: the probes it answers by itself, the series."""

    def __init__(self, probes: Probes, metrics: Metrics, sights: AppContext) -> None:
        super().__init__(__name__, static_folder=None)
        self.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
        self.probes = probes
        self.metrics = metrics
        #: What is told to those who listen for news.
        self.pulse = sights.heartbeat
        #: Where we stand; what was told before holds no longer when it changes.
        self.stands = lambda: (bool(sights.standby()), sights.journal.last is None)
        self.site = Dashboard(sights)

    def rbac_path(self, path: bytes) -> str:
        """Name the page that is at *path* as rights do: one name for all gangs, one for all pods.

        Not by its path: every account of a cluster may `get` the nonResourceURLs `/api/*`, by the
        role system:discovery. What is nowhere is asked for like `/`: few names, so that nobody
        makes us ask for many.
        """
        rule = self._rule(path)
        if rule is None or rule.endpoint == "site.asset":
            return _RIGHTS
        name = rule.rule.partition("/<")[0]
        return name if name == _METRICS else _RIGHTS + name.removeprefix("/api/v1").rstrip("/")

    def used_query(self, path: bytes, query: bytes) -> bytes:
        """Give what of *query* the page at *path* looks at: only those for people look at any.

        So nobody can ask for what costs much, the same each time, in ever new ways.
        """
        rule = self._rule(path) if query else None
        if rule is None or not rule.endpoint.startswith("site."):
            return b""
        if len(query) <= _LONGEST_QUERY:
            return query
        # Filters are never so long; what is supposed may be, and then it is said.
        return f"{TOO_LONG}=1".encode() if rule.endpoint == "site.whatif" else b""

    def _rule(self, path: bytes) -> Rule | None:
        text = unquote_to_bytes(path).decode("utf-8", "replace")
        try:
            rule, _ = self.url_map.bind("localhost").match(text, "GET", return_rule=True)
        except (HTTPException, RoutingException):
            return None
        return rule


def create_app(
    *,
    journal: GangHistory,
    findings: Callable[[], Sequence[Finding] | None],
    policies: PolicyFile,
    metrics: Metrics,
    readiness: Callable[[], list[str]],
    warmth: Callable[[], list[str]],
    standby: Callable[[], list[str]],
    notes: Callable[[], list[str]],
    silence: Callable[[], Mapping[str, float]],
    promises: Promises = lambda _: ((), 0.0),
    experience: DurationHistory | None = None,
    suppose: RunWhatIf = no_whatif,
) -> OperationsApp:
    """Mount the pages, and let *metrics* show what is read when somebody scrapes.

    *findings* says what makes no sense, None before anybody looked; *readiness* says what must
    be mended before we decide anything; *warmth* the same of the mirror alone; *standby* who leads
    while it is not us; *notes* says what should be mended although we go on; *promises* what a gang
    was promised and has not taken; *experience* how long gangs ran before; *suppose* works out what
    would be.
    """
    forecaster = Forecaster(policies.current, experience)
    metrics.policy_refused.set_function(lambda: bool(policies.problem))
    # Asked at every scrape: probes may ask for /warmz alone.
    metrics.ready.set_function(lambda: not readiness())
    metrics.cache_synced.set_function(lambda: not warmth())
    metrics.registry.register(PlanCollector(lambda: None if standby() else journal.last))
    metrics.registry.register(FindingCollector(lambda: None if standby() else findings()))
    metrics.registry.register(WatchCollector(silence))
    probes = Probes(
        readiness=readiness,
        warmth=warmth,
        standby=standby,
        notes=lambda: [*policies.notes(), *notes()],
    )
    sights = AppContext(
        journal=journal,
        policies=policies,
        metrics=metrics,
        findings=findings,
        readiness=readiness,
        standby=standby,
        notes=lambda: [*policies.notes(), *notes()],
        silence=silence,
        promises=promises,
        forecaster=forecaster,
        suppose=suppose,
    )
    app = OperationsApp(probes, metrics, sights)
    ops = Api(
        journal,
        policies.current,
        findings=findings,
        standby=standby,
        forecaster=forecaster,
        remedied=CachedRemedies(sights.bench),
    )
    app.register_blueprint(ops.blueprint())
    app.register_blueprint(app.site.blueprint())

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
