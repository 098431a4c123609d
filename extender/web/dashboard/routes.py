"""The routes of the dashboard. Flask fills the templates and escapes all untrusted text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from flask import Blueprint, Response, render_template, request
from flask.typing import ResponseReturnValue

from extender.model.gang import GangKey
from extender.status.history import CycleResult
from extender.web.background import CachedRemedies
from extender.web.dashboard import cluster, gangs, queues
from extender.web.dashboard.context import AppContext
from extender.web.dashboard.format import FILTERS, QueryFields, paged
from extender.web.whatif import WhatIf

#: Only our own script and style files are loaded, no site may frame a page, no text runs as code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_ASSETS = {
    "style.css": "text/css",
    "live.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_SECTIONS = (
    ("", "Overview"),
    ("gangs", "Gangs"),
    ("nodes", "Nodes"),
    ("holds", "Binding"),
    ("evictions", "Evictions"),
    ("whatif", "What if"),
    ("policy", "Policy"),
    ("health", "Health"),
)
_NO_FIELDS = QueryFields({})
#: Evictions on a page.
_PAGE_SIZE = 50


class Dashboard:
    """All pages and files for browsers."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._whatif = WhatIf(context.suppose, context.policies.current, context.background)
        self._remedied = CachedRemedies(context.background)
        #: The pages linked on every page; the demo appends one.
        self.sections = list(_SECTIONS)

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("site", __name__, template_folder="templates")
        for name, each in FILTERS.items():
            routes.add_app_template_filter(each, name)
        routes.add_url_rule("/", view_func=self.overview)
        routes.add_url_rule("/gangs", view_func=self.gangs)
        routes.add_url_rule("/gangs/<namespace>/<path:name>", view_func=self.gang)
        routes.add_url_rule("/nodes", view_func=self.nodes)
        routes.add_url_rule("/holds", view_func=self.holds)
        routes.add_url_rule("/evictions", view_func=self.evictions)
        routes.add_url_rule("/whatif", view_func=self.whatif)
        routes.add_url_rule("/policy", view_func=self.policy)
        routes.add_url_rule("/health", view_func=self.health)
        routes.add_url_rule("/events", view_func=self.events)
        routes.add_url_rule("/assets/<version>/<name>", view_func=self.asset)
        return routes

    def overview(self) -> ResponseReturnValue:
        """Show the queues, and the gangs that wait longest."""
        fields, last = QueryFields(request.args, *queues.FIELDS), self._context.last
        variables = queues.page(last, self._context.history, fields) if last else {}
        return self._page("overview.html", last, "", variables, fields)

    def gangs(self) -> ResponseReturnValue:
        """Show all gangs."""
        fields, last = QueryFields(request.args, *gangs.LIST_FIELDS), self._context.last
        return self._page("gangs.html", last, "gangs", self._gang_list(last, fields), fields)

    def gang(self, namespace: str, name: str) -> ResponseReturnValue:
        """Show one gang."""
        key, last = GangKey(f"{namespace}/{name}"), self._context.last
        fields, context = QueryFields(request.args), self._context
        policy, forecaster = context.policies.current(), context.forecaster
        template, status = "gang.html", 200
        variables = (
            gangs.gang_page(last, context.history, policy, forecaster, self._remedied, key, fields)
            if last
            else {}
        )
        if variables is None:
            template, status = "missing.html", 404
            variables = {"what": f"gang {key}", "where": "gangs"}
        elif variables.get("is_trying"):
            # Only a page with status 200 is cached: this one is incomplete.
            status = 202
        return self._page(
            template, last, "gangs", variables, fields, status, title=str(key), every_s=5
        )

    def nodes(self) -> ResponseReturnValue:
        """Show the free capacity of every node."""
        fields, last = QueryFields(request.args, *cluster.NODES_FIELDS), self._context.last
        variables = cluster.nodes_page(last, fields) if last else {}
        return self._page("nodes.html", last, "nodes", variables, fields, every_s=5)

    def holds(self) -> ResponseReturnValue:
        """Show the gangs with reservations and waiting binds."""
        fields, last, context = QueryFields(request.args), self._context.last, self._context
        variables = (
            gangs.binding_page(last, context.history, context.reservations, fields) if last else {}
        )
        return self._page("binding.html", last, "holds", variables, fields)

    def evictions(self) -> ResponseReturnValue:
        """Show the evictions."""
        fields, last = QueryFields(request.args), self._context.last
        variables = {"shown": paged(self._context.history.evictions.all(), fields.page, _PAGE_SIZE)}
        return self._page("evictions.html", last, "evictions", variables, fields)

    def whatif(self) -> ResponseReturnValue:
        """Show the result of the what-if in the address."""
        last = self._context.last
        variables, status = self._whatif.page(request.args.to_dict(flat=False), last)
        page = self._page("whatif.html", last, "whatif", variables, status=status)
        if status == 503:
            page.headers["retry-after"] = "5"
        return page

    def policy(self) -> ResponseReturnValue:
        """Show the policy in force."""
        variables = cluster.policy_page(self._context.policies)
        return self._page("policy.html", self._context.last, "policy", variables, every_s=5)

    def health(self) -> ResponseReturnValue:
        """Show the health of the extender."""
        variables = cluster.health_page(self._context)
        return self._page("health.html", self._context.last, "health", variables)

    def page_with_gangs(
        self, template: str, section: str, title: str, more: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Render a template from outside this package that shows gangs, too."""
        fields, last = QueryFields({}, *gangs.LIST_FIELDS), self._context.last
        variables = {**self._gang_list(last, fields), **more}
        return self._page(template, last, section, variables, fields, status, title=title)

    def _gang_list(self, last: CycleResult | None, fields: QueryFields) -> Mapping[str, Any]:
        context = self._context
        return gangs.gang_list(last, context.history, context.forecaster, fields) if last else {}

    def events(self) -> ResponseReturnValue:
        """Return one event; the server continues the stream."""
        return Response(self._context.heartbeat(), mimetype="text/event-stream", headers=_HEADERS)

    def asset(self, version: str, name: str) -> ResponseReturnValue:
        """Return a file of the pages; with the current version in its path it never expires."""
        if name not in _ASSETS:
            return Response("there is no such file\n", 404, mimetype="text/plain")
        age = "public, max-age=31536000, immutable" if version == _version() else "no-cache"
        headers = {**_HEADERS, "cache-control": age}
        return Response(_asset(name), mimetype=_ASSETS[name], headers=headers)

    def _page(
        self,
        template: str,
        last: CycleResult | None,
        section: str,
        variables: Mapping[str, Any],
        fields: QueryFields = _NO_FIELDS,
        status: int = 200,
        *,
        title: str = "",
        every_s: int = 2,
    ) -> Response:
        """Render a template; *last* is the cycle of *variables*, because a new one may end now."""
        text = render_template(
            template,
            **variables,
            query=fields,
            title=title or dict(_SECTIONS)[section],
            section=section,
            sections=self.sections,
            root=_root(),
            version=_version(),
            every_s=every_s,
            is_planned=last is not None,
            cycle=last.plan.generation if last is not None else 0,
            planned_at=last.snapshot.now if last is not None else 0.0,
            now=self._context.now(),
            troubles=self._context.troubles(),
        )
        headers = {**_HEADERS, "cache-control": "no-store"}
        return Response(text, status, mimetype="text/html", headers=headers)


def _root() -> str:
    """Return the relative path to `/` as a browser resolves it, to work below any path."""
    address = str(request.environ.get("REQUEST_URI") or request.path)
    depth = address.partition("?")[0].count("/") - 1
    return "../" * depth or "./"


@cache
def _asset(name: str) -> bytes:
    return files("extender.web.dashboard").joinpath("assets", name).read_bytes()


@cache
def _version() -> str:
    return hashlib.sha256(b"".join(map(_asset, _ASSETS))).hexdigest()[:12]
