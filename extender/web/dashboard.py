"""The dashboard: one page that draws what the API says, and nothing else."""

from __future__ import annotations

from importlib.resources import files

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue

#: The page is complete in itself: it may ask only us, and nobody may frame it.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Dashboard:
    """Serves the page; it has no state of its own."""

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
