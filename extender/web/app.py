"""The Flask app of the operations port: probes, metrics, API and pages."""

from __future__ import annotations

from typing import Protocol, cast

from a2wsgi import WSGIMiddleware
from a2wsgi.asgi_typing import ASGIApp
from a2wsgi.wsgi_typing import WSGIApp
from flask import Blueprint, Flask


class Pages(Protocol):
    """Something that can be mounted."""

    def blueprint(self) -> Blueprint:
        """Give the routes."""


def create_app(*pages: Pages) -> Flask:
    """Mount what is given."""
    app = Flask(__name__, static_folder=None)
    for each in pages:
        app.register_blueprint(each.blueprint())
    return app


def on_a_loop(app: Flask) -> ASGIApp:
    """Let an event loop serve *app*, in threads of its own."""
    # Flask takes any environment; a2wsgi names every variable there can be.
    return WSGIMiddleware(cast(WSGIApp, app))
