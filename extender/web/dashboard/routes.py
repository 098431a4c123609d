"""The routes of the pages: Flask fills the templates, and nothing of a stranger is markup."""

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

#: Script and style come from us as files, nobody frames us, and no text becomes script.
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
    ("holds", "Holds"),
    ("evictions", "Evictions"),
    ("whatif", "What if"),
    ("policy", "Policy"),
    ("health", "Health"),
)
#: Evictions on a page.
_SIZE = 50


class Dashboard:
    """Everything a browser may ask for."""

    def __init__(self, sights: AppContext) -> None:
        self._sights = sights
        self._whatif = WhatIf(sights.suppose, sights.policies.current, sights.bench)
        self._remedied = CachedRemedies(sights.bench)
        #: Pages that are linked on every page; where the whole is a demo, there is one more.
        self.sections = list(_SECTIONS)

    def blueprint(self) -> Blueprint:
        """Give the routes."""
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
        """Show queues, and who waits longest."""
        asked, last = QueryFields(request.args, *queues.FIELDS), self._sights.last
        shown = queues.page(last, self._sights.journal, asked) if last else {}
        return self._page("overview.html", last, "", "Overview", asked, shown, every_s=2)

    def gangs(self) -> ResponseReturnValue:
        """Show all gangs."""
        asked, last, sights = (
            QueryFields(request.args, *gangs.LIST_FIELDS),
            self._sights.last,
            self._sights,
        )
        shown = gangs.gang_list(last, sights.journal, sights.forecaster, asked) if last else {}
        return self._page("gangs.html", last, "gangs", "Gangs", asked, shown, every_s=2)

    def gang(self, namespace: str, name: str) -> ResponseReturnValue:
        """Show one gang."""
        key, last = GangKey(f"{namespace}/{name}"), self._sights.last
        asked, sights = QueryFields(request.args, *gangs.GANG_FIELDS), self._sights
        policy, forecaster = sights.policies.current(), sights.forecaster
        shown = (
            gangs.gang_page(last, sights.journal, policy, forecaster, self._remedied, key, asked)
            if last
            else {}
        )
        if shown is None:
            missing = {"what": f"gang {key}", "where": "gangs"}
            return self._page(
                "missing.html", last, "gangs", str(key), asked, missing, 404, every_s=5
            )
        # A page of which something is still worked out is not kept for others.
        status = 202 if shown.get("is_trying") else 200
        return self._page("gang.html", last, "gangs", str(key), asked, shown, status, every_s=5)

    def nodes(self) -> ResponseReturnValue:
        """Show the room of every node."""
        asked, last = QueryFields(request.args, *cluster.NODES_FIELDS), self._sights.last
        shown = cluster.nodes_page(last, asked) if last else {}
        return self._page("nodes.html", last, "nodes", "Nodes", asked, shown, every_s=5)

    def holds(self) -> ResponseReturnValue:
        """Show who is on the way."""
        asked, last, sights = QueryFields(request.args), self._sights.last, self._sights
        shown = gangs.binding_page(last, sights.journal, sights.promises, asked) if last else {}
        return self._page("holds.html", last, "holds", "Holds", asked, shown, every_s=2)

    def evictions(self) -> ResponseReturnValue:
        """Show who was asked to leave."""
        asked, last = QueryFields(request.args), self._sights.last
        shown = {"shown": paged(self._sights.journal.departures.all(), asked.page, _SIZE)}
        return self._page("evictions.html", last, "evictions", "Evictions", asked, shown, every_s=2)

    def whatif(self) -> ResponseReturnValue:
        """Show what would be, were it as the address supposes."""
        last = self._sights.last
        shown, status = self._whatif.page(request.args.to_dict(flat=False), last)
        page = self._page(
            "whatif.html", last, "whatif", "What if", QueryFields({}), shown, status, every_s=2
        )
        if status == 503:
            page.headers["retry-after"] = "5"
        return page

    def policy(self) -> ResponseReturnValue:
        """Show the policy in force."""
        shown = cluster.policy_page(self._sights.policies)
        return self._page(
            "policy.html", self._sights.last, "policy", "Policy", QueryFields({}), shown, every_s=5
        )

    def health(self) -> ResponseReturnValue:
        """Show how we are."""
        shown = cluster.health_page(self._sights)
        return self._page(
            "health.html", self._sights.last, "health", "Health", QueryFields({}), shown, every_s=2
        )

    def beside(
        self, template: str, section: str, title: str, more: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Fill a template of somebody else that shows gangs too, as one of our pages."""
        asked, last = QueryFields({}, *gangs.LIST_FIELDS), self._sights.last
        shown = (
            gangs.gang_list(last, self._sights.journal, self._sights.forecaster, asked)
            if last
            else {}
        )
        return self._page(
            template, last, section, title, asked, {**shown, **more}, status, every_s=2
        )

    def events(self) -> ResponseReturnValue:
        """Give one event; the port itself goes on where this ends."""
        return Response(self._sights.heartbeat(), mimetype="text/event-stream", headers=_HEADERS)

    def asset(self, version: str, name: str) -> ResponseReturnValue:
        """Give a file that pages use; what is named by its content is good for ever."""
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
        title: str,
        asked: QueryFields,
        shown: Mapping[str, Any],
        status: int = 200,
        *,
        every_s: int,
    ) -> Response:
        """Fill a template; *last* is the pass of which *shown* speaks: another may come."""
        text = render_template(
            template,
            **shown,
            asked=asked,
            title=title,
            section=section,
            sections=self.sections,
            root=_root(),
            version=_version(),
            every_s=every_s,
            is_planned=last is not None,
            cycle=last.plan.generation if last is not None else 0,
            planned_at=last.snapshot.now if last is not None else 0.0,
            now=self._sights.now(),
            troubles=self._sights.troubles(),
        )
        headers = {**_HEADERS, "cache-control": "no-store"}
        return Response(text, status, mimetype="text/html", headers=headers)


def _root() -> str:
    """Give the way back to `/` as a browser reads it, so that we may live below any path."""
    address = str(request.environ.get("REQUEST_URI") or request.path)
    depth = address.partition("?")[0].count("/") - 1
    return "../" * depth or "./"


@cache
def _asset(name: str) -> bytes:
    return files("extender.web.dashboard").joinpath("assets", name).read_bytes()


@cache
def _version() -> str:
    return hashlib.sha256(b"".join(map(_asset, _ASSETS))).hexdigest()[:12]
